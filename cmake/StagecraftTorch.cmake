# LibTorch from the wheel in .venv (or STAGECRAFT_VENV), CPU libraries only: a CPU rank starts twice as fast and holds a
# third of the memory. What needs CUDA or NCCL is a module of its own.
# Remembered in the cache, so that a reconfiguration by ninja needs no environment.
if(DEFINED ENV{STAGECRAFT_VENV})
  set(STAGECRAFT_VENV $ENV{STAGECRAFT_VENV} CACHE PATH "Python environment whose torch is linked" FORCE)
else()
  set(STAGECRAFT_VENV ${CMAKE_SOURCE_DIR}/.venv CACHE PATH "Python environment whose torch is linked")
endif()
set(venv ${STAGECRAFT_VENV})
execute_process(COMMAND ${venv}/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))"
  OUTPUT_VARIABLE STAGECRAFT_SITE_PACKAGES OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
if(failed OR NOT EXISTS ${STAGECRAFT_SITE_PACKAGES}/torch/lib/libtorch_cpu.so)
  message(FATAL_ERROR "No LibTorch in ${venv}: run tools/setup.sh, or name an environment with torch==2.11.0 in STAGECRAFT_VENV.")
endif()
set(STAGECRAFT_PYTHON ${venv}/bin/python)
set(torch_dir ${STAGECRAFT_SITE_PACKAGES}/torch)
add_library(stagecraft_libtorch INTERFACE)
target_include_directories(stagecraft_libtorch SYSTEM INTERFACE
  ${torch_dir}/include ${torch_dir}/include/torch/csrc/api/include)
target_link_libraries(stagecraft_libtorch INTERFACE ${torch_dir}/lib/libtorch_cpu.so ${torch_dir}/lib/libc10.so)
# The wheel's headers bring their own fmt, newer than the system's library: header-only where they come first.
target_compile_definitions(stagecraft_libtorch INTERFACE FMT_HEADER_ONLY=1)
if(CMAKE_CXX_COMPILER_ID STREQUAL Clang)  # clang 18 names constrained templates in a way that g++ 12, which built the wheel, does not
  target_compile_options(stagecraft_libtorch INTERFACE -fclang-abi-compat=17)
endif()
target_link_options(stagecraft_libtorch INTERFACE -Wl,-rpath,${torch_dir}/lib -Wl,--allow-shlib-undefined)

# One precompiled header for all LibTorch code.
file(WRITE ${CMAKE_BINARY_DIR}/torch_pch.cc "// Carries the precompiled header.\n")
add_library(stagecraft_torch_pch STATIC ${CMAKE_BINARY_DIR}/torch_pch.cc)
target_link_libraries(stagecraft_torch_pch PRIVATE stagecraft_libtorch)
target_precompile_headers(stagecraft_torch_pch PRIVATE
  <ATen/ATen.h> <torch/csrc/autograd/autograd.h> <torch/csrc/autograd/custom_function.h> <torch/csrc/autograd/engine.h>)
stagecraft_warnings(stagecraft_torch_pch)

function(stagecraft_use_torch target)
  target_link_libraries(${target} PUBLIC stagecraft_libtorch)
  target_precompile_headers(${target} REUSE_FROM stagecraft_torch_pch)
endfunction()
