# Build-wide settings: C++20, warnings as errors, sanitizers, compiler cache, fast linker.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, RelWithDebInfo or Debug" FORCE)
endif()

option(STAFFEL_BUILD_TESTS "Build the tests" ON)
option(STAFFEL_BUILD_BENCHMARKS "Build the benchmarks" ON)
option(STAFFEL_BUILD_FUZZERS "Build the libFuzzer targets (needs clang)" OFF)
option(STAFFEL_CUDA "Build the CUDA backend where the sources and the toolkit are there" OFF)
option(STAFFEL_WERROR "Treat warnings as errors" ON)
set(STAFFEL_SANITIZE "" CACHE STRING "Sanitizers of the build, e.g. address,undefined or thread")
option(STAFFEL_SANITIZE_KERNELS "Sanitize kernels/cpu too; without it a sanitized server runs real models at a useful speed" ON)

add_compile_options(-Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers)
if(STAFFEL_WERROR)
  add_compile_options(-Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC's flow analysis reports these inside inlined library code (Boost, Abseil), not in ours.
  add_compile_options(-Wno-maybe-uninitialized -Wno-stringop-overflow -Wno-array-bounds -Wno-restrict)
endif()

if(STAFFEL_SANITIZE)
  add_compile_options(-fsanitize=${STAFFEL_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${STAFFEL_SANITIZE})
  if(STAFFEL_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Asio has fences beside the locks that order the same accesses; TSan knows only the locks.
    add_compile_options(-Wno-tsan)
  endif()
  if(STAFFEL_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()

if(STAFFEL_BUILD_FUZZERS)
  # Coverage of all code, not only of the fuzz targets' own files, guides libFuzzer.
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

find_program(STAFFEL_CCACHE ccache)
if(STAFFEL_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Paths relative to the source tree and the PCH sloppiness let clones in other folders share one cache.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      ${STAFFEL_CCACHE})
endif()

find_program(STAFFEL_MOLD mold)
find_program(STAFFEL_LLD ld.lld)
if(STAFFEL_MOLD)
  add_link_options(-fuse-ld=mold)
elseif(STAFFEL_LLD AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  add_link_options(-fuse-ld=lld)
endif()
