# The GPU back end: the .cu files, compiled by the vendor's compiler, or by the host's for the emulator.

file(GLOB_RECURSE CHIRON_KERNELS CONFIGURE_DEPENDS src/*.cu)
target_compile_definitions(chiron_flags INTERFACE CHIRON_GPU)

# The kernels, as an object library that is linked into everything that links chiron_lib.
function(chiron_add_kernels target)
  add_library(${target} OBJECT ${CHIRON_KERNELS})
  target_link_libraries(${target} PUBLIC chiron_flags)
endfunction()

if(CHIRON_GPU STREQUAL "emu")
  # One build per number of lanes; the second is for tests only.
  set_source_files_properties(${CHIRON_KERNELS} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-xc++;-Wno-unknown-pragmas")
  find_library(BOOST_CONTEXT_LIBRARY NAMES boost_context REQUIRED)
  foreach(lanes 32 64)
    chiron_add_kernels(chiron_gpu_emu${lanes})
    target_compile_definitions(chiron_gpu_emu${lanes} PRIVATE CHIRON_EMU_LANES=${lanes})
    target_link_libraries(chiron_gpu_emu${lanes} PUBLIC ${BOOST_CONTEXT_LIBRARY})
  endforeach()
  add_library(chiron_gpu ALIAS chiron_gpu_emu32)
elseif(CHIRON_GPU STREQUAL "cuda")
  enable_language(CUDA)
  find_package(CUDAToolkit 12.4 REQUIRED)
  # CMake 3.25 cannot set C++20 for CUDA.
  add_compile_options($<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>)
  chiron_add_kernels(chiron_gpu)
  set_target_properties(chiron_gpu PROPERTIES CUDA_ARCHITECTURES "${CHIRON_CUDA_ARCHITECTURES}")
  target_compile_options(chiron_gpu PRIVATE --expt-relaxed-constexpr)
  # fmt's checks of format strings while compiling are beyond the compiler, and it does not know that constexpr is not.
  target_compile_definitions(chiron_gpu PRIVATE FMT_CONSTEVAL= FMT_USE_CONSTEXPR=1)
  target_link_libraries(chiron_gpu PUBLIC CUDA::cudart_static)
else()
  message(FATAL_ERROR "CHIRON_GPU is ${CHIRON_GPU}: it is one of none, cuda, hip, emu")
endif()
