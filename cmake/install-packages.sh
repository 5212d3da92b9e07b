#!/bin/sh
# Installs the Debian packages of packages.txt that are missing, and nothing if none is.
set -eu
cd "$(dirname "$0")/.."
missing=
for package in $(sed 's/#.*//' packages.txt); do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
echo "installing:$missing"
as_root=
[ "$(id -u)" = 0 ] || as_root=sudo
$as_root apt-get update -q
DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -q --no-install-recommends $missing
