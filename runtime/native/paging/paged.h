// An allocation that is paged: its chunks, and when the job used them.
#pragma once

#include <stdint.h>

#include <algorithm>
#include <deque>
#include <vector>

#include "runtime/native/paging/past.h"
#include "runtime/native/windows/seats.h"

namespace transit {

struct Paged;

// Times are numbers of pieces of work.
struct Page {
  uint64_t bytes() const { return seat->chunk.bytes(); }

  Seat* seat;
  const Paged* paged;
  uint64_t since;          // it is where it was last asked to be
  uint64_t last_use = 0;   // by name
  bool is_used = false;    // perhaps, since it is there
  bool is_wanted = false;  // by the work at hand
};

struct Paged {
  // From one time to the next time that it was used; `now` if it was not used again.
  uint64_t time_to_use(uint64_t then, uint64_t now) const {
    const auto next = std::upper_bound(uses.begin(), uses.end(), then);
    return (next != uses.end() ? *next : now) - then;
  }

  void note_use(uint64_t now) {
    uses.push_back(now);
    while (uses.front() + Past::kNumRemembered <= now) uses.pop_front();
  }

  CUdeviceptr address;
  uint64_t bytes;  // in whole pieces
  Seats seats;
  std::vector<Page> pages;    // by address
  std::deque<uint64_t> uses;  // rising
};

}  // namespace transit
