#include <cstdio>
#include <cstring>
#include <initializer_list>

#include "call.h"
#include "capture.h"
#include "context.h"
#include "launch.h"
#include "module.h"

namespace simgpu {
namespace {

constexpr unsigned kMaxThreadsPerBlock = 1024;
constexpr unsigned kMaxGridHeight = 65535;

std::vector<uint8_t> pack_parameters(const Entry& entry, void* const* parameters) {
  std::vector<uint8_t> arguments(entry.parameter_bytes());
  for (size_t i = 0; i < entry.parameters.size(); ++i) {
    const Parameter& parameter = entry.parameters[i];
    require(parameters && parameters[i]);
    std::memcpy(arguments.data() + parameter.offset, parameters[i], parameter.bytes);
  }
  return arguments;
}

// extra: pairs of a key and a value, ended by CU_LAUNCH_PARAM_END.
std::vector<uint8_t> unpack_extra(const Entry& entry, void* const* extra) {
  const void* buffer = nullptr;
  size_t bytes = 0;
  for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
    if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
      buffer = extra[1];
    else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
      bytes = *static_cast<const size_t*>(extra[1]);
    else
      fail(CUDA_ERROR_INVALID_VALUE);
  }
  require(buffer && bytes >= entry.parameter_bytes());
  const auto* start = static_cast<const uint8_t*>(buffer);
  return {start, start + entry.parameter_bytes()};
}

void check_shape(const CUlaunchConfig& shape) {
  for (const unsigned size : {shape.gridDimX, shape.gridDimY, shape.gridDimZ,
                              shape.blockDimX, shape.blockDimY, shape.blockDimZ})
    require(size > 0);
  require(shape.gridDimX <= INT32_MAX && shape.gridDimY <= kMaxGridHeight &&
          shape.gridDimZ <= kMaxGridHeight);
  const uint64_t threads =
      uint64_t{shape.blockDimX} * shape.blockDimY * shape.blockDimZ;
  require(shape.blockDimX <= kMaxThreadsPerBlock &&
          shape.blockDimY <= kMaxThreadsPerBlock && shape.blockDimZ <= 64 &&
          threads <= kMaxThreadsPerBlock);
}

void refuse_unknown(const Function& function) {
  if (function.kernel) return;
  std::fprintf(stderr,
               "transit simulated GPU: kernel '%s' with these parameters is none of "
               "those it can run; see docs/simulated-gpu.md\n",
               function.entry.name.c_str());
  fail(CUDA_ERROR_NOT_SUPPORTED);
}

void launch(CUfunction handle, const CUlaunchConfig& shape, void** parameters,
            void** extra) {
  const StreamRef stream = find_stream(shape.hStream);
  submit(*stream, kernel_work(handle, shape, parameters, extra));
}

}  // namespace

KernelWork kernel_work(CUfunction handle, const CUlaunchConfig& shape,
                       void** parameters, void** extra) {
  const FunctionRef function = find_function(handle);
  check_shape(shape);
  require(!(parameters && extra));
  refuse_unknown(*function);
  return {function,
          {shape.gridDimX, shape.gridDimY, shape.gridDimZ},
          {shape.blockDimX, shape.blockDimY, shape.blockDimZ},
          shape.sharedMemBytes,
          extra ? unpack_extra(function->entry, extra)
                : pack_parameters(function->entry, parameters)};
}

STREAM_API(cuLaunchKernel, ptsz,
           (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
            unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
            CUstream stream, void** parameters, void** extra),
           (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,
            stream, parameters, extra)) {
  launch(function,
         {grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream,
          nullptr, 0},
         parameters, extra);
}

STREAM_API(cuLaunchCooperativeKernel, ptsz,
           (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
            unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
            CUstream stream, void** parameters),
           (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,
            stream, parameters)) {
  launch(function,
         {grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream,
          nullptr, 0},
         parameters, nullptr);
}

STREAM_API(cuLaunchKernelEx, ptsz,
           (const CUlaunchConfig* shape, CUfunction function, void** parameters,
            void** extra),
           (shape, function, parameters, extra)) {
  require(shape && (shape->numAttrs == 0 || shape->attrs));
  launch(function, *shape, parameters, extra);
}

}  // namespace simgpu
