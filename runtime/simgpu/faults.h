// Calls that fail on purpose: TRANSIT_SIM_FAIL="cuMemCreate:3=2,cuMemMap:*=999" is the
// third cuMemCreate with CUresult 2 and every cuMemMap with 999.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace simgpu {

// The failure to return for this call of the symbol (whose _v2 and _ptsz may be left
// out in the variable), or CUDA_SUCCESS.
CUresult injected_fault(const char* symbol);

// TRANSIT_SIM_SLOW_COPY_US: what every copy takes longer.
uint64_t slow_copy_us();

}  // namespace simgpu
