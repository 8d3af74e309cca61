# CUDA::headers: cuda.h and cupti.h, types only. From the nvidia-cuda-* wheels of the
# build environment, else from the toolkit named by CUDA_HOME. Nothing is linked.
find_package(Python REQUIRED COMPONENTS Interpreter)
execute_process(
    COMMAND "${Python_EXECUTABLE}" -c
            "import nvidia; print(*nvidia.__path__, sep=';')"
    OUTPUT_VARIABLE nvidia_wheels
    OUTPUT_STRIP_TRAILING_WHITESPACE
    ERROR_QUIET
)
find_path(
    CUDA_INCLUDE_DIR
    NAMES cupti.h
    HINTS ${nvidia_wheels} ENV CUDA_HOME
    PATHS /usr/local/cuda
    PATH_SUFFIXES cu13/include include
    NO_CMAKE_FIND_ROOT_PATH
    REQUIRED
)
message(STATUS "CUDA headers: ${CUDA_INCLUDE_DIR}")

add_library(cuda_headers INTERFACE)
target_include_directories(cuda_headers SYSTEM INTERFACE "${CUDA_INCLUDE_DIR}")
add_library(CUDA::headers ALIAS cuda_headers)
