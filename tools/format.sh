#!/usr/bin/env bash
# Formats the C++ of src/ and tests/ as .clang-format says.
#   tools/format.sh            rewrites what differs
#   tools/format.sh --check    changes nothing; names what differs, exit code 1
# Other versions of clang-format break lines differently, so this takes version 14 (Debian 12's) only.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case "${1:-}" in
  --check) mode=(--dry-run -Werror) ;;
  "") mode=(-i) ;;
  *)
    echo "usage: tools/format.sh [--check]" >&2
    exit 2
    ;;
esac

formatter=
for name in clang-format-14 clang-format; do
  if command -v "$name" >/dev/null && "$name" --version | grep -q 'version 14\.'; then
    formatter=$name
    break
  fi
done
if [ -z "$formatter" ]; then
  echo "format.sh: no clang-format of version 14 here (Debian 12: clang-format; Ubuntu 24.04: clang-format-14)" >&2
  exit 1
fi

folders=()
for folder in src tests; do
  if [ -d "$folder" ]; then folders+=("$folder"); fi
done
# A few files at a time and in parallel, so that all cores have work.
find "${folders[@]}" \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0 |
  xargs -0 -r -n 16 -P "$(nproc)" "$formatter" --style=file "${mode[@]}"
