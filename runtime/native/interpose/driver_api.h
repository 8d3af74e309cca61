// cuda.h with every version of every function under the name libcuda exports it by:
// the macros that rename cuMemAlloc to cuMemAlloc_v2 are off.
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

// Exported by libcuda, and no header declares them: the resolvers of programs compiled
// for the per-thread default stream, which is what flags without a mode then mean.
extern "C" {
CUresult cuGetProcAddress_ptsz(const char* symbol, void** function, int version,
                               cuuint64_t flags);
CUresult cuGetProcAddress_v2_ptsz(const char* symbol, void** function, int version,
                                  cuuint64_t flags,
                                  CUdriverProcAddressQueryResult* status);
}
