// Times the job's laps around the iteration on the GPU, for the status. The host is no
// clock for them: it can be many laps ahead.
#pragma once

#include <deque>
#include <vector>

#include "runtime/native/interpose/driver_api.h"

namespace transit {

class Laps {
 public:
  // The iteration's first launch is about to be submitted to the stream.
  void begin(CUstream stream);

  // The job is not where the plan has it: the lap at hand does not count.
  void abandon() { is_followed_ = false; }

 private:
  // A lap begins, and ends the one before if that was followed to its end.
  struct Begin {
    CUevent event;
    bool ends_lap;
  };

  CUevent take_event();
  void count_ended();

  std::deque<Begin> begins_;  // from the latest that the GPU is known to have got to
  std::vector<CUevent> spare_;
  bool is_followed_ = false;  // since the first launch
};

}  // namespace transit
