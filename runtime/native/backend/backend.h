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

  bool ok() const { return result == CUDA_SUCCESS; }
};

class Backend {
 public:
  virtual ~Backend() = default;

  // Memory for `device` from *address to the end of `ranges`, each placed as it says.
  virtual Outcome allocate(CUdevice device, Ranges ranges, CUdeviceptr* address) = 0;

  // Gives it back, when the device no longer uses it.
  virtual CUresult release(CUdeviceptr address, Ranges ranges) = 0;
};

std::unique_ptr<Backend> make_vmm_backend();
std::unique_ptr<Backend> make_uvm_backend();

}  // namespace transit
