# Finds the PyTorch of the Python interpreter in use and defines the targets torch_cpp and torch_python.
# The libraries are named directly: torch's own CMake package would pull in every toolkit it was built with.
find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)

# Autoloading is off because the plugin itself may be installed, and half built.
execute_process(
  COMMAND "${CMAKE_COMMAND}" -E env TORCH_DEVICE_BACKEND_AUTOLOAD=0 "${Python_EXECUTABLE}" -c
    "import torch; print(torch.__path__[0], torch.__version__.split('+')[0], int(torch._C._GLIBCXX_USE_CXX11_ABI), sep=';')"
  OUTPUT_VARIABLE torch_facts OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE torch_missing)
if(torch_missing)
  message(FATAL_ERROR "${Python_EXECUTABLE} cannot import torch; install torch==2.13.0 into its environment first")
endif()
list(GET torch_facts 0 TORCH_DIR)
list(GET torch_facts 1 TORCH_VERSION)
list(GET torch_facts 2 TORCH_CXX11_ABI)
message(STATUS "torch ${TORCH_VERSION} in ${TORCH_DIR}")

add_library(torch_cpp INTERFACE)
target_include_directories(torch_cpp SYSTEM INTERFACE
  "${TORCH_DIR}/include" "${TORCH_DIR}/include/torch/csrc/api/include" "${TORCH_DIR}/include/kineto")
target_compile_definitions(torch_cpp INTERFACE _GLIBCXX_USE_CXX11_ABI=${TORCH_CXX11_ABI})
target_link_libraries(torch_cpp INTERFACE
  "${TORCH_DIR}/lib/libtorch.so" "${TORCH_DIR}/lib/libtorch_cpu.so" "${TORCH_DIR}/lib/libc10.so")

# Without OpenMP, the headers' parallel_for is a plain loop. The runtime must be PyTorch's own, or there were two pools of
# threads. The thread sanitizer does not see how its threads wait for each other, and so gets the plain loop.
if(NOT LAZYPLUG_SANITIZE STREQUAL "thread")
  file(GLOB TORCH_OPENMP "${TORCH_DIR}/lib/libgomp*.so*")
  if(NOT TORCH_OPENMP)
    message(FATAL_ERROR "${TORCH_DIR}/lib has no OpenMP runtime")
  endif()
  target_compile_options(torch_cpp INTERFACE -fopenmp)
  target_link_libraries(torch_cpp INTERFACE ${TORCH_OPENMP})
endif()

add_library(torch_python INTERFACE)
target_include_directories(torch_python SYSTEM INTERFACE ${Python_INCLUDE_DIRS})
target_link_libraries(torch_python INTERFACE torch_cpp "${TORCH_DIR}/lib/libtorch_python.so")
