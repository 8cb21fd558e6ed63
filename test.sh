#!/usr/bin/env bash
# Builds Chiron for the CPU and runs its tests. Installs the packages that are missing.
#   ./test.sh          the quick tests
#   ./test.sh --all    the long ones too
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

which=(-L fast)
case "${1:-}" in
  "") ;;
  --all) which=() ;;
  *)
    echo "usage: ./test.sh [--all]" >&2
    exit 2
    ;;
esac

tools/packages.sh build test
cmake --preset cpu -DCHIRON_TESTS=ON
cmake --build --preset cpu --parallel "$(nproc)"
ctest --test-dir build/cpu --parallel "$(nproc)" --output-on-failure --no-tests=error "${which[@]}"
