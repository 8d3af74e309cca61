// Paging of the job's memory, where is_paging() says so: one pager for the process.
#pragma once

#include <stdint.h>

#include "runtime/native/backend/backend.h"

namespace transit::paging {

// Smaller allocations are left to the driver, which packs them.
bool takes(uint64_t bytes);

// With a context of `device` current.
Outcome allocate(CUdevice device, uint64_t bytes, CUdeviceptr* address);

// When the device no longer uses it.
void release(CUdeviceptr address);

// Whether what is allocated there is paged.
bool is_on(CUdevice device);

}  // namespace transit::paging
