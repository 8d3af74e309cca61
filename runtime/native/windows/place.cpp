#include "runtime/native/windows/place.h"

#include <algorithm>
#include <utility>

#include "runtime/native/status/status.h"

namespace transit {

Place::~Place() {
  for (const auto& seat : seats_) {
    if (seat->num_done == nullptr) continue;
    transfers_.end(*seat);
    const uint64_t bytes = seat->chunk.bytes();
    if (seat->chunk.is_on_gpu()) {
      status::subtract_bytes(&StatusFile::resident_bytes, bytes);
    }
    status::subtract_bytes(&StatusFile::windowed_bytes, bytes);
    transfers_.give_back(seat->num_done);
  }
}

Outcome Place::create(CUdevice device, CUdeviceptr allocation) {
  for (uint64_t at = 0; at < range_.bytes; at += Chunk::kMostBytes) {
    const uint64_t bytes = std::min(Chunk::kMostBytes, range_.bytes - at);
    auto seat = std::make_unique<Seat>(device, allocation + range_.offset + at, bytes);
    const Outcome outcome = seat->chunk.create();
    if (!outcome.ok()) return outcome;
    seat->num_done = transfers_.take_counter();
    if (seat->num_done == nullptr) {
      return {CUDA_ERROR_OUT_OF_MEMORY, "no pinned memory (cuMemHostAlloc)"};
    }
    status::add_bytes(&StatusFile::windowed_bytes, &StatusFile::windowed_peak_bytes,
                      bytes);
    seats_.push_back(std::move(seat));
  }
  return {};
}

void Place::load(const FlatWindow& window, Transfers::Load times, uint64_t now) {
  times.copies = (window.flags & kLoads) != 0 || now < doubtful_until_;
  times.may_begin_early = is_nowhere_;
  bool is_loading = false;
  for (const auto& seat : seats_) {
    if (seat->will_be_on_gpu()) continue;
    times.seat = seat.get();
    transfers_.load(times);
    is_loading = true;
  }
  if (!is_loading) return;
  since_ = now;
  is_stored_ = false;
}

void Place::release(const FlatWindow& window, uint64_t time, const Events& after,
                    uint64_t now) {
  const bool is_doubtful = now < doubtful_until_;
  const bool is_stale = (window.flags & kWritesBack) != 0 && !is_stored_;
  const bool is_used = window.home != kNever || is_doubtful;
  bool is_leaving = false;
  for (const auto& seat : seats_) {
    if (!seat->will_be_on_gpu()) continue;
    is_leaving = true;
    transfers_.release(seat.get(),
                       is_used ? Transfers::To::kHome : Transfers::To::kNowhere,
                       is_stale || is_doubtful, time, after);
  }
  if (!is_leaving) return;
  is_nowhere_ = !is_used;
  since_ = now;
}

void Place::bring_home() {
  if (!is_nowhere_) return;
  for (const auto& seat : seats_) {
    if (!seat->will_be_on_gpu()) Transfers::bring_home(seat.get());
  }
  is_nowhere_ = false;
}

// What used it before they were asked for may still do so.
void Place::withdraw() {
  for (const auto& seat : seats_) {
    if (transfers_.withdraw(seat.get())) since_ = 0;
  }
}

void Place::store(const Events& after) {
  for (const auto& seat : seats_) {
    if (seat->will_be_on_gpu()) transfers_.store(seat.get(), after);
  }
  is_stored_ = true;
}

}  // namespace transit
