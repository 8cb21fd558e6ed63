#!/usr/bin/env bash
# Builds Chiron, for the GPU too where there are one and its compiler (tools/preset.sh), and runs its tests. Installs
# the packages that are missing.
#   ./test.sh          the quick tests
#   ./test.sh --all    the long ones too
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

which=(-L 'fast|gpu')  # those of a GPU skip themselves where there is none
case "${1:-}" in
  "") ;;
  --all) which=() ;;
  *)
    echo "usage: ./test.sh [--all]" >&2
    exit 2
    ;;
esac

tools/packages.sh build test
read -ra preset < <(tools/preset.sh)
cmake --preset "${preset[@]}" -DCHIRON_TESTS=ON
cmake --build --preset "${preset[0]}" --parallel "$(nproc)"
ctest --test-dir "build/${preset[0]}" --parallel "$(nproc)" --output-on-failure --no-tests=error "${which[@]}"
