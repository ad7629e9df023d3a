#!/usr/bin/env bash
# Puts CRIU 4 or later on the PATH of a Debian: install-criu.sh [PREFIX=/opt/criu]. Needs root.
# Debian 12's own, 3.17, does not know current kernels. Debian 13's and the libraries that it needs are unpacked
# under PREFIX and run with their own loader: of the system, only the link /usr/local/sbin/criu is new.
set -euo pipefail
prefix=${1:-/opt/criu}
suite=trixie
packages=(criu libbsd0 libc6 libcap2 libedit2 libffi8 libgcc-s1 libgmp10 libgnutls30t64 libhogweed6t64 libidn2-0
  libjansson4 libmd0 libmnl0 libnet1 libnettle8t64 libnftables1 libnftnl11 libnl-3-200 libp11-kit0 libprotobuf-c1
  libtasn1-6 libtinfo6 libunistring5 libuuid1 libxtables12 libzstd1 zlib1g)

is_recent() { # is_recent VERSION, as in 4.1-1
  [[ ${1%%.*} =~ ^[0-9]+$ && ${1%%.*} -ge 4 ]]
}

if installed=$(criu --version 2>/dev/null) && is_recent "${installed##*Version: }"; then
  exit 0
fi
candidate=$(apt-cache policy criu | awk '/Candidate:/ {print $2}')
if is_recent "$candidate"; then
  apt-get -qq install -y criu
  exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/packages" "$prefix"
mirror=$(awk '/^URIs:/ {print $2; exit}' /etc/apt/sources.list.d/debian.sources)
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb [signed-by=$keyring] $mirror $suite main" >"$work/sources.list"
apt=(apt-get -qq -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=/dev/null
  -o "Dir::State::Lists=$work/lists" -o APT::Sandbox::User=root)
"${apt[@]}" update
(cd "$work/packages" && "${apt[@]}" download "${packages[@]}")
for package in "$work"/packages/*.deb; do
  dpkg -x "$package" "$prefix/root"
done
libraries=("$prefix"/root/usr/lib/*-linux-gnu)
loader=("$prefix"/root/usr/lib*/ld-linux-*.so.*)
cat >"$prefix/criu" <<WRAPPER
#!/bin/sh
exec ${loader[0]} --library-path ${libraries[0]} $prefix/root/usr/sbin/criu "\$@"
WRAPPER
chmod +x "$prefix/criu"
ln -sf "$prefix/criu" /usr/local/sbin/criu
criu --version
