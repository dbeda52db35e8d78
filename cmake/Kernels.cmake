# kernels/: their loops are compiled once for each target, without the precompiled header, which has other options.
add_folder(kernels)

function(add_tile_loops target)
  set(name lazyplug_loops_${target})
  set(source "${CMAKE_BINARY_DIR}/tile_loops_${target}.cpp")
  file(CONFIGURE OUTPUT "${source}" CONTENT "#include \"kernels/tile_loops.inc.cpp\"\n")
  add_library(${name} OBJECT "${source}")
  target_link_libraries(${name} PUBLIC torch_cpp)
  target_compile_definitions(${name} PRIVATE LAZYPLUG_TARGET=${target})
  # No contraction: where the CPU's kernels multiply and add at once, the loops say so. Functions that pass vectors wider
  # than the target's are local. Where a loop lies in its cache lines, a few percent, is left to no other code's size.
  target_compile_options(${name} PRIVATE -Wno-psabi -O3 -falign-functions=64 -fno-math-errno -fno-trapping-math -ffp-contract=off ${ARGN})
  set_source_files_properties("${source}" PROPERTIES OBJECT_DEPENDS "${CMAKE_SOURCE_DIR}/kernels/tile_loops.inc.cpp")
  target_sources(lazyplug_kernels INTERFACE $<TARGET_OBJECTS:${name}>)
endfunction()

add_tile_loops(default_target)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_definitions(lazyplug_kernels PRIVATE LAZYPLUG_X86_KERNELS)
  add_tile_loops(avx2 -mavx2 -mfma -mf16c)
  # Machine code for single programs, where its headers are (Debian: libxbyak-dev).
  find_path(XBYAK_INCLUDE_DIR xbyak/xbyak.h)
  if(XBYAK_INCLUDE_DIR)
    target_compile_definitions(lazyplug_kernels PRIVATE LAZYPLUG_XBYAK)
    target_include_directories(lazyplug_kernels SYSTEM PRIVATE "${XBYAK_INCLUDE_DIR}")
  else()
    message(STATUS "Xbyak not found: no machine code for single programs of pointwise ops")
  endif()
  add_tile_loops(avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c -mprefer-vector-width=512)
endif()
