#!/usr/bin/env bash
# What tests/aws starts containers with, on a Debian. Needs root.
set -euo pipefail
packages=(podman crun busybox-static)
for package in "${packages[@]}"; do
  if ! dpkg-query -W "$package" >/dev/null 2>&1; then
    apt-get -qq update
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${packages[@]}" >/dev/null
    break
  fi
done
