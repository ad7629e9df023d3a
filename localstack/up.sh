#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Brings up LocalStack, without Docker, with the function in it, and prints where to ask: up.sh
#
# Of the environment: TOOLS has LocalStack in it (`make tools`), FILES what init/ready.d/quickthaw.sh puts into it, RUN is
# for what this run writes, PORT where it listens. When it runs already, only the address is printed.
set -euo pipefail
cd "$(dirname "$0")"
: "${PORT:=4566}"
mkdir -p "$RUN"
exec 9>"$RUN/lock"
flock 9 # two at once make one

url="http://127.0.0.1:$PORT"
is_up() {
  [ -s "$RUN/pid" ] && kill -0 "$(cat "$RUN/pid")" 2>/dev/null && curl -sf "$url/_localstack/health" >/dev/null
}
state() { # of the init script
  curl -sf "$url/_localstack/init/ready" | grep -o '"state": *"[A-Z]*"' | cut -d'"' -f4
}

if ! is_up; then
  ./down.sh
  mkdir -p "$RUN/fs/etc/localstack" "$RUN/tmp"
  ln -sfn "$PWD/init" "$RUN/fs/etc/localstack/init"
  env OVERRIDE_IN_DOCKER=0 FILESYSTEM_ROOT="$RUN/fs" TMPDIR="$RUN/tmp" HOME="$RUN" \
    GATEWAY_LISTEN="127.0.0.1:$PORT" LOCALSTACK_HOST="127.0.0.1:$PORT" ACTIVATE_PRO=0 SKIP_SSL_CERT_DOWNLOAD=1 \
    DISABLE_EVENTS=1 DNS_ADDRESS=0 EAGER_SERVICE_LOADING=0 LAMBDA_RUNTIME_EXECUTOR=process \
    AWS_ENDPOINT_URL="$url" AWS_DEFAULT_REGION=us-east-1 AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test \
    QUICKTHAW_FILES="$FILES" QUICKTHAW_RUNTIME="$RUNTIME" PATH="$TOOLS/localstack/bin:$PATH" \
    setsid "$TOOLS/localstack/bin/python" -m localstack.runtime.main >"$RUN/log" 2>&1 9>&- </dev/null &
  echo $! >"$RUN/pid"
fi

for _ in $(seq 600); do
  case $(state || true) in
    SUCCESSFUL) break ;;
    ERROR) grep -v DEBUG "$RUN/log" | tail -20 >&2 && exit 1 ;;
  esac
  kill -0 "$(cat "$RUN/pid")" 2>/dev/null || { tail -20 "$RUN/log" >&2 && exit 1; }
  sleep 0.2
done
id=$(AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test AWS_DEFAULT_REGION=us-east-1 "$TOOLS/localstack/bin/aws" \
  --endpoint-url "$url" cloudformation describe-stacks --stack-name quickthaw \
  --query "Stacks[0].Outputs[?OutputKey=='ApiId'].OutputValue" --output text)
echo "$url/_aws/execute-api/$id/local"
