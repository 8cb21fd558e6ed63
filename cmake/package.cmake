# `cpack` in the folder of the portable build writes a tar.gz of what another machine needs: the program, its tests, and
# the files that both look for. It is laid out as the repository, so that README and scripts hold there too.

cmake_path(GET CHIRON_PROGRAM PARENT_PATH CHIRON_PROGRAM_FOLDER)
install(TARGETS chiron DESTINATION ${CHIRON_PROGRAM_FOLDER})
if(TARGET chiron_mpi)
  install(TARGETS chiron_mpi DESTINATION ${CHIRON_PROGRAM_FOLDER})
endif()
if(CHIRON_TESTS)
  install(PROGRAMS ${CMAKE_BINARY_DIR}/chiron_tests DESTINATION ${CHIRON_PROGRAM_FOLDER})
  install(DIRECTORY tests/golden DESTINATION tests)
endif()
install(PROGRAMS chiron DESTINATION .)
install(PROGRAMS tools/gpu_check.sh DESTINATION tools)
install(DIRECTORY configs docs DESTINATION .)
install(FILES README.md CHANGELOG.md LICENSE DESTINATION .)

set(CPACK_GENERATOR TGZ)
set(CPACK_PACKAGE_FILE_NAME chiron-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR}-${CHIRON_GPU})
set(CPACK_INCLUDE_TOPLEVEL_DIRECTORY ON)
include(CPack)
