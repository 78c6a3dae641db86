#!/usr/bin/env bash
# From a bare Debian 12 or Ubuntu 24.04 to a served model: installs packages, builds, fetches SmolLM2-135M-Instruct and serves it.
# Each part is skipped when it is done already. usage: quickstart.sh [options of `staffel serve`, e.g. --port 8001]
set -euo pipefail
cd "$(dirname "$0")/.."

step() { printf '\n\033[1m[%s/4] %s\033[0m\n' "$1" "$2"; }

step 1 "packages"
bash scripts/install_dependencies.sh
step 2 "build (release; the first time takes some minutes)"
[ -f build/build.ninja ] || cmake --preset cpu
cmake --build build --target staffel
step 3 "model"
model=$(python3 scripts/fetch_model.py smollm2)
step 4 "serve"
exec build/staffel serve "$model" --port 8000 "$@"
