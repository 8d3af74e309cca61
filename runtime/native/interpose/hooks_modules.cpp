// Code that comes, for which the driver waits for all work; and code that goes away,
// with a module or a context: its functions' handles come again.
#include "runtime/native/interpose/driver.h"
#include "runtime/native/interpose/export.h"
#include "runtime/native/windows/functions.h"
#include "runtime/native/windows/windows.h"

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

#define LOAD_IF(may_load, symbol, parameters, arguments) \
  TRANSIT_HOOK CUresult symbol parameters {              \
    const auto real = transit::driver().symbol;          \
    if (real == nullptr) return CUDA_ERROR_NOT_FOUND;    \
    if (may_load) transit::windows::await_moves();       \
    return real arguments;                               \
  }
#define LOAD(symbol, parameters, arguments) LOAD_IF(true, symbol, parameters, arguments)

LOAD(cuModuleLoad, (CUmodule * module, const char* path), (module, path))
LOAD(cuModuleLoadData, (CUmodule * module, const void* image), (module, image))
LOAD(cuModuleLoadDataEx,
     (CUmodule * module, const void* image, unsigned int num_options,
      CUjit_option* options, void** values),
     (module, image, num_options, options, values))
LOAD(cuModuleLoadFatBinary, (CUmodule * module, const void* image), (module, image))
LOAD(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char* name),
     (function, module, name))
LOAD(cuLibraryLoadData,
     (CUlibrary * library, const void* code, CUjit_option* jit_options,
      void** jit_values, unsigned int num_jit_options, CUlibraryOption* options,
      void** values, unsigned int num_options),
     (library, code, jit_options, jit_values, num_jit_options, options, values,
      num_options))
LOAD(cuLibraryLoadFromFile,
     (CUlibrary * library, const char* path, CUjit_option* jit_options,
      void** jit_values, unsigned int num_jit_options, CUlibraryOption* options,
      void** values, unsigned int num_options),
     (library, path, jit_options, jit_values, num_jit_options, options, values,
      num_options))
LOAD(cuLibraryGetModule, (CUmodule * module, CUlibrary library), (module, library))
LOAD_IF(!transit::functions::is_known(reinterpret_cast<CUfunction>(kernel)),
        cuKernelGetFunction, (CUfunction * function, CUkernel kernel),
        (function, kernel))
LOAD_IF(!transit::functions::is_known(function), cuFuncLoad, (CUfunction function),
        (function))
LOAD_IF(!transit::functions::is_known(function), cuFuncSetAttribute,
        (CUfunction function, CUfunction_attribute attribute, int value),
        (function, attribute, value))
LOAD_IF(!transit::functions::is_known(reinterpret_cast<CUfunction>(kernel)),
        cuKernelSetAttribute,
        (CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device),
        (attribute, value, kernel, device))
