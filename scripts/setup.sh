#!/bin/sh
# Set-up for `make try` and `make test`: says what it will install, installs what is missing, and nothing else.
#
#   sh scripts/setup.sh lab        programs for emulated hosts, and .venv with Linkwright and its lab
#   sh scripts/setup.sh lab,dev    the same, and what the tests need
#
# Twice in a row costs nothing: packages are asked from dpkg, the virtual environment has a stamp.
set -eu
cd "$(dirname "$0")/.."
extras=${1:-lab}
venv=.venv
packages="mstflint podman crun fuse3 busybox-static iproute2 util-linux procps"

fail() {
    printf 'Error: %s\n' "$1" >&2
    [ $# -lt 2 ] || printf '  %s\n' "$2" >&2
    exit 1
}

good_python() {
    "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    for name in ${PYTHON:-} python3.14 python3.13 python3.12 python3.11 python3 /usr/bin/python3; do
        if command -v "$name" >/dev/null 2>&1 && good_python "$name"; then
            command -v "$name"
            return
        fi
    done
}

# -- what the machine must be

[ "$(id -u)" = 0 ] || fail "this needs root: emulated hosts are made of namespaces, mounts and network devices." \
    "Run it again as root (sudo make ...), best in a virtual machine. The machine's own network and /sys stay untouched."
command -v apt-get >/dev/null 2>&1 || fail "this installs Debian packages, and there is no apt-get here." \
    "Use Debian 12 or 13, or a recent Ubuntu; or install by hand: $packages, Python 3.11 or newer with venv."
if [ ! -e /dev/fuse ]; then
    command -v modprobe >/dev/null 2>&1 && modprobe fuse 2>/dev/null || true
fi
[ -e /dev/fuse ] || fail "there is no /dev/fuse, so the emulated /sys cannot be served." \
    "Load it: modprobe fuse. In a container, start that with: --device /dev/fuse --privileged"
( : <>/dev/fuse ) 2>/dev/null || fail "/dev/fuse cannot be opened, so the emulated /sys cannot be served." \
    "In a container, start that with: --device /dev/fuse --privileged"

# -- Debian packages

missing=""
for package in $packages; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing="$missing $package"
done
python=$(find_python)
[ -n "$python" ] || missing="$missing python3 python3-venv"

if [ -n "$missing" ]; then
    echo "Debian packages to install:$missing"
    export DEBIAN_FRONTEND=noninteractive
    # The package lists may be missing or old: then the first try fails, and they are fetched.
    # shellcheck disable=SC2086
    apt-get -qq install --yes --no-install-recommends $missing >/dev/null 2>&1 || {
        apt-get -qq update || fail "apt-get update failed." "Look at its words above; the packages come from your mirror."
        apt-get -qq install --yes --no-install-recommends $missing >/dev/null ||
            fail "apt-get could not install:$missing" "Look at its words above, then run this again."
    }
    python=$(find_python)
fi
[ -n "$python" ] || fail "there is no Python 3.11 or newer with venv." \
    "Debian 12 has it (python3-venv); on an older system install python3.11 and python3.11-venv, or set PYTHON=/path."

# -- the virtual environment

stamp="$venv/.installed-$extras"
[ "$extras" != lab ] || [ ! -f "$venv/.installed-lab,dev" ] || stamp="$venv/.installed-lab,dev" # it holds both
if [ -x "$venv/bin/python" ] && ! "$venv/bin/python" -c '' 2>/dev/null; then
    rm -rf "$venv" # its Python went away
fi
if [ ! -f "$stamp" ] || [ pyproject.toml -nt "$stamp" ]; then
    echo "Virtual environment: $venv ($("$python" --version), linkwright[$extras])"
    [ -x "$venv/bin/python" ] && "$venv/bin/python" -m pip --version >/dev/null 2>&1 || "$python" -m venv --clear "$venv"
    "$venv/bin/python" -m pip --quiet --disable-pip-version-check install --editable ".[$extras]" ||
        fail "pip could not install linkwright[$extras]." "Look at its words above; it needs a package index (pip config list)."
    touch "$stamp"
fi
