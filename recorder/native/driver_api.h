// The driver's functions the recorder calls itself, below the shim's hooks.
#pragma once

#include <cuda.h>

namespace transit {

#define TRANSIT_DRIVER_FUNCTIONS(X) \
  X(cuDriverGetVersion)             \
  X(cuDeviceGetCount)               \
  X(cuDeviceGetName)                \
  X(cuDeviceTotalMem_v2)            \
  X(cuDeviceGetAttribute)           \
  X(cuCtxPushCurrent_v2)            \
  X(cuCtxPopCurrent_v2)             \
  X(cuCtxSynchronize)               \
  X(cuModuleLoadData)               \
  X(cuModuleGetFunction)            \
  X(cuModuleUnload)                 \
  X(cuLaunchKernel)                 \
  X(cuMemGetInfo_v2)                \
  X(cuMemGetAddressRange_v2)        \
  X(cuMemAlloc_v2)                  \
  X(cuMemFree_v2)                   \
  X(cuMemsetD8_v2)                  \
  X(cuMemcpyDtoH_v2)                \
  X(cuMemPrefetchAsync_v2)          \
  X(cuStreamIsCapturing)            \
  X(cuGraphGetNodes)                \
  X(cuGraphNodeGetType)             \
  X(cuGraphKernelNodeGetParams_v2)  \
  X(cuGraphMemcpyNodeGetParams)     \
  X(cuGraphMemsetNodeGetParams)     \
  X(cuGraphChildGraphNodeGetGraph)  \
  X(cuKernelGetName)                \
  X(cuKernelGetParamInfo)           \
  X(cuFuncGetName)                  \
  X(cuFuncGetParamInfo)

struct DriverApi {
#define TRANSIT_DECLARE(name) decltype(&::name) name = nullptr;
  TRANSIT_DRIVER_FUNCTIONS(TRANSIT_DECLARE)
#undef TRANSIT_DECLARE

  // Returns the name of a function the driver lacks, null if it has all.
  const char* load();
};

}  // namespace transit
