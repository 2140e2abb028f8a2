#!/usr/bin/env bash
# Installs the Debian packages that some tests need, where that is possible; those tests skip, and say so, where it is not.
set -u
# Servers are started by the tests that need them, and not as services of the machine.
export RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive
for package in "$@"; do
    command -v "$package" >/dev/null 2>&1 && continue
    # Not every package has a program of its own name.
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] && continue
    if ! command -v apt-get >/dev/null 2>&1 || [ "$(id -u)" != 0 ]; then
        echo "penstock: $package is missing and cannot be installed from here (needs apt-get and root); its tests will skip"
        continue
    fi
    echo "penstock: installing $package …"
    apt-get install -qq -y "$package" >/dev/null 2>&1 ||
        { apt-get update -qq >/dev/null 2>&1 && apt-get install -qq -y "$package" >/dev/null 2>&1; } ||
        echo "penstock: $package could not be installed; its tests will skip"
done
exit 0
