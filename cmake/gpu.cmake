# The GPU back end: the .cu files, compiled by the vendor's compiler, or by the host's for the emulator.

file(GLOB_RECURSE CHIRON_KERNELS CONFIGURE_DEPENDS src/*.cu)
set(CHIRON_KERNEL_TESTS ${CHIRON_KERNELS})
list(FILTER CHIRON_KERNELS EXCLUDE REGEX "_test\\.cu$")
list(FILTER CHIRON_KERNEL_TESTS INCLUDE REGEX "_test\\.cu$")
target_compile_definitions(chiron_flags INTERFACE CHIRON_GPU)

# The kernels, as an object library that is linked into everything that links chiron_lib; and those that only tests
# run, as a second one. Both with these compile options.
function(chiron_add_kernels target)
  add_library(${target} OBJECT ${CHIRON_KERNELS})
  target_link_libraries(${target} PUBLIC chiron_flags ${FMT_LIBRARY})
  target_compile_options(${target} PRIVATE ${ARGN})
  if(CHIRON_TESTS)
    add_library(${target}_tests OBJECT ${CHIRON_KERNEL_TESTS})
    target_link_libraries(${target}_tests PUBLIC chiron_flags ${FMT_LIBRARY} GTest::gtest)
    target_compile_options(${target}_tests PRIVATE ${ARGN})
  endif()
endfunction()

if(CHIRON_GPU STREQUAL "emu")
  # One build per number of lanes; the second is for tests only.
  set_source_files_properties(${CHIRON_KERNELS} ${CHIRON_KERNEL_TESTS} PROPERTIES LANGUAGE CXX
    COMPILE_OPTIONS "-xc++;-Wno-unknown-pragmas")
  find_library(BOOST_CONTEXT_LIBRARY NAMES boost_context REQUIRED)
  foreach(lanes 32 64)
    chiron_add_kernels(chiron_gpu_emu${lanes} -DCHIRON_EMU_LANES=${lanes})
    target_link_libraries(chiron_gpu_emu${lanes} PUBLIC ${BOOST_CONTEXT_LIBRARY})
  endforeach()
  add_library(chiron_gpu ALIAS chiron_gpu_emu32)
  if(CHIRON_TESTS)
    add_library(chiron_gpu_tests ALIAS chiron_gpu_emu32_tests)
  endif()
elseif(CHIRON_GPU STREQUAL "cuda")
  set(CMAKE_CUDA_ARCHITECTURES "${CHIRON_CUDA_ARCHITECTURES}")
  enable_language(CUDA)
  find_package(CUDAToolkit 12.4 REQUIRED)
  # fmt's checks of format strings while compiling are beyond the compiler, and it does not know that constexpr is not;
  # 20208: it uses long double.
  set(options --expt-relaxed-constexpr -DFMT_CONSTEVAL= -DFMT_USE_CONSTEXPR=1 -diag-suppress=20208)
  if(CHIRON_PORTABLE AND CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.8)
    list(APPEND options -compress-mode=size)
  endif()
  # CMake 3.25 cannot set C++20 for CUDA, and insists on the standard that is required of C++.
  chiron_add_kernels(chiron_gpu -std=c++20 ${options})
  foreach(library chiron_gpu chiron_gpu_tests)
    if(TARGET ${library})
      set_target_properties(${library} PROPERTIES CXX_STANDARD_REQUIRED OFF)
    endif()
  endforeach()
  if(CHIRON_TESTS)
    target_compile_options(chiron_gpu_tests PRIVATE -diag-suppress=177)  # GoogleTest's macros declare what nobody reads
  endif()
  target_link_libraries(chiron_gpu PUBLIC CUDA::cudart_static)
elseif(CHIRON_GPU STREQUAL "hip")
  set(CMAKE_HIP_ARCHITECTURES "${CHIRON_HIP_ARCHITECTURES}")
  enable_language(HIP)
  find_package(hip REQUIRED)
  set_source_files_properties(${CHIRON_KERNELS} ${CHIRON_KERNEL_TESTS} PROPERTIES LANGUAGE HIP)
  # The instruction sets of the host's loops are unknown to the device.
  chiron_add_kernels(chiron_gpu -std=c++20 -Wno-ignored-attributes)
  target_link_libraries(chiron_gpu PUBLIC hip::host)
else()
  message(FATAL_ERROR "CHIRON_GPU is ${CHIRON_GPU}: it is one of none, cuda, hip, emu")
endif()
