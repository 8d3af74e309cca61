// The real driver: what libcuda.so.1 itself provides, below our hooks.
#pragma once

#include <atomic>

#include "runtime/native/interpose/driver_api.h"

// What the shim calls and does not replace.
#define TRANSIT_DRIVER_CALLS(CALL)             \
  CALL(cuCtxGetCurrent)                        \
  CALL(cuCtxGetDevice)                         \
  CALL(cuCtxPopCurrent_v2)                     \
  CALL(cuCtxPushCurrent_v2)                    \
  CALL(cuCtxSynchronize)                       \
  CALL(cuDeviceGetAttribute)                   \
  CALL(cuEventCreate)                          \
  CALL(cuEventElapsedTime)                     \
  CALL(cuEventQuery)                           \
  CALL(cuEventRecord)                          \
  CALL(cuEventSynchronize)                     \
  CALL(cuFuncGetName)                          \
  CALL(cuFuncGetParamInfo)                     \
  CALL(cuGetErrorName)                         \
  CALL(cuKernelGetName)                        \
  CALL(cuKernelGetParamInfo)                   \
  CALL(cuMemAddressFree)                       \
  CALL(cuMemAddressReserve)                    \
  CALL(cuMemAdvise_v2)                         \
  CALL(cuMemCreate)                            \
  CALL(cuMemGetAllocationPropertiesFromHandle) \
  CALL(cuMemPrefetchAsync_v2)                  \
  CALL(cuMemRelease)                           \
  CALL(cuMemSetAccess)                         \
  CALL(cuStreamCreate)                         \
  CALL(cuStreamIsCapturing)                    \
  CALL(cuStreamSynchronize)                    \
  CALL(cuStreamWaitEvent)                      \
  CALL(cuStreamWaitValue32_v2)                 \
  CALL(cuThreadExchangeStreamCaptureMode)

namespace transit {

// A member is null where this libcuda is too old to have the function.
struct Driver {
#define CALL(name) decltype(&::name) name;
  TRANSIT_DRIVER_CALLS(CALL)
#undef CALL
#define OWN(symbol, ...) decltype(&::symbol) symbol;
#define COUNTED(symbol, ...) decltype(&::symbol) symbol;
#include "runtime/native/interpose/hooks.def"
};

extern std::atomic<const Driver*> g_driver;
const Driver& load_driver();

// libcuda.so.1 is opened at the first call, or is the one is_from_libcuda() saw before.
inline const Driver& driver() {
  const Driver* loaded = g_driver.load(std::memory_order_acquire);
  return loaded != nullptr ? *loaded : load_driver();
}

// What that library itself has of this name, or null.
void* real_function(const char* symbol);

// True if libcuda provides the code at `address`. Remembers that library, so that a
// job which opens a libcuda by its path gets the functions of that one.
bool is_from_libcuda(const void* address);

bool is_libcuda_loaded();

// "CUDA_ERROR_OUT_OF_MEMORY"
const char* error_name(CUresult result);

// dlsym of libc, below our own.
using DlsymFn = void* (*)(void* handle, const char* name);
DlsymFn real_dlsym();

}  // namespace transit
