// Times the job's laps around the iteration, for the status.
#pragma once

#include <stdint.h>

#include <chrono>

namespace transit {

class Laps {
 public:
  // The job is at the iteration's first launch.
  void begin();

  // The job is not where the plan has it: the lap at hand does not count.
  void abandon() { is_followed_ = false; }

 private:
  using Clock = std::chrono::steady_clock;

  void count(Clock::time_point end) const;

  bool is_followed_ = false;  // since the first launch
  Clock::time_point begin_;
  uint64_t h2d_bytes_ = 0, d2h_bytes_ = 0;  // copied until then
};

}  // namespace transit
