// Code that goes away, with a module or a context: its functions' handles come again.
#include "runtime/native/interpose/driver.h"
#include "runtime/native/interpose/export.h"
#include "runtime/native/windows/functions.h"

#define UNLOAD(symbol, parameters, arguments)         \
  TRANSIT_HOOK CUresult symbol parameters {           \
    const auto real = transit::driver().symbol;       \
    if (real == nullptr) return CUDA_ERROR_NOT_FOUND; \
    transit::functions::forget_all();                 \
    return real arguments;                            \
  }

UNLOAD(cuModuleUnload, (CUmodule module), (module))
UNLOAD(cuLibraryUnload, (CUlibrary library), (library))
UNLOAD(cuCtxDestroy_v2, (CUcontext context), (context))
UNLOAD(cuDevicePrimaryCtxRelease_v2, (CUdevice device), (device))
UNLOAD(cuDevicePrimaryCtxReset_v2, (CUdevice device), (device))
