#include "recorder/native/memory_reach.h"

#include <algorithm>
#include <iterator>
#include <unordered_set>
#include <utility>

#include "recorder/native/spool_records.h"

namespace transit {

void sort_unique(std::vector<uint64_t>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

MemoryReach::MemoryReach(std::vector<MemoryRange> blocks, std::vector<uint64_t> named)
    : blocks_(std::move(blocks)), boundaries_(std::move(named)) {
  for (const MemoryRange& block : blocks_) {
    boundaries_.push_back(block.begin);
    boundaries_.push_back(block.end);
  }
  sort_unique(boundaries_);
  std::sort(
      blocks_.begin(), blocks_.end(),
      [](const MemoryRange& a, const MemoryRange& b) { return a.begin < b.begin; });
  uint64_t furthest = 0;
  for (MemoryRange& block : blocks_) {
    block.end = furthest = std::max(furthest, block.end);
  }
}

MemoryReach MemoryReach::of_spool(const std::string& folder) {
  std::vector<MemoryRange> blocks;
  for_each_record<BlockRecord>(folder, "block", [&](const BlockRecord& block) {
    blocks.push_back({block.address, block.address + block.bytes});
  });
  std::unordered_set<uint64_t> named;
  for (const char* record_type : {"access", "graph_access"}) {
    for_each_record<AccessRecord>(folder, record_type, [&](const AccessRecord& access) {
      named.insert(access.address);
    });
  }
  return {std::move(blocks), {named.begin(), named.end()}};
}

uint64_t MemoryReach::end_of(const AccessRecord& access,
                             uint64_t end_of_allocation) const {
  if (access.bytes != kUnknownBytes) {
    return access.address + std::min(access.bytes, end_of_allocation - access.address);
  }
  const auto block = std::upper_bound(
      blocks_.begin(), blocks_.end(), access.address,
      [](uint64_t address, const MemoryRange& range) { return address < range.begin; });
  if (block != blocks_.begin() && std::prev(block)->end > access.address) {
    return std::min(std::prev(block)->end, end_of_allocation);
  }
  const auto next =
      std::upper_bound(boundaries_.begin(), boundaries_.end(), access.address);
  return next == boundaries_.end() ? end_of_allocation
                                   : std::min(*next, end_of_allocation);
}

}  // namespace transit
