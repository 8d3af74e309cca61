// Cuts what launches name into pieces, where anything is known to begin or end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "recorder/native/checksum_kernel.h"
#include "recorder/native/memory_reach.h"
#include "recorder/native/spool_format.h"

namespace transit {

class MemoryPieces {
 public:
  struct Allocation {
    MemoryRange range;
    uint32_t allocation_id;
    int32_t device;
    bool is_alive;
  };

  MemoryPieces(std::vector<Allocation> allocations, MemoryReach reach);

  void remove_allocation(uint64_t address, uint32_t allocation_id);

  // Those that the accesses without a known direction may reach in memory of the
  // device, each byte in one of them.
  std::vector<MemoryPiece> named_by(const AccessRecord* accesses, size_t num_accesses,
                                    int32_t device) const;

  // Whether its allocation has not been freed.
  bool is_alive(const MemoryPiece& piece) const;

 private:
  const Allocation* allocation_of(uint64_t address) const;
  std::vector<uint64_t> cuts_of(const std::vector<MemoryRange>& ranges) const;

  std::vector<Allocation> allocations_;  // by address
  MemoryReach reach_;
};

}  // namespace transit
