#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Puts our bootstrap in the place of Lambda's own, on AWS's Python runtimes:
#
#   AWS_LAMBDA_EXEC_WRAPPER=/var/task/quickthaw/snapshot/exec_wrapper.sh
#
# Lambda calls it with what it would have run: the interpreter, perhaps options, and its bootstrap last. The interpreter
# is kept. The packages of the function come before the runtime's, whose awslambdaric is of another version.
set -eu
PYTHONPATH="${LAMBDA_TASK_ROOT:-/var/task}${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONPATH
exec "$1" -m quickthaw.snapshot.bootstrap "$_HANDLER"
