// Movable allocations: the plan's placement where it has one, or paged, else the
// driver's.
#pragma once

#include "runtime/native/memory/registry.h"

namespace transit {

CUresult allocate_movable(CUdevice device, uint64_t bytes, const char* caller,
                          CUdeviceptr* address);

// While a graph is captured nothing may wait for the device, so the release is
// deferred.
CUresult release_placed(const Allocation& allocation);

// Releases what was deferred, if no graph is captured any more.
void release_deferred();

// The status file's figures.
void count_alloc(const Allocation& allocation);
void count_free(const Allocation& allocation);

}  // namespace transit
