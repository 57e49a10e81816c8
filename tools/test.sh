#!/usr/bin/env bash
# Passes the tests: tools/test.sh [--slow] [ctest options]. Sets up and builds first. `--slow` adds the long full-size tests and,
# where no ctest options select some, ten minutes of fuzzing for each parser: four hours in all on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."
selection=(-LE slow)
slow=no
if [ "${1:-}" = --slow ]; then
  slow=yes
  selection=()
  shift
fi
tools/setup.sh --tests
ctest --test-dir build/release --output-on-failure --no-tests=error -j "${CTEST_PARALLEL_LEVEL:-2}" "${selection[@]}" "$@"
if [ $slow = yes ] && [ $# -eq 0 ]; then
  tools/setup.sh --checks --no-build
  tools/fuzz.sh --seconds 600
fi
