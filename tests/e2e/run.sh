#!/usr/bin/env bash
# Runs one test file with the Python that has the clients: build/venv (made by scripts/test.sh), else the system's.
set -euo pipefail
cd "$(dirname "$0")"
python=${SERVER_BUILD:-../../build}/venv/bin/python3
[ -x "$python" ] || python=python3
exec "$python" -m unittest "$@"
