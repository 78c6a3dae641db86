#!/usr/bin/env bash
# Build everything and run all tests. usage: test.sh [options of ctest, e.g. -R unit_text]
# Fetches the three small models that the golden tests read (about 850 MB) when they are not there.
set -euo pipefail
cd "$(dirname "$0")/.."

bash scripts/install_dependencies.sh
python3 scripts/fetch_model.py smollm2 qwen2.5 gemma3 >/dev/null
if [ -f tests/e2e/requirements.txt ]; then
  # Real clients for the end-to-end tests, in an environment of their own; made anew when the list changes.
  if ! cmp -s tests/e2e/requirements.txt build/venv/requirements.txt; then
    echo "Installing the clients of the end-to-end tests into build/venv ..."
    rm -rf build/venv
    mkdir -p build
    python3 -m venv build/venv
    build/venv/bin/pip install -q --disable-pip-version-check -r tests/e2e/requirements.txt
    cp tests/e2e/requirements.txt build/venv/requirements.txt
  fi
fi
[ -f build/build.ninja ] || cmake --preset cpu
cmake --build build
exec ctest --test-dir build --output-on-failure "$@"
