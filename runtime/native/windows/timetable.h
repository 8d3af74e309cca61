// What the plan has for each launch of the iteration.
#pragma once

#include <stdint.h>

#include <vector>

#include "runtime/native/plan/plan.h"

namespace transit {

class Timetable {
 public:
  // `plan` must outlive it.
  explicit Timetable(const Plan& plan);

  uint32_t num_launches() const { return num_launches_; }

  // The windows of which this is true at a launch.
  enum Moment { kIssue, kFirst, kWritten, kLast, kHome };
  Entries<const FlatWindow*> at(Moment moment, uint32_t position) const;

 private:
  struct Column {
    std::vector<const FlatWindow*> windows;  // by position
    std::vector<uint32_t> starts;            // of each position's, and the end
  };

  uint32_t num_launches_;
  Column columns_[5];
};

}  // namespace transit
