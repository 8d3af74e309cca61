// What enacts placements. Every call may come from any thread, with a context of
// `device` current, also while the job captures a graph.
#pragma once

#include <memory>

#include "runtime/native/interpose/driver_api.h"
#include "runtime/native/plan/plan.h"

namespace transit {

// The driver call that failed, in words for a person; null if none did.
struct Outcome {
  CUresult result = CUDA_SUCCESS;
  const char* what = nullptr;
  bool is_out_of_host_memory = false;

  bool ok() const { return result == CUDA_SUCCESS; }
};

class Backend {
 public:
  virtual ~Backend() = default;

  // Addresses for `device` to place memory at later, for good; 0 if there are none.
  virtual CUdeviceptr reserve(CUdevice device, uint64_t bytes) = 0;

  // Memory for `device` from *address to the end of `ranges`, each placed as it says.
  // At *address if that is not 0: within a reservation, and free.
  virtual Outcome allocate(CUdevice device, Ranges ranges, CUdeviceptr* address) = 0;

  // Gives the memory back, when the device no longer uses it, and, unless they are
  // within a reservation, its addresses.
  virtual CUresult release(CUdevice device, CUdeviceptr address, Ranges ranges,
                           bool is_reserved) = 0;
};

std::unique_ptr<Backend> make_vmm_backend();
std::unique_ptr<Backend> make_uvm_backend();

}  // namespace transit
