#!/bin/sh
# Makes .venv ready for one purpose, `run` (what retinue needs) or `dev` (tests and checks too), and nothing else.
# Quick when there is nothing to do. Uses uv when it is there, else venv and pip; touches nothing outside this folder.
set -eu

purpose=${1:?usage: setup.sh run|dev}
cd "$(dirname "$0")/.."
root=$(pwd -P)

say() { printf '%s\n' "setup: $*" >&2; }
fail() { say "$*"; exit 1; }

# The stamp names what the environment was made from, so a moved folder or a changed lock is noticed.
want="$root $(cat pyproject.toml uv.lock scripts/setup.sh | cksum)"
is_ready() { [ -f ".venv/.ready-$1" ] && [ "$(cat ".venv/.ready-$1")" = "$want" ] && .venv/bin/python -c '' 2>/dev/null; }
is_ready dev && exit 0
[ "$purpose" = run ] && is_ready run && exit 0

# Programs in an environment name the folder it was made in: one that was moved or copied is made again.
for stamp in .venv/.ready-*; do
    [ -f "$stamp" ] || continue
    case "$(cat "$stamp")" in "$root "*) ;; *) rm -rf .venv ;; esac
done

find_python() {
    for name in python3.13 python3.12 python3.11 python3 python python3.14; do
        # A name may be there and still not work (version managers leave such names), so each one is tried.
        found=$(command -v "$name" 2>/dev/null) || continue
        "$found" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && printf '%s' "$found" && return
    done
    return 1
}

extra=''
[ "$purpose" = dev ] && extra='[dev]'

install_with_uv() {
    unset VIRTUAL_ENV
    if [ "$purpose" = dev ]; then set -- --extra dev; else set --; fi
    # Naming an interpreter makes uv begin again with an empty environment, so an existing one is left to itself.
    if [ -n "$python" ] && ! is_usable; then set -- "$@" --python "$python"; fi
    UV_PROJECT_ENVIRONMENT=.venv uv sync --quiet --frozen --inexact "$@"
}

is_usable() { .venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

make_venv() {
    is_usable && return
    rm -rf .venv
    "$python" -m venv --without-pip .venv || fail "$python cannot make a virtual environment; on Debian: apt install python3-venv"
}

find_pip() {
    .venv/bin/python -m pip --version >/dev/null 2>&1 && return
    .venv/bin/python -m ensurepip --default-pip >/dev/null 2>&1 && return
    # Debian splits ensurepip off; the installer itself is one wheel that an index can give.
    .venv/bin/python scripts/fetch_pip.py .venv
}

install_with_pip() {
    find_pip || fail "no pip, and none could be fetched; on Debian: apt install python3-venv"
    .venv/bin/python scripts/constraints.py >.venv/constraints.txt
    PIP_DISABLE_PIP_VERSION_CHECK=1 .venv/bin/python -m pip install --quiet -c .venv/constraints.txt -e ".$extra" && return
    say 'the locked versions cannot be had here; taking what the index offers'
    PIP_DISABLE_PIP_VERSION_CHECK=1 .venv/bin/python -m pip install --quiet -e ".$extra"
}

python=$(find_python) || python=''
say "preparing .venv ($purpose)"
if command -v uv >/dev/null 2>&1 && uv --version >/dev/null 2>&1; then
    install_with_uv || { say 'uv could not do it; trying pip'; by_pip=1; }
else
    by_pip=1
fi
if [ -n "${by_pip:-}" ]; then
    [ -n "$python" ] || fail 'retinue needs Python 3.11 or newer on PATH (python3.11, python3.12, python3.13 or python3)'
    make_venv
    install_with_pip || fail 'the dependencies could not be installed; is a package index reachable?'
fi
.venv/bin/python -c 'import retinue' || fail 'the installation is broken; remove .venv and try again'
printf '%s' "$want" >".venv/.ready-$purpose"
