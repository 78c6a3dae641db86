#!/usr/bin/env bash
# Tests under sanitizers, and the fuzzers. usage: sanitize.sh [tsan] [asan-ubsan] [fuzz]   (none named: all three)
# All tests but the end-to-end and golden ones run in build/PRESET. Those two run real models: their build, build/PRESET-server, leaves
# kernels/cpu unsanitized. Everything is tried before the script fails. Some 25 minutes of CPU to build each, and as long to test.
# JOBS: compilers at a time (default: cores). FUZZ_SECONDS: for each fuzzer (default 180); what they find lies in build/fuzz/found.
set -uo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)} failed=()

try() { local what=$1; shift; echo "== $what"; "$@" || failed+=("$what"); }

sanitize() {
  local preset=$1 server=build/$1-server
  cmake --preset "$preset" >/dev/null && cmake --build "build/$preset" -j "$jobs" || { failed+=("build of $preset"); return; }
  try "$preset: tests" ctest --test-dir "build/$preset" --output-on-failure -LE 'e2e|golden|tidy'
  cmake --preset "$preset" -B "$server" -DSTAFFEL_SANITIZE_KERNELS=OFF >/dev/null &&
    cmake --build "$server" -j "$jobs" --target staffel golden_cpu || { failed+=("build of $server"); return; }
  rm -f "$server"/reports/*
  try "$preset: golden tests" ctest --test-dir "$server" --output-on-failure -R golden_cpu
  try "$preset: end to end" ctest --test-dir "$server" --output-on-failure -L e2e
  if compgen -G "$server/reports/*" >/dev/null; then
    grep -h 'SUMMARY' "$server"/reports/* | sort | uniq -c
    failed+=("$preset: reports of servers in $server/reports")
  fi
}

fuzz() {
  local name targets=() found=build/fuzz/found
  for name in tests/fuzz/*_fuzz.cc; do name=${name##*/}; targets+=("fuzz_${name%_fuzz.cc}"); done
  cmake --preset fuzz >/dev/null && cmake --build build/fuzz -j "$jobs" --target "${targets[@]}" || { failed+=("build of fuzz"); return; }
  for name in "${targets[@]}"; do
    mkdir -p "$found/$name"
    try "$name" "build/fuzz/tests/fuzz/$name" -max_total_time="${FUZZ_SECONDS:-180}" -timeout=20 -rss_limit_mb=4096 -print_final_stats=1 \
      -artifact_prefix="$found/$name-" "$found/$name" "tests/fuzz/corpus/${name#fuzz_}"
  done
}

[ $# -gt 0 ] || set -- tsan asan-ubsan fuzz
for what in "$@"; do
  case $what in
    tsan | asan-ubsan) sanitize "$what" ;;
    fuzz) fuzz ;;
    *) echo "usage: sanitize.sh [tsan] [asan-ubsan] [fuzz]" >&2; exit 2 ;;
  esac
done
[ ${#failed[@]} -eq 0 ] || { printf 'failed: %s\n' "${failed[@]}" >&2; exit 1; }
