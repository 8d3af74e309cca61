#include "runtime/native/windows/laps.h"

#include "runtime/native/status/status.h"

namespace transit {

void Laps::begin() {
  const auto now = Clock::now();
  if (is_followed_) count(now);
  is_followed_ = true;
  begin_ = now;
  h2d_bytes_ = status::get(&StatusFile::h2d_bytes);
  d2h_bytes_ = status::get(&StatusFile::d2h_bytes);
}

void Laps::count(Clock::time_point end) const {
  const std::chrono::nanoseconds lap = end - begin_;
  status::add(&StatusFile::laps_h2d_bytes,
              status::get(&StatusFile::h2d_bytes) - h2d_bytes_);
  status::add(&StatusFile::laps_d2h_bytes,
              status::get(&StatusFile::d2h_bytes) - d2h_bytes_);
  status::add_lap(static_cast<uint64_t>(lap.count()));
}

}  // namespace transit
