#!/usr/bin/env bash
# The CMake preset for this machine, with arguments for the GPUs at hand, on one line; why, on stderr.
#   tools/preset.sh     cuda where there are an NVIDIA GPU and nvcc, hip where there are an AMD GPU and hipcc, else cpu
set -euo pipefail

cpu() {
  echo "Building for the CPU: $*." >&2
  echo cpu
  exit 0
}

if nvidia=$(nvidia-smi --query-gpu=name,compute_cap --format=csv,noheader 2>/dev/null) && [ -n "$nvidia" ]; then
  name=${nvidia%%,*}
  nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null) ||
    cpu "there is an $name, but no nvcc; the CUDA toolkit 12.4 or newer has it"
  release=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')
  if [ "$(printf '%s\n' 12.4 "$release" | sort -V | head -n 1)" != 12.4 ]; then
    cpu "there is an $name, but $nvcc is of CUDA $release, and 12.4 is needed"
  fi
  # Only for the GPUs of this machine: a fifth of the work. 9.0 has instructions of its own, under the name 90a.
  targets=$(cut -d, -f2 <<<"$nvidia" | tr -d ' .' | sed 's/^90$/90a/; s/$/-real/' | sort -u | paste -sd ';')
  echo "Building for the CPU and the GPUs of this machine: $name ($targets)." >&2
  echo "cuda -DCHIRON_CUDA_ARCHITECTURES=$targets -DCMAKE_CUDA_COMPILER=$nvcc"
elif [ -e /dev/kfd ] && command -v hipcc >/dev/null; then
  echo "Building for the CPU and AMD GPUs." >&2
  echo hip
elif [ -e /dev/kfd ]; then
  cpu "there is an AMD GPU, but no hipcc; ROCm has it"
else
  cpu "no GPU was found"
fi
