#!/usr/bin/env bash
# Passes the tests: tools/test.sh [--slow] [ctest options]. Sets up and builds first. `--slow` adds the long full-size tests.
set -euo pipefail
cd "$(dirname "$0")/.."
selection=(-LE slow)
if [ "${1:-}" = --slow ]; then
  selection=()
  shift
fi
tools/setup.sh --tests
ctest --test-dir build/release --output-on-failure --no-tests=error -j "${CTEST_PARALLEL_LEVEL:-2}" "${selection[@]}" "$@"
