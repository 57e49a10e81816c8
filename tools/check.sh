#!/usr/bin/env bash
# What reading and testing alone do not show: tools/check.sh [format|tidy|asan|tsan|fuzz …], all of them unless some are named
# (asan builds under clang-tidy, so tidy is part of it). Needs tools/setup.sh --checks. CONTRIBUTING.md says what each proves.
set -euo pipefail
cd "$(dirname "$0")/.."

build() {
  local preset=$1
  shift
  cmake --preset "$preset" >/dev/null
  cmake --build --preset "$preset" --target "$@" -- ${STAGECRAFT_NINJA_FLAGS:-}
}

format() { git ls-files '*.cc' '*.h' | xargs clang-format-19 --dry-run -Werror; }
tidy() { build asan stagecraft_partitioner stagecraft_models stagecraft_comm stagecraft_dataset stagecraft_checkpoint; }
asan() {
  build asan all
  ctest --preset asan
}
tsan() {
  build tsan test_comm test_launch test_pipeline
  ctest --preset tsan
}
fuzz() { tools/fuzz.sh --seconds 10; }

checks=("$@")
[ $# -gt 0 ] || checks=(format asan tsan fuzz)  # asan passes tidy
for check in "${checks[@]}"; do
  case $check in
    format|tidy|asan|tsan|fuzz) ;;
    *) echo "check: there is no check $check; there are format, tidy, asan, tsan, fuzz" >&2; exit 2 ;;
  esac
done
trap '[ $? -eq 0 ] || echo "check: $check failed" >&2' EXIT
for check in "${checks[@]}"; do
  started=$SECONDS
  echo "check: $check"
  $check
  echo "check: $check passed in $((SECONDS - started)) s"
done
