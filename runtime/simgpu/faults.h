// Calls that fail on purpose: TRANSIT_SIM_FAIL="cuMemCreate:3=2,cuMemMap:*=999" is the
// third cuMemCreate with CUresult 2 and every cuMemMap with 999. Calls of CUPTI that
// the recorder makes can be named as well.
#pragma once

#include <cstdint>
#include <string_view>

namespace simgpu {

// The failure to return for this call of the symbol (whose _v2 and _ptsz may be left
// out in the variable), or 0.
int injected_fault(const char* symbol);

// Whether CUPTI silently loses `what`, as TRANSIT_SIM_CUPTI_LOSES="records,times"
// lists.
bool cupti_loses(std::string_view what);

// TRANSIT_SIM_SLOW_COPY_US: what every copy takes longer.
uint64_t slow_copy_us();

}  // namespace simgpu
