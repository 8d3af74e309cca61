// What the plan has on the GPU at each launch of the iteration, and what is there
// earlier than that: how much may be loaded ahead without taking the place of what is
// needed before.
#pragma once

#include <stdint.h>

#include <vector>

#include "runtime/native/plan/plan.h"

namespace transit {

// Times count launches, around the iteration and on: only where they are in it matters,
// and those of one call are less than a turn apart.
class Reservations {
 public:
  explicit Reservations(const Plan& plan);

  // Of no plan: nothing is reserved, ever.
  Reservations() = default;
  bool is_empty() const { return taken_.empty(); }

  // Whether so much more is free at all launches from one time to before another, of
  // all that windows may take up.
  bool is_free(uint64_t bytes, uint64_t from, uint64_t until, uint64_t all_bytes) const;

  // Something is there ahead of its window; and no more.
  void add(uint64_t bytes, uint64_t from, uint64_t until);
  void remove(uint64_t bytes, uint64_t from, uint64_t until);

 private:
  std::vector<uint64_t> taken_;  // by launch
};

}  // namespace transit
