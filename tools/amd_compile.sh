#!/usr/bin/env bash
# Compiles the GPU sources for AMD on a machine that has neither an AMD GPU nor ROCm: each .cu for gfx942, and the
# half of each that runs on the host; those without tiles of matrices (attention, products) also for gfx90a, and for
# gfx1100 with 32 lanes.
#   tools/amd_compile.sh [FILE.cu...]     all of src/ if none is named; exit code 1 if one does not compile
# Needs clang-19 and lld-19, which it installs (tools/packages.sh amd), and HIP's and hipBLASLt's headers and AMD's
# device library from newer Debian suites, which it unpacks under build/amd and never installs. Where those cannot be
# had it prints 'AMD compile: not run (NAME)' and ends with 0. Objects lie in build/amd/objects.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

work=build/amd
packages=(libamdhip64-dev libhipblaslt-dev libhipblas-common-dev rocm-device-libs-17)

not_run() { # NAME
  echo "AMD compile: not run ($1)"
  exit 0
}

tools/packages.sh amd || not_run "clang-19, lld-19"

# Debian's archive as this machine's apt knows it, in the suites that have the packages. The archive of security updates
# has no such suites.
write_sources() {
  awk -v RS= '/^Types:[^\n]*deb/ && /\nURIs:[^\n]*\/debian\/?(\n|$)/ && !printed {
    gsub(/\nSuites:[^\n]*/, "\nSuites: trixie forky sid"); print; printed = 1 }' \
    /etc/apt/sources.list.d/*.sources 2>/dev/null >"$1/debian.sources" || true
  if [ -s "$1/debian.sources" ]; then return 0; fi
  rm "$1/debian.sources"
  local line
  line=$(grep -hE '^deb (\[[^]]*\] )?[^ ]*/debian/? ' /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null |
    head -n 1) || return 1
  for suite in trixie forky sid; do
    sed -E "s#^(deb (\[[^]]*\] )?[^ ]+) .*#\1 $suite main#" <<<"$line"
  done >"$1/debian.list"
}

fetch() { # into $work/root
  local apt=$work/apt name
  command -v apt-get >/dev/null || not_run apt-get
  rm -rf "$apt" "$work/root"
  mkdir -p "$apt"/{parts,lists/partial,cache/archives/partial,debs} "$work/root"
  write_sources "$apt/parts" || not_run "no Debian archive in apt's sources"
  local options=(-q -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$PWD/$apt/parts"
    -o "Dir::State::Lists=$PWD/$apt/lists" -o "Dir::Cache=$PWD/$apt/cache" -o APT::Sandbox::User=root
    -o Acquire::Languages=none -o Acquire::Retries=2 -o Acquire::http::Timeout=60)
  timeout 600 apt-get "${options[@]}" update </dev/null || not_run "lists of newer suites"
  for name in "${packages[@]}"; do
    (cd "$apt/debs" && timeout 300 apt-get "${options[@]}" download "$name" </dev/null) || not_run "$name"
  done
  for name in "$apt"/debs/*.deb; do dpkg -x "$name" "$work/root"; done
  rm -rf "$apt"
  touch "$work/root/complete"
}
[ -e "$work/root/complete" ] || fetch

device_library=$(dirname "$(find "$work/root" -name ocml.bc | head -n 1)")
compiler=(clang++-19)
if command -v ccache >/dev/null; then compiler=(ccache "${compiler[@]}"); fi
# What hipcc would add by itself; then the project's own flags.
flags=(-x hip -nogpuinc -include __clang_hip_runtime_wrapper.h -D__HIP_PLATFORM_AMD__
  "--rocm-device-lib-path=$device_library" -isystem "$work/root/usr/include"
  -isystem "$(clang++-19 -print-resource-dir)/include"
  -std=c++20 -O2 -DCHIRON_GPU -Isrc -Wall -Wextra -Werror -Wno-missing-field-initializers
  # The host's vectors are unknown to the device.
  -Wno-ignored-attributes)

if [ $# -gt 0 ]; then sources=("$@"); else mapfile -t sources < <(find src -name '*.cu' | sort); fi
jobs=()
for source in "${sources[@]}"; do
  targets=(host gfx942)
  case "$source" in
    */ops/attention/* | */ops/gemm/* | */fragment*) ;;
    *) targets+=(gfx90a gfx1100) ;;
  esac
  for target in "${targets[@]}"; do jobs+=("$target" "$source"); done
done

compile() { # TARGET SOURCE COMPILER...
  local target=$1 source=$2 object
  shift 2
  object=build/amd/objects/$target/${source%.cu}.o
  mkdir -p "$(dirname "$object")"
  local half=(--offload-device-only --no-gpu-bundle-output "--offload-arch=$target")
  if [ "$target" = host ]; then half=(--offload-host-only); fi
  "$@" "${half[@]}" -c "$source" -o "$object" || {
    echo "amd_compile: $source does not compile for $target" >&2
    return 1
  }
}
export -f compile

# shellcheck disable=SC2016
printf '%s\0' "${jobs[@]}" | xargs -0 -n 2 -P "$(nproc)" bash -c 'compile "${@:$#-1}" "${@:1:$#-2}"' _ \
  "${compiler[@]}" "${flags[@]}" || {
  echo "AMD compile: failed, see above" >&2
  exit 1
}
echo "AMD compile: ${#sources[@]} files, $((${#jobs[@]} / 2)) objects for the host, gfx942, gfx90a, gfx1100"
