#pragma once

#include <cstdint>
#include <ctime>

namespace transit {

inline uint64_t clock_ns(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1000000000u +
         static_cast<uint64_t>(time.tv_nsec);
}

// The clock of CUPTI's timestamps.
inline uint64_t now_ns() { return clock_ns(CLOCK_REALTIME); }

}  // namespace transit
