// The paper's advice for a job without a plan: what is allocated first stays on the
// GPU, up to the budget, and all beyond it in host memory, where the GPU uses it in
// place. Nothing moves.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "runtime/native/paging/paging.h"

namespace transit {

class AdvisedMemory : public paging::MemoryOwner {
 public:
  AdvisedMemory(uint64_t budget_bytes, CUdevice device)
      : budget_bytes_(budget_bytes), device_(device), backend_(make_uvm_backend()) {}

  Outcome add(uint64_t bytes, CUdeviceptr* address) override;
  void remove(CUdeviceptr address) override;

 private:
  const uint64_t budget_bytes_;
  const CUdevice device_;
  const std::unique_ptr<Backend> backend_;
  std::mutex mutex_;
  std::map<CUdeviceptr, FlatRange> allocations_;
};

}  // namespace transit
