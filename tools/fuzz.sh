#!/usr/bin/env bash
# Replays the corpus of every fuzz target, then fuzzes it; two targets at a time. Ends with 1 when an input crashes one.
#   tools/fuzz.sh [--seconds N] [target…]      N seconds for each target (default 10; 0: replay only), all targets unless named
# Inputs that are found lie in build/fuzz/corpus, those that crash in build/fuzz/crashes.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=10
targets=()
while [ $# -gt 0 ]; do
  case $1 in
    --seconds) seconds=${2:?--seconds needs a number}; shift 2 ;;
    -*) echo "fuzz: unknown option $1; usage: tools/fuzz.sh [--seconds N] [target…]" >&2; exit 2 ;;
    *) targets+=("$1"); shift ;;
  esac
done
command -v clang++-19 >/dev/null || { echo "fuzz: install clang-19 and libclang-rt-19-dev: tools/setup.sh --checks" >&2; exit 8; }

build=build/fuzz
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz -- ${STAGECRAFT_NINJA_FLAGS:-}
if [ ${#targets[@]} -eq 0 ]; then
  for program in "$build"/bin/fuzz_*; do targets+=("${program##*/fuzz_}"); done
fi
for target in "${targets[@]}"; do
  [ -x "$build/bin/fuzz_$target" ] || { echo "fuzz: there is no target $target; see tests/fuzz" >&2; exit 2; }
done

# Parsers that read files get them in memory; the folder is gone at the end, also after a crash.
TMPDIR=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d)
export TMPDIR build seconds
trap 'rm -rf "$TMPDIR"' EXIT
mkdir -p "$build/crashes" "$build/logs"

run_target() {
  local target=$1
  local found=$build/corpus/$target seeds=tests/fuzz/corpus/$target words=tests/fuzz/dictionaries/$target.dict
  local log=$build/logs/$target.log crash
  local options=(-timeout=10 -rss_limit_mb=1024 -artifact_prefix="$build/crashes/$target-" -print_final_stats=1 -verbosity=1)
  [ -f "$words" ] && options+=(-dict="$words")
  mkdir -p "$found"
  touch "$log.start"
  # Zero runs pass every input of the corpus once; a limit of time then goes on from there.
  if "$build/bin/fuzz_$target" "${options[@]}" -runs=0 "$seeds" >"$log" 2>&1 &&
    { [ "$seconds" -eq 0 ] ||
      "$build/bin/fuzz_$target" "${options[@]}" -max_total_time="$seconds" "$found" "$seeds" >>"$log" 2>&1; }; then
    echo "fuzz: $target: $(find "$seeds" -type f | wc -l) inputs of the corpus, $(awk '/number_of_executed_units/ { n += $2 } END { print n }' "$log") runs"
    return 0
  fi
  tail -n 40 "$log"
  echo "fuzz: $target crashed, see $log; reproduce it with"
  crash=$(find "$build/crashes" -name "$target-*" -newer "$log.start" | head -n 1)
  echo "  $build/bin/fuzz_$target ${crash:-$seeds/*}"
  return 1
}
export -f run_target
printf '%s\n' "${targets[@]}" | xargs -P 2 -I '{}' bash -c 'run_target "$1"' _ '{}' || exit 1
