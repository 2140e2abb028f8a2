#!/usr/bin/env bash
# Makes a virtual environment with pinned packages and this project in it. Needs Python 3.11 or newer and nothing else.
set -euo pipefail
python=$1 venv=$2 lock=$3

"$python" - <<'PY' || exit 1
import sys
if sys.version_info < (3, 11):
    sys.exit(f"Penstock needs Python 3.11 or newer; this is {sys.version.split()[0]}. Name another one: make PYTHON=python3.12 …")
PY

if [ ! -x "$venv/bin/python" ]; then
    echo "penstock: preparing $venv …"
    if ! "$python" -m venv "$venv"; then
        echo "penstock: this Python cannot make a virtual environment. On Debian or Ubuntu: apt-get install python3-venv" >&2
        exit 1
    fi
fi

pip=("$venv/bin/python" -m pip --quiet --disable-pip-version-check)
install=("${pip[@]}")
# uv fetches in parallel and takes seconds where pip takes minutes; where it cannot be had, pip does it all.
if "${pip[@]}" install --require-hashes -r requirements/uv.lock 2>/dev/null; then
    install=("$venv/bin/uv" --quiet pip)
    export VIRTUAL_ENV="$PWD/$venv"
fi
"${install[@]}" install --require-hashes -r "$lock"
# Until 0.2.0 the package was named penstock. Left installed, both packages would own the same files.
"${pip[@]}" uninstall --yes penstock 2>/dev/null || true
"${install[@]}" install --no-deps --no-build-isolation --editable .
