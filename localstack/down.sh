#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ends what up.sh has started, and takes away what it wrote. RUN, of the environment, is where.
set -euo pipefail
if [ -s "$RUN/pid" ]; then
  pid=$(cat "$RUN/pid")
  if grep -qs localstack.runtime.main "/proc/$pid/cmdline"; then # or the number is another process's by now
    kill "$pid"
    for _ in $(seq 100); do
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.1
    done
    kill -9 "$pid" 2>/dev/null || true
  fi
fi
rm -rf "$RUN/fs" "$RUN/tmp" "$RUN/.localstack" "$RUN/pid" "$RUN/log"
