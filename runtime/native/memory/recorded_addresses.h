// The addresses that allocations had when the job was recorded, relative to each other.
// A framework's allocator breaks ties between free blocks by address: at other
// distances it would put other tensors into the ranges a plan made for these.
#pragma once

#include "runtime/native/interpose/driver_api.h"
#include "runtime/native/plan/plan.h"

namespace transit::recorded_addresses {

// Where `planned` lay, in addresses reserved for its device; 0 if that is not known,
// not to be had, or not free.
CUdeviceptr take(const FlatAllocation& planned);

// To be called once the memory there is gone.
void give_back(const FlatAllocation& planned);

}  // namespace transit::recorded_addresses
