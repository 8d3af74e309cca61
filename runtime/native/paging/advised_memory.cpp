#include "runtime/native/paging/advised_memory.h"

#include "runtime/native/status/status.h"
#include "runtime/native/windows/transfers.h"

namespace transit {
namespace {

bool is_resident(const FlatRange& range) {
  return range.placement == static_cast<uint32_t>(Placement::kResident);
}

void count_alloc(CUdevice device, const FlatRange& range) {
  if (is_resident(range)) {
    status::add_gpu_bytes(device, &StatusFile::resident_bytes,
                          &StatusFile::resident_peak_bytes, range.bytes);
  } else {
    status::add_bytes(&StatusFile::zero_copy_bytes, &StatusFile::zero_copy_peak_bytes,
                      range.bytes);
  }
}

void count_free(CUdevice device, const FlatRange& range) {
  if (is_resident(range)) {
    status::subtract_gpu_bytes(device, &StatusFile::resident_bytes, range.bytes);
  } else {
    status::subtract_bytes(&StatusFile::zero_copy_bytes, range.bytes);
  }
}

}  // namespace

Outcome AdvisedMemory::add(uint64_t bytes, CUdeviceptr* address) {
  const std::lock_guard<std::mutex> lock(mutex_);
  FlatRange range{};
  range.bytes = round_up_to_piece(bytes);
  const uint64_t taken = status::get(&StatusFile::resident_bytes) + driver_bytes();
  const bool fits = taken + range.bytes <= budget_bytes_;
  range.placement =
      static_cast<uint32_t>(fits ? Placement::kResident : Placement::kZeroCopy);
  CUdeviceptr base = 0;
  const Outcome outcome = backend_->allocate(device_, {&range, 1}, &base);
  if (!outcome.ok()) return outcome;
  count_alloc(device_, range);
  allocations_.emplace(base, range);
  *address = base;
  return {};
}

void AdvisedMemory::remove(CUdeviceptr address) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = allocations_.find(address);
  backend_->release(device_, address, {&found->second, 1}, false);
  count_free(device_, found->second);
  allocations_.erase(found);
}

}  // namespace transit
