// Physical memory of the virtual memory management API: pieces of one memfd, so that
// two mappings of one handle are the same memory.
#pragma once

#include <cuda.h>
#include <sys/types.h>

#include <cstddef>
#include <vector>

#include "observer.h"

namespace simgpu {

struct Physical {
  Physical(const CUmemAllocationProp& wanted, size_t wanted_bytes,
           std::vector<UvmActivity>& evicted);
  ~Physical();
  Physical(const Physical&) = delete;
  Physical& operator=(const Physical&) = delete;

  const CUmemAllocationProp properties;
  const size_t bytes;
  const bool on_host;
  const int device;  // 0 for host memory
  off_t offset = 0;  // in the memfd

 private:
  void uncount() const;
};

}  // namespace simgpu
