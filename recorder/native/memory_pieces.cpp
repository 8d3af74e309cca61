#include "recorder/native/memory_pieces.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace transit {
namespace {

bool begins_earlier(const MemoryRange& a, const MemoryRange& b) {
  return a.begin < b.begin;
}

void sort_unique(std::vector<uint64_t>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

}  // namespace

MemoryPieces::MemoryPieces(std::vector<Allocation> allocations,
                           std::vector<MemoryRange> blocks,
                           const std::vector<uint64_t>& named)
    : allocations_(std::move(allocations)),
      reach_(std::move(blocks)),
      boundaries_(named) {
  for (const Allocation& allocation : allocations_) {
    boundaries_.push_back(allocation.range.begin);
    boundaries_.push_back(allocation.range.end);
  }
  for (const MemoryRange& block : reach_) {
    boundaries_.push_back(block.begin);
    boundaries_.push_back(block.end);
  }
  sort_unique(boundaries_);
  std::sort(allocations_.begin(), allocations_.end(),
            [](const Allocation& a, const Allocation& b) {
              return a.range.begin < b.range.begin;
            });
  std::sort(reach_.begin(), reach_.end(), begins_earlier);
  uint64_t furthest = 0;
  for (MemoryRange& block : reach_) {
    block.end = furthest = std::max(furthest, block.end);
  }
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
    ranges.push_back({access.address, reach_of(access, allocation->range.end)});
  }
  std::sort(ranges.begin(), ranges.end(), begins_earlier);
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

uint64_t MemoryPieces::reach_of(const AccessRecord& access,
                                uint64_t end_of_allocation) const {
  if (access.bytes != kUnknownBytes) {
    return access.address + std::min(access.bytes, end_of_allocation - access.address);
  }
  const auto after = std::upper_bound(reach_.begin(), reach_.end(),
                                      MemoryRange{access.address, 0}, begins_earlier);
  if (after != reach_.begin() && std::prev(after)->end > access.address) {
    return std::min(std::prev(after)->end, end_of_allocation);
  }
  return *std::upper_bound(boundaries_.begin(), boundaries_.end(), access.address);
}

// The ends of the ranges, and the boundaries inside them.
std::vector<uint64_t> MemoryPieces::cuts_of(
    const std::vector<MemoryRange>& ranges) const {
  std::vector<uint64_t> cuts;
  for (const MemoryRange& range : ranges) {
    cuts.push_back(range.begin);
    cuts.push_back(range.end);
    const auto first =
        std::upper_bound(boundaries_.begin(), boundaries_.end(), range.begin);
    const auto last = std::lower_bound(first, boundaries_.end(), range.end);
    cuts.insert(cuts.end(), first, last);
  }
  sort_unique(cuts);
  return cuts;
}

}  // namespace transit
