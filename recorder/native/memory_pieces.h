// Cuts what launches name into pieces, where anything is known to begin or end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "recorder/native/checksum_kernel.h"
#include "recorder/native/spool_format.h"

namespace transit {

struct MemoryRange {
  uint64_t begin, end;
};

class MemoryPieces {
 public:
  struct Allocation {
    MemoryRange range;
    uint32_t allocation_id;
    int32_t device;
    bool is_alive;
  };

  MemoryPieces() = default;

  // What an access without a size may reach is not known at the launch: to the end of
  // the furthest of the `blocks` around its address, else to the next boundary.
  // Boundaries are the ends of allocations and blocks, and the addresses `named`.
  MemoryPieces(std::vector<Allocation> allocations, std::vector<MemoryRange> blocks,
               const std::vector<uint64_t>& named);

  void remove_allocation(uint64_t address, uint32_t allocation_id);

  // Those that the accesses without a known direction may reach in memory of the
  // device, each byte in one of them.
  std::vector<MemoryPiece> named_by(const AccessRecord* accesses, size_t num_accesses,
                                    int32_t device) const;

  // Whether its allocation has not been freed.
  bool is_alive(const MemoryPiece& piece) const;

 private:
  const Allocation* allocation_of(uint64_t address) const;
  uint64_t reach_of(const AccessRecord& access, uint64_t end_of_allocation) const;
  std::vector<uint64_t> cuts_of(const std::vector<MemoryRange>& ranges) const;

  std::vector<Allocation> allocations_;  // by address
  std::vector<MemoryRange> reach_;       // from each block's begin: the furthest end
  std::vector<uint64_t> boundaries_;     // in order
};

}  // namespace transit
