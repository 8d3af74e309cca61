#include "call.h"

// What each CUresult is called and means, for those that occur here.
#define SIMGPU_RESULTS(X)                                                          \
  X(CUDA_SUCCESS, "no error")                                                      \
  X(CUDA_ERROR_INVALID_VALUE, "invalid argument")                                  \
  X(CUDA_ERROR_OUT_OF_MEMORY, "out of memory")                                     \
  X(CUDA_ERROR_NOT_INITIALIZED, "initialization error")                            \
  X(CUDA_ERROR_DEINITIALIZED, "driver shutting down")                              \
  X(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected")                    \
  X(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal")                           \
  X(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid")                    \
  X(CUDA_ERROR_INVALID_CONTEXT, "invalid device context")                          \
  X(CUDA_ERROR_MAP_FAILED, "mapping of buffer object failed")                      \
  X(CUDA_ERROR_UNMAP_FAILED, "unmapping of buffer object failed")                  \
  X(CUDA_ERROR_ALREADY_MAPPED, "resource already mapped")                          \
  X(CUDA_ERROR_NOT_MAPPED, "resource not mapped")                                  \
  X(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image for execution on the device")   \
  X(CUDA_ERROR_INVALID_PTX, "a PTX compilation failed")                            \
  X(CUDA_ERROR_FILE_NOT_FOUND, "file not found")                                   \
  X(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle")                          \
  X(CUDA_ERROR_ILLEGAL_STATE, "operation in an illegal state")                     \
  X(CUDA_ERROR_NOT_FOUND, "named symbol not found")                                \
  X(CUDA_ERROR_NOT_READY, "device not ready")                                      \
  X(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered")        \
  X(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch") \
  X(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed")                       \
  X(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "memory is already registered")     \
  X(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "memory is not registered")             \
  X(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure")                        \
  X(CUDA_ERROR_NOT_PERMITTED, "operation not permitted")                           \
  X(CUDA_ERROR_NOT_SUPPORTED, "operation not supported")                           \
  X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,                                         \
    "operation not permitted when a stream is capturing")                          \
  X(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,                                         \
    "operation failed due to a previous error during capture")                     \
  X(CUDA_ERROR_STREAM_CAPTURE_MERGE, "operation would merge two captures")         \
  X(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not begun in this stream")   \
  X(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "a forked stream was not joined")          \
  X(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "a dependency would cross the capture")   \
  X(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,                                            \
    "a dependency on the default stream is not allowed in a capture")              \
  X(CUDA_ERROR_CAPTURED_EVENT, "operation not permitted on a captured event")      \
  X(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "capture was begun by another thread") \
  X(CUDA_ERROR_UNKNOWN, "unknown error")

namespace simgpu {
namespace {

struct Description {
  const char* name;
  const char* text;
};

Description describe(CUresult result) {
  switch (result) {
#define SIMGPU_CASE(code, text) \
  case code:                    \
    return {#code, text};
    SIMGPU_RESULTS(SIMGPU_CASE)
#undef SIMGPU_CASE
    default:
      return {nullptr, nullptr};
  }
}

CUresult answer(const char* found, const char** out) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  *out = found;
  return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace
}  // namespace simgpu

SIMGPU_EXPORT CUresult cuGetErrorName(CUresult result, const char** name) {
  return simgpu::answer(simgpu::describe(result).name, name);
}

SIMGPU_EXPORT CUresult cuGetErrorString(CUresult result, const char** text) {
  return simgpu::answer(simgpu::describe(result).text, text);
}
