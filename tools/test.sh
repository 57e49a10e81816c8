#!/usr/bin/env bash
# Passes the tests: tools/test.sh [--slow] [ctest options]. Sets up and builds first. `--slow` adds the long full-size tests and
# ten minutes of fuzzing for each parser.
set -euo pipefail
cd "$(dirname "$0")/.."
selection=(-LE slow)
options=(--tests)
slow=no
if [ "${1:-}" = --slow ]; then
  selection=()
  options+=(--checks)
  slow=yes
  shift
fi
tools/setup.sh "${options[@]}"
ctest --test-dir build/release --output-on-failure --no-tests=error -j "${CTEST_PARALLEL_LEVEL:-2}" "${selection[@]}" "$@"
[ $slow = no ] || tools/fuzz.sh --seconds 600
