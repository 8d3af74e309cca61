// The memory of a job whose accesses are audited: managed, so that the driver reports
// the first touch of each page. Less of it than the card has room for, so that the
// driver never has to evict.
#pragma once

#include <stdint.h>

#include "runtime/native/interpose/driver_api.h"

namespace transit::audited {

// TRANSIT_AUDIT asks for it, and there is no plan to enact.
bool is_on();

struct Served {
  CUresult result;
  CUdeviceptr address;
  bool is_managed;  // else by the driver, as without an audit
};

// With a context of `device` current.
Served allocate(CUdevice device, uint64_t bytes);

// Before the memory is really freed.
void count_free(CUdevice device, uint64_t bytes, bool is_managed);

}  // namespace transit::audited
