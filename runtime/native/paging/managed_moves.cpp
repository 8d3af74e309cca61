#include "runtime/native/paging/managed_moves.h"

#include <algorithm>

#include "runtime/native/backend/managed_memory.h"
#include "runtime/native/interpose/driver.h"
#include "runtime/native/status/status.h"

namespace transit {

ManagedMoves::ManagedMoves(CUdevice device)
    : device_(device),
      created_(driver().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING)) {}

void ManagedMoves::follow(const Events& events) {
  if (created_ != CUDA_SUCCESS) return;
  for (const auto& event : events) event->precede(stream_);
}

CUresult ManagedMoves::move(CUdeviceptr address, uint64_t bytes, Location to) {
  if (created_ != CUDA_SUCCESS) return created_;
  is_marked_ = false;
  return to == Location::kDevice
             ? managed::prefetch_to_device(device_, address, bytes, stream_)
             : managed::prefetch_to_host(address, bytes, stream_);
}

void ManagedMoves::precede(CUstream stream) {
  if (!is_marked_) {
    last_ = Event::record(stream_);
    is_marked_ = true;
    told_.clear();
  }
  if (last_ == nullptr) return;
  if (std::find(told_.begin(), told_.end(), stream) != told_.end()) return;
  last_->precede(stream);
  status::add(&StatusFile::gates);
  // Each thread means another stream by this one.
  if (stream != CU_STREAM_PER_THREAD) told_.push_back(stream);
}

void ManagedMoves::finish() {
  if (created_ == CUDA_SUCCESS) driver().cuStreamSynchronize(stream_);
}

void ManagedMoves::forget(CUstream stream) {
  told_.erase(std::remove(told_.begin(), told_.end(), stream), told_.end());
}

}  // namespace transit
