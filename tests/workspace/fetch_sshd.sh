#!/bin/sh
# Brings Debian's ssh server for the tests of remotes, unpacked into a folder. Nothing is installed or started.
#
#     fetch_sshd.sh FOLDER
set -eu
mkdir -p "$1" && folder=$(cd "$1" && pwd)
packages="openssh-server libwrap0"
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
( cd "$made" && { apt-get download -qq $packages || { apt-get update -qq && apt-get download -qq $packages; }; } )
for package in "$made"/*.deb; do dpkg-deb -x "$package" "$folder"; done
test -x "$folder/usr/sbin/sshd"
