# Language level, warnings, optimisation, sanitizers and the compiler cache, the same for every target.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release or Debug" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1 -DNDEBUG")

# -fPIC everywhere, executables included, so that all targets can share one precompiled header.
add_compile_options(-fPIC -Wall -Wextra)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports c10::SmallVector wherever it is inlined.
  add_compile_options(-Wno-maybe-uninitialized)
endif()
include_directories("${CMAKE_SOURCE_DIR}")

if(LAZYPLUG_SANITIZE)
  if(NOT LAZYPLUG_SANITIZE MATCHES "^(address|undefined|address\\+undefined|thread)$")
    message(FATAL_ERROR "LAZYPLUG_SANITIZE is '${LAZYPLUG_SANITIZE}'; expected address, undefined, both with a + between them, or thread")
  endif()
  string(REPLACE "+" "," sanitizers "${LAZYPLUG_SANITIZE}")
  # Half of the build time of -O2, and no slower where libtorch does the work.
  add_compile_options(-fsanitize=${sanitizers} -fno-omit-frame-pointer -O1)
  add_link_options(-fsanitize=${sanitizers})
  # These see classes whose type information libtorch does not export, which the check of dynamic types needs.
  set_source_files_properties(lowering/lowering_context.cpp test/cpp/lowering/calls/test_batch_norm_kernel.cpp
    test/cpp/lowering/calls/test_convolution_kernel.cpp
    test/cpp/lowering/nodes/test_copy_kernel.cpp
    test/cpp/lowering/calls/test_distance_kernel.cpp test/cpp/lowering/nodes/test_draw_kernel.cpp
    test/cpp/lowering/nodes/test_exact_kernels.cpp test/cpp/lowering/nodes/test_extreme_kernel.cpp
    test/cpp/lowering/calls/test_image_kernels.cpp test/cpp/lowering/calls/test_indexed_rows.cpp
    test/cpp/lowering/nodes/test_node_attributes.cpp
    test/cpp/lowering/nodes/test_product_kernel.cpp test/cpp/lowering/calls/test_small_calls.cpp
    test/cpp/lowering/calls/test_small_extreme.cpp
    test/cpp/lowering/calls/test_small_product.cpp test/cpp/lowering/nodes/test_sum_kernel.cpp
    PROPERTIES COMPILE_OPTIONS -fno-sanitize=vptr)
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # Without this sloppiness ccache refuses to cache anything that uses a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env
    "CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime" "${CCACHE_PROGRAM}")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-fpch-preprocess)
  endif()
endif()
