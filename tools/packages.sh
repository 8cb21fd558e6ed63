#!/usr/bin/env bash
# The packages that Chiron needs (names of Debian 12 and Ubuntu 24.04), and their installation.
#   tools/packages.sh GROUP...           installs what is missing; with nothing missing it does nothing, offline too
#   tools/packages.sh --list GROUP...    prints the names
# Groups: build (the program), mpi (several CPU processes as ranks; the program builds without), test (its tests),
# check (format and lint), emulator (GPU kernels on the host, for tests), amd (compiling for AMD without ROCm), text
# (something to read for quickstart.sh).
set -euo pipefail

# group  package  how to see that it is there: a command, or headers of which one is enough
table='
build  cmake                command:cmake
build  ninja-build          command:ninja
build  g++                  command:g++
build  ccache               command:ccache
build  libyaml-cpp-dev      header:yaml-cpp/yaml.h
build  libcli11-dev         header:CLI/CLI.hpp
build  libfmt-dev           header:fmt/format.h
build  nlohmann-json3-dev   header:nlohmann/json.hpp
build  libpcre2-dev         header:pcre2.h
build  libxxhash-dev        header:xxhash.h
build  libblis-openmp-dev   header:blis-openmp/blis.h,blis/blis.h
mpi    libopenmpi-dev       command:mpicxx
mpi    openmpi-bin          command:mpirun
test   libgtest-dev         header:gtest/gtest.h
test   libgmock-dev         header:gmock/gmock.h
test   python3              command:python3
check  clang-format         command:clang-format
check  mandoc               command:mandoc
check  shellcheck           command:shellcheck
emulator  libboost-context-dev  header:boost/context/fiber.hpp
amd    clang-19             command:clang++-19
amd    lld-19               command:ld.lld-19
text   bible-kjv            command:bible
'

usage() {
  echo "usage: tools/packages.sh [--list] build|mpi|test|check|emulator|amd|text ..." >&2
  exit 2
}

list=no
if [ "${1:-}" = --list ]; then
  list=yes
  shift
fi
[ $# -gt 0 ] || usage
for group in "$@"; do
  case "$group" in build | mpi | test | check | emulator | amd | text) ;; *) usage ;; esac
done

has_header() { # one of the comma-separated headers is there
  local header
  command -v g++ >/dev/null || return 1
  for header in ${1//,/ }; do
    if printf '#if !__has_include(<%s>)\n#error\n#endif\n' "$header" | g++ -E -x c++ - >/dev/null 2>&1; then
      return 0
    fi
  done
  return 1
}

missing=()
while read -r group package probe; do
  case " $* " in *" $group "*) ;; *) continue ;; esac
  if [ "$list" = yes ]; then
    echo "$package"
    continue
  fi
  case "$probe" in
    command:*) command -v "${probe#command:}" >/dev/null || missing+=("$package") ;;
    header:*) has_header "${probe#header:}" || missing+=("$package") ;;
  esac
done < <(printf '%s' "$table" | sed '/^$/d')

[ ${#missing[@]} -gt 0 ] || exit 0

by_hand() {
  echo "chiron: $1" >&2
  echo "chiron: these packages are missing (names of Debian 12 and Ubuntu 24.04): ${missing[*]}" >&2
  echo "chiron: $2" >&2
  exit 1
}

if ! command -v apt-get >/dev/null; then
  by_hand "this system has no apt-get, so nothing can be installed for you." \
    "install them with your system's package manager, then start again."
fi
as_root=()
if [ "$(id -u)" != 0 ]; then
  if ! command -v sudo >/dev/null; then
    by_hand "packages are installed by root, and there is no sudo." \
      "as root: apt-get install ${missing[*]}"
  fi
  as_root=(sudo)
fi

echo "Installing with apt-get${as_root[0]:+ and sudo}: ${missing[*]}"
install() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -q --no-install-recommends "${missing[@]}" </dev/null
}
refresh() { "${as_root[@]}" apt-get update -q </dev/null; }

# The lists of packages are read anew only if they lack a name, or name files that are gone.
known=yes
for package in "${missing[@]}"; do
  apt-cache show "$package" >/dev/null 2>&1 || known=no
done
if [ "$known" = yes ] && install; then exit 0; fi
if refresh && install; then exit 0; fi
by_hand "apt-get could not install them; its messages stand above. Is there a network?" \
  "install them by hand, then start again."
