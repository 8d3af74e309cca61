#include "recorder/native/memory_pieces.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace transit {
MemoryPieces::MemoryPieces(std::vector<Allocation> allocations, MemoryReach reach)
    : allocations_(std::move(allocations)), reach_(std::move(reach)) {
  std::sort(allocations_.begin(), allocations_.end(),
            [](const Allocation& a, const Allocation& b) {
              return a.range.begin < b.range.begin;
            });
}

void MemoryPieces::remove_allocation(uint64_t address, uint32_t allocation_id) {
  for (Allocation& allocation : allocations_) {
    const bool is_it =
        allocation.range.begin == address && allocation.allocation_id == allocation_id;
    if (is_it) allocation.is_alive = false;
  }
}

std::vector<MemoryPiece> MemoryPieces::named_by(const AccessRecord* accesses,
                                                size_t num_accesses,
                                                int32_t device) const {
  std::vector<MemoryRange> ranges;
  for (size_t i = 0; i < num_accesses; ++i) {
    const AccessRecord& access = accesses[i];
    if (access.direction != static_cast<uint32_t>(Direction::kUnknown)) continue;
    const Allocation* allocation = allocation_of(access.address);
    if (allocation == nullptr || allocation->device != device) continue;
    ranges.push_back({access.address, reach_.end_of(access, allocation->range.end)});
  }
  std::sort(
      ranges.begin(), ranges.end(),
      [](const MemoryRange& a, const MemoryRange& b) { return a.begin < b.begin; });
  const std::vector<uint64_t> cuts = cuts_of(ranges);

  std::vector<MemoryPiece> pieces;
  auto next_range = ranges.begin();
  uint64_t reached = 0;  // by the ranges that begin at or before the cut
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    for (; next_range != ranges.end() && next_range->begin <= cuts[i]; ++next_range) {
      reached = std::max(reached, next_range->end);
    }
    if (reached > cuts[i]) pieces.push_back({cuts[i], cuts[i + 1] - cuts[i]});
  }
  return pieces;
}

bool MemoryPieces::is_alive(const MemoryPiece& piece) const {
  return allocation_of(piece.address) != nullptr;
}

const MemoryPieces::Allocation* MemoryPieces::allocation_of(uint64_t address) const {
  const auto after =
      std::upper_bound(allocations_.begin(), allocations_.end(), address,
                       [](uint64_t wanted, const Allocation& allocation) {
                         return wanted < allocation.range.begin;
                       });
  if (after == allocations_.begin()) return nullptr;
  const Allocation& allocation = *std::prev(after);
  return allocation.is_alive && address < allocation.range.end ? &allocation : nullptr;
}

// The ends of the ranges, and the boundaries inside them.
std::vector<uint64_t> MemoryPieces::cuts_of(
    const std::vector<MemoryRange>& ranges) const {
  const std::vector<uint64_t>& boundaries = reach_.boundaries();
  std::vector<uint64_t> cuts;
  for (const MemoryRange& range : ranges) {
    cuts.push_back(range.begin);
    cuts.push_back(range.end);
    const auto first =
        std::upper_bound(boundaries.begin(), boundaries.end(), range.begin);
    const auto last = std::lower_bound(first, boundaries.end(), range.end);
    cuts.insert(cuts.end(), first, last);
  }
  sort_unique(cuts);
  return cuts;
}

}  // namespace transit
