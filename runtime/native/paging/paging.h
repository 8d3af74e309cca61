// Paging of the job's memory, where is_paging() says so: one pager for the process.
#pragma once

#include <stdint.h>

#include <optional>

#include "runtime/native/backend/backend.h"

namespace transit::paging {

enum class Policy {
  kOnDemand,  // mapped chunks: pager.h
  kBase,      // managed memory: managed_pager.h
  kPrefetch,
  kAdvise,  // managed memory: advised_memory.h
};

// That of TRANSIT_PAGING_POLICY; kOnDemand if there is no name (null).
std::optional<Policy> find_policy(const char* name);

// What pages the memory of one device. Its calls come from any thread.
class MemoryOwner {
 public:
  virtual ~MemoryOwner() = default;

  // With a context of the device current.
  virtual Outcome add(uint64_t bytes, CUdeviceptr* address) = 0;

  // The device no longer uses it.
  virtual void remove(CUdeviceptr address) = 0;
};

// Smaller allocations are left to the driver, which packs them.
bool takes(uint64_t bytes);

// With a context of `device` current.
Outcome allocate(CUdevice device, uint64_t bytes, CUdeviceptr* address);

// When the device no longer uses it.
void release(CUdeviceptr address);

// Whether what is allocated there is paged.
bool is_on(CUdevice device);

}  // namespace transit::paging
