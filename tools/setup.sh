#!/usr/bin/env bash
# Makes this checkout ready: Debian packages when missing, LibTorch in .venv (or STAGECRAFT_VENV), the programs in
# build/release/bin. Safe to run again: what is there is kept.
#   tools/setup.sh [--tests] [--checks] [--no-build]     --tests builds the tests too and installs what they need, --checks
#                                                        installs what tools/check.sh needs, --no-build stops before the build
set -euo pipefail
cd "$(dirname "$0")/.."
targets=(partition pipetrain)
tests=()
checks=()
build=yes
for option in "$@"; do
  case $option in
    --tests) targets=(all); tests=(chromium) ;;
    --checks) checks=(clang-19 clang-tidy-19 clang-format-19 libclang-rt-19-dev) ;;
    --no-build) build=no ;;
    *) echo "setup: unknown option $option; there are --tests, --checks, --no-build" >&2; exit 2 ;;
  esac
done

packages=(g++ cmake ninja-build ccache pkg-config python3-venv
  libcli11-dev libyaml-cpp-dev libtbb-dev nlohmann-json3-dev libasio-dev libfmt-dev libicu-dev libssl-dev
  libxxhash-dev libopencv-dev libgtest-dev libgmock-dev libbenchmark-dev "${tests[@]}" "${checks[@]}")
missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
# A toolchain from elsewhere (a newer cmake or python in PATH) is as good as Debian's.
for tool in g++ cmake; do
  if command -v "$tool" >/dev/null; then missing=("${missing[@]/#$tool}"); fi
done
for browser in chromium chromium-browser google-chrome; do  # any will do
  if command -v "$browser" >/dev/null; then missing=("${missing[@]/#chromium}"); fi
done
if python3 -c 'import venv, ensurepip' 2>/dev/null; then missing=("${missing[@]/#python3-venv}"); fi
wanted=()
for package in "${missing[@]}"; do [ -n "$package" ] && wanted+=("$package"); done
if [ "${#wanted[@]}" -gt 0 ]; then
  as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "setup: install these as root, then run setup again: ${wanted[*]}" >&2; exit 8; }
    as_root=(sudo)
  fi
  echo "setup: installing ${wanted[*]}"
  "${as_root[@]}" apt-get update -qq
  packages=()
  for package in "${wanted[@]}"; do
    if [ "$package" = chromium ] && ! apt-cache show chromium >/dev/null 2>&1; then  # Ubuntu has it as a snap only
      echo "setup: there is no package chromium here; the tests of the report's page need Chromium or Chrome in PATH" >&2
    else
      packages+=("$package")
    fi
  done
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
fi

venv=${STAGECRAFT_VENV:-$PWD/.venv}
stamp=$venv/.stagecraft-requirements
if ! cmp -s tools/requirements.txt "$stamp" 2>/dev/null; then
  echo "setup: LibTorch and Python packages into $venv (about 5 GB)"
  [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
  "$venv/bin/pip" install -q --disable-pip-version-check -r tools/requirements.txt
  "$venv/bin/pip" install -q --disable-pip-version-check --no-deps open-clip-torch==3.3.0
  cp tools/requirements.txt "$stamp"
fi

if command -v nvidia-smi >/dev/null; then
  driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1 | cut -d. -f1 || true)
  if [ -n "$driver" ] && [ "$driver" -lt 580 ]; then
    echo "setup: the NVIDIA driver is $driver; this LibTorch (CUDA 13.0) needs 580 or newer" >&2
  fi
fi

[ $build = yes ] || exit 0
cmake --preset release >/dev/null
cmake --build --preset release --target "${targets[@]}" -- ${STAGECRAFT_NINJA_FLAGS:-}
echo "setup: done, programs are in build/release/bin"
