// How far from its address an access may reach: a launch does not tell.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "recorder/native/spool_format.h"

namespace transit {

struct MemoryRange {
  uint64_t begin, end;
};

class MemoryReach {
 public:
  // Knows nothing: all reach to the ends of their allocations.
  MemoryReach() = default;

  // Without a size an access reaches to the end of the furthest of the `blocks` around
  // its address, else to where a block begins or an address was `named`.
  MemoryReach(std::vector<MemoryRange> blocks, std::vector<uint64_t> named);

  // With the blocks and the accesses that this process has recorded so far.
  static MemoryReach of_spool(const std::string& folder);

  uint64_t end_of(const AccessRecord& access, uint64_t end_of_allocation) const;

  // Where blocks begin and end, and what was named; in order.
  const std::vector<uint64_t>& boundaries() const { return boundaries_; }

 private:
  std::vector<MemoryRange> blocks_;  // from each one's begin: the furthest end
  std::vector<uint64_t> boundaries_;
};

void sort_unique(std::vector<uint64_t>& values);

}  // namespace transit
