// Where in the plan's iteration the job is, told from what it submits.
#pragma once

#include <stdint.h>

#include "runtime/native/windows/runs.h"

namespace transit {

class Aligner {
 public:
  // The iteration's launches, at least one: a cycle. They must outlive the aligner.
  Aligner(const FlatLaunch* launches, uint32_t count);

  enum class Where {
    kUnlocked,  // the job does something else, or it cannot be told what
    kPlanned,   // the launch at `position`, by its signature
    kInserted,  // none of the plan's; the next one is expected as before
  };

  struct Step {
    Where where;
    uint32_t position;     // of the launch, or if it is inserted of the next one
    uint32_t num_skipped;  // launches of the plan before it that did not come
    bool is_exact;         // its addresses are the plan's, too
    bool is_newly_locked;  // whatever was before: the job is here
  };

  struct Counters {
    uint64_t num_locks, num_unlocks;
    uint64_t num_inserted, num_skipped;
    uint64_t num_inexact;  // planned, on other addresses
  };

  // The job submits a launch. Addresses of graphs are kAnyAddresses.
  Step next(uint64_t signature, uint64_t addresses);

  bool is_locked() const { return is_locked_; }
  uint32_t position() const { return position_; }  // the next one expected
  const Counters& counters() const { return counters_; }

 private:
  Step search(const FlatLaunch& launch);
  Step insert(const FlatLaunch& launch);
  Step take(uint32_t num_skipped, const FlatLaunch& launch);
  Step lock(uint32_t position);
  Step unlock();
  uint32_t find_ahead(const FlatLaunch& launch) const;
  bool note_exactness(bool is_exact);
  uint32_t after(uint32_t position, uint32_t distance) const;

  const FlatLaunch* launches_;
  uint32_t count_;
  RunIndex index_;
  Run run_;  // what came since the last planned launch
  bool is_locked_ = false;
  uint32_t position_ = 0;
  uint32_t num_inserted_in_a_row_ = 0;
  uint64_t inexact_[2] = {};  // of the last planned launches, a bit each
  Counters counters_{};
};

}  // namespace transit
