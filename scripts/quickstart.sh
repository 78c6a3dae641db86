#!/usr/bin/env bash
# From a bare Debian 12 or Ubuntu 24.04 to a served model: installs packages, builds, fetches SmolLM2-135M-Instruct and serves it.
# Each part is skipped when it is done already. usage: quickstart.sh [options of `staffel serve`, e.g. --port 8001]
set -euo pipefail
cd "$(dirname "$0")/.."

bold="" plain=""
if [ -t 1 ]; then bold=$'\033[1m' plain=$'\033[0m'; fi
step() { printf '\n%s[%s/4] %s%s\n' "$bold" "$1" "$2" "$plain"; }

step 1 "packages"
bash scripts/install_dependencies.sh
step 2 "build (the first time: 10 minutes of processor time, shared by all cores)"
# A newer compiler may warn of more; that is no reason not to serve.
[ -f build/build.ninja ] || cmake --preset cpu -DSTAFFEL_WERROR=OFF
cmake --build build --target staffel
step 3 "model"
model=$(python3 scripts/fetch_model.py smollm2)
step 4 "serve (Ctrl-C stops)"
exec build/staffel serve "$model" --port 8000 "$@"
