#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The root of an image in the layout of AWS's Python base images, made of this machine's own interpreter and libraries:
#
#   base_image.sh PYTHON OUT
#
#   /var/lang       the interpreter      /var/runtime  bootstrap, awslambdaric
#   /var/task       the function         /opt          Lambda Layers; empty
#
# It stands in for public.ecr.aws/lambda/python where no registry can be reached, and is not Amazon Linux.
# Needs busybox-static.
set -euo pipefail
python=$(readlink -f "$1") root=$2
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
home=$("$python" -c 'import sys; print(sys.base_prefix)')

mkdir -p "$root"/{bin,dev,etc,mnt,opt,proc,root,sys,tmp,usr/bin} "$root"/var/{lang/bin,lang/lib,rapid,runtime,task}
chmod 1777 "$root/tmp"
cp "$(command -v busybox)" "$root/bin/busybox"
for name in cat chmod cp env ls mkdir mv rm sh; do
  ln -s busybox "$root/bin/$name"
done
ln -s /bin/env "$root/usr/bin/env"
printf 'root:x:0:0:root:/root:/bin/sh\n' >"$root/etc/passwd"
printf 'root:x:0:\n' >"$root/etc/group"
mkdir -p "$root/etc/ssl/certs"
cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"

# The library of a Python of one's own lies under its home; that of a distribution's Python, among the system's.
tar -C "$home" -c --exclude=__pycache__ --exclude=test --exclude=idlelib --exclude=tkinter --exclude='*.a' \
  --exclude='config-*' --exclude='site-packages/[!p]*' "bin/python$version" "lib/python$version" |
  tar -C "$root/var/lang" -x
find "$home/lib" -maxdepth 1 -name 'libpython*.so*' -exec cp -P {} "$root/var/lang/lib/" \;
ln -s "python$version" "$root/var/lang/bin/python3"
"$python" -m pip install --quiet --disable-pip-version-check --no-compile --target "$root/var/runtime" awslambdaric

find "$root/var/lang" "$root/var/runtime" \( -name '*.so*' -o -name "python$version" \) -type f -exec ldd {} + 2>/dev/null |
  awk '/=> \// {print $3} /^\t\/lib/ {print $1}' | sort -u | while read -r library; do
  case $library in "$root"/* | "$home"/*) continue ;; esac
  mkdir -p "$root$(dirname "$library")"
  cp -L "$library" "$root$library"
done

cat >"$root/var/runtime/bootstrap" <<'SHELL'
#!/bin/sh
export PYTHONPATH=/var/task:/opt/python:/var/runtime
exec ${AWS_LAMBDA_EXEC_WRAPPER:-} /var/lang/bin/python3 -m awslambdaric "$_HANDLER"
SHELL
chmod +x "$root/var/runtime/bootstrap"
