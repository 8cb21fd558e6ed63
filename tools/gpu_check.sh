#!/usr/bin/env bash
# Runs everything that needs a GPU, within 9 minutes: the tests of suites Gpu*, `chiron check` on the reference models,
# and, with NVIDIA's compute-sanitizer, memcheck, racecheck and initcheck on the smallest case of each op and dtype.
#   tools/gpu_check.sh [FOLDER]     FOLDER has chiron and chiron_tests; build/cuda, build/hip or build/cuda-portable
# Needs no build tools. CUDA's libraries may also be those of Python packages (nvidia/*/lib). Prints a table last; exit
# code 1 if anything failed.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
limit=540

programs=${1:-}
for preset in cuda hip cuda-portable; do
  if [ -z "$programs" ] && [ -x "$root/build/$preset/chiron_tests" ]; then programs=$root/build/$preset; fi
done
if ! [ -x "${programs:-}/chiron" ] || ! [ -x "$programs/chiron_tests" ]; then
  echo "gpu_check: no chiron and chiron_tests in ${programs:-build/cuda, build/hip or build/cuda-portable}" >&2
  echo "gpu_check: build them (cmake --preset cuda && cmake --build --preset cuda), or name their folder" >&2
  exit 2
fi
programs=$(cd "$programs" && pwd)

# The portable build's tests look for the program and for the repository's files from the folder they are started in.
work=$(mktemp -d)
mkdir -p "$work/run/build"
for name in tests configs docs; do ln -s "$root/$name" "$work/run/$name"; done
ln -s "$programs" "$work/run/build/cuda-portable"
cd "$work/run"

libraries=$(python3 -c 'import glob, sys
print(":".join(folder for entry in sys.path if entry for folder in sorted(glob.glob(entry + "/nvidia/*/lib"))))' \
  2>/dev/null || true)
for folder in /usr/local/cuda/lib64 "$libraries"; do
  if [ -n "$folder" ]; then export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder"; fi
done

table=''
failed=0
row() { # NAME RESULT SECONDS NOTE
  table+=$(printf '%-24s %-8s %5s s  %s' "$@")$'\n'
}
step() { # NAME COMMAND...   sets status, and log to where its output went
  local name=$1 start=$SECONDS
  shift
  log=$work/${name// /_}.log
  status=0
  echo "== $name"
  if [ $((limit - SECONDS)) -lt 1 ]; then
    echo "no time left" >"$log"
    status=124
  else
    timeout "$((limit - SECONDS))" "$@" >"$log" 2>&1 </dev/null || status=$?
  fi
  took=$((SECONDS - start))
  if [ "$status" -ne 0 ]; then tail -n 40 "$log"; fi
}
finish() { # NAME NOTE   the row of a step that failed or not
  if [ "$status" -eq 0 ]; then
    row "$1" ok "$took" "$2"
  else
    failed=1
    if [ "$status" -eq 124 ]; then row "$1" FAILED "$took" "took too long"; else row "$1" FAILED "$took" "$2"; fi
  fi
}
count() { # PATTERN   what a test program says of itself, as in "[  PASSED  ] 12 tests."
  sed -n "s/^\[  $1 *\] \([0-9]*\) tests\{0,1\}[.,].*/\1/p" "$log" | head -n 1
}

"$programs/chiron" doctor || true

step 'GPU tests' "$programs/chiron_tests" --gtest_filter='Gpu*:*/Gpu*' --gtest_brief=0
passed=$(count PASSED)
skipped=$(count SKIPPED)
wrong=$(count FAILED)
if [ "$status" -eq 0 ] && [ "${passed:-0}" -eq 0 ]; then
  status=1
  grep -m 1 -iE 'no gpu' "$log" || true
fi
grep -E '^\[  FAILED  \] [^0-9]' "$log" | sort -u || true
grep -E -A 1 'Skipped$' "$log" | grep -vE 'Skipped$|^--' | sort | uniq -c || true
finish 'GPU tests' "${passed:-0} passed, ${skipped:-0} skipped, ${wrong:-0} failed"

for folder in tests/golden/*/; do
  name=$(basename "$folder")
  step "check $name" "$programs/chiron" check "$folder" --against "${folder}expected.safetensors" --device gpu
  finish "check $name" "$(tail -n 1 "$log" | cut -c 1-60)"
done

sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null || true)
for tool in memcheck racecheck initcheck; do
  if [ -z "$sanitizer" ]; then
    row "$tool" 'not run' 0 'there is no compute-sanitizer'
    continue
  fi
  step "$tool" "$sanitizer" --tool "$tool" --error-exitcode 9 "$programs/chiron_tests" \
    --gtest_filter='*GpuOps.SmallestCase*'
  if grep -q 'Device not supported' "$log"; then
    row "$tool" 'not run' "$took" 'compute-sanitizer does not support this device here'
    continue
  fi
  if [ "$status" -eq 0 ] && [ "$(count PASSED)" -eq 0 ]; then status=1; fi
  finish "$tool" "$(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$log" | tail -n 1 | sed 's/^=* *//')"
done

printf '\n%s\n' "$table"
if [ "$failed" -ne 0 ]; then
  echo "gpu_check: FAILED after $SECONDS s; what each step printed is in $work"
  exit 1
fi
echo "gpu_check: passed in $SECONDS s"
rm -rf "$work"
