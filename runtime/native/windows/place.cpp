#include "runtime/native/windows/place.h"

namespace transit {

Outcome Place::create(CUdevice device, CUdeviceptr allocation) {
  return open_seats(transfers_, device, allocation + range_.offset, range_.bytes,
                    &seats_);
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
  is_suspect_ = false;
}

void Place::release(const FlatWindow& window, uint64_t time, const Events& after,
                    uint64_t now) {
  const bool is_doubtful = now < doubtful_until_;
  const bool is_stale =
      ((window.flags & kWritesBack) != 0 || is_suspect_) && !is_stored_;
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

void Place::come(Transfers::Load times, uint64_t now) {
  for (const auto& seat : seats_) {
    if (seat->will_be_on_gpu()) continue;
    times.seat = seat.get();
    transfers_.load(times);
  }
  since_ = now;
  suspect();
}

void Place::go(const Events& after, uint64_t now, uint64_t time) {
  for (const auto& seat : seats_) {
    if (!seat->will_be_on_gpu()) continue;
    transfers_.release(seat.get(), Transfers::To::kHome, true, time, after);
  }
  is_nowhere_ = false;
  since_ = now;
}

uint64_t Place::bytes_on_gpu() const {
  uint64_t bytes = 0;
  for (const auto& seat : seats_) {
    if (seat->will_be_on_gpu()) bytes += seat->chunk.bytes();
  }
  return bytes;
}

void Place::suspect() {
  is_stored_ = false;
  is_suspect_ = true;
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
