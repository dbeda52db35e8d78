# One GoogleTest binary test_<folder> per folder of test/cpp. Each links its own layer and those below only, so that a
# test cannot depend on code above the layer it tests.
find_package(GTest QUIET)
if(NOT GTest_FOUND)
  message(FATAL_ERROR "GoogleTest not found: install the system package libgtest-dev, or set LAZYPLUG_BUILD_TESTS=OFF")
endif()

function(add_cpp_tests folder)
  lazyplug_sources(test/cpp/${folder} sources)
  if(NOT sources)
    return()
  endif()
  add_executable(test_${folder} ${sources})
  target_link_libraries(test_${folder} PRIVATE ${ARGN} torch_cpp GTest::gtest GTest::gtest_main)
  reuse_precompiled_header(test_${folder})
  # Helpers of the tests of kernels/ are few, and have the same names in several.
  if(NOT folder STREQUAL "kernels")
    compile_in_batches(test_${folder} "${sources}")
  endif()
  add_test(NAME ${folder} COMMAND test_${folder})
endfunction()

add_cpp_tests(common lazyplug_common)
add_cpp_tests(device lazyplug_device lazyplug_common)
add_cpp_tests(kernels lazyplug_kernels lazyplug_common)
add_cpp_tests(lowering lazyplug_lowering lazyplug_kernels lazyplug_common)
add_cpp_tests(backend torch_lazyplug)

# Not a test: minutes for each function of kernels/vector_math.h. See docs/accuracy.md.
add_executable(accuracy EXCLUDE_FROM_ALL tools/accuracy.cpp)
target_link_libraries(accuracy PRIVATE lazyplug_kernels lazyplug_common torch_cpp)
reuse_precompiled_header(accuracy)
