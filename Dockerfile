# SPDX-License-Identifier: Apache-2.0
# The image function, for Lambda and for `sam local`:
#
#   docker build --platform linux/amd64 --provenance=false --build-context shards=PATH/OF/A/SHARD/SET -t quickthaw .
#
# The base is AWS's: it has boto3, with which a warmer asks the function for its other environments. SnapStart works on
# it; the bootstrap is ours, and runs the hooks itself.
ARG BASE=public.ecr.aws/lambda/python:3.13
FROM ${BASE}

# What changes least comes first. Lambda reads an image block by block, as it is needed: weights in it are mapped like
# any file, and no start waits for those that it does not touch.
COPY --from=shards / /var/task/shards/

COPY pyproject.toml README.md LICENSE /tmp/source/
COPY handler /tmp/source/handler
COPY layers /tmp/source/layers
COPY snapshot /tmp/source/snapshot
# Compiled here: /var/task cannot be written, and a start would compile what it imports each time.
RUN python3 -m pip install --quiet --no-cache-dir --disable-pip-version-check --target /var/task /tmp/source \
 && python3 -m compileall -q --invalidation-mode unchecked-hash /var/task \
 && rm -rf /tmp/source

# Before the base's own awslambdaric, which is of another version.
ENV PYTHONPATH=/var/task
ENV QUICKTHAW_SHARDS=/var/task/shards QUICKTHAW_VERIFY=never
WORKDIR /var/task
ENTRYPOINT ["python3", "-m", "quickthaw.snapshot.bootstrap"]
CMD ["quickthaw.handler.app.lambda_handler"]
