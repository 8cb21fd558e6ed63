#!/usr/bin/env bash
# Compiles every header of src/ alone: each must bring what it needs.
#   tools/check_headers.sh [ROOT]     exit code 1 if one does not
# Through ccache where there is one, so that only changed headers cost anything. CXX names another compiler than g++.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
root=$(cd "${1:-$here}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

compiler=("${CXX:-g++}")
if command -v ccache >/dev/null; then compiler=(ccache "${compiler[@]}"); fi
# Device code as the emulator has it. What fulfils gpu.h for a vendor is part of it and does not stand alone.
flags=(-std=c++20 -O0 -Wall -Wextra -Werror -Wno-psabi -Wno-missing-field-initializers -DCHIRON_EMU_LANES=32
  -I "$root/src")
# BLIS lies in a folder of its own on Debian.
for folder in /usr/include/*/blis-openmp /usr/include/blis; do
  if [ -d "$folder" ]; then flags+=(-isystem "$folder"); fi
done

cd "$root/src"
find . -name '*.h' ! -path './gpu/gpu_*.h' ! -path ./gpu/vendor_launch.h -print0 | sort -z >"$work/headers"
cd "$work"
while IFS= read -r -d '' header; do
  header=${header#./}
  printf '#include "%s"\n' "$header" >"${header//\//+}.cpp"
done <headers
count=$(tr -dc '\0' <headers | wc -c)
if [ "$count" -eq 0 ]; then
  echo "check_headers: no header in $root/src" >&2
  exit 1
fi

# Names are relative to $work, so that the cache knows them again in the next, differently named one.
# shellcheck disable=SC2016
if ! printf '%s\0' ./*.cpp |
  xargs -0 -n 1 -P "$(nproc)" bash -c '"${@:1:$#-1}" -c "${!#}" -o "${!#}.o"' _ "${compiler[@]}" "${flags[@]}"; then
  echo "check_headers: a header does not compile alone, see above" >&2
  exit 1
fi
echo "check_headers: $count headers, each compiles alone"
