#include "recorder/native/allocations.h"

#include <algorithm>
#include <utility>

namespace transit {
namespace {

bool begins_after(uint64_t address, const LiveRange& range) {
  return address < range.begin;
}

}  // namespace

AddressIndex::AddressIndex(std::vector<LiveRange> ranges, uint64_t version)
    : ranges_(std::move(ranges)), version_(version) {
  if (ranges_.empty()) return;
  bounds_.lowest = ranges_.front().begin;
  bounds_.span = ranges_.back().end - bounds_.lowest;
  std::vector<uint64_t> keys;
  keys.reserve(ranges_.size());
  for (const LiveRange& range : ranges_) keys.push_back(range.begin);
  add_level(keys);
  while (levels_[num_levels_ - 1].size() > 1) {
    keys.clear();
    for (const Keys& group : levels_[num_levels_ - 1]) keys.push_back(group.begin[0]);
    add_level(keys);
  }
}

void AddressIndex::add_level(const std::vector<uint64_t>& keys) {
  std::vector<Keys>& level = levels_[num_levels_++];
  level.resize((keys.size() + kFanout - 1) / kFanout);
  for (size_t i = 0; i < level.size() * kFanout; ++i) {
    level[i / kFanout].begin[i % kFanout] = i < keys.size() ? keys[i] : UINT64_MAX;
  }
}

const LiveRange* AddressIndex::search(uint64_t address) const {
  size_t place = 0;
  for (size_t level = num_levels_; level-- > 0;) {
    const Keys& keys = levels_[level][place];
    size_t num_not_after = 0;
    for (const uint64_t begin : keys.begin) num_not_after += begin <= address;
    place = place * kFanout + num_not_after - 1;
  }
  const LiveRange& range = ranges_[place];
  return address < range.end ? &range : nullptr;
}

const AddressIndex& LiveAllocations::View::enter(const LiveAllocations& live) {
  // Both sequentially consistent: a writer that sees no reader after it published knows
  // that every later reader takes what it published.
  live.num_readers_.fetch_add(1, std::memory_order_seq_cst);
  return *live.current_.load(std::memory_order_seq_cst);
}

void LiveAllocations::insert(uint64_t address, uint64_t bytes, uint32_t allocation_id) {
  const LiveRange added{address, address + bytes, allocation_id};
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<LiveRange> ranges = current_.load()->ranges();
  // What the driver hands out anew is no longer anybody else's: a free went unseen.
  const auto overlaps = [&](const LiveRange& range) {
    return range.begin < added.end && added.begin < range.end;
  };
  ranges.erase(std::remove_if(ranges.begin(), ranges.end(), overlaps), ranges.end());
  ranges.insert(std::upper_bound(ranges.begin(), ranges.end(), address, begins_after),
                added);
  publish(std::move(ranges));
}

void LiveAllocations::erase(uint64_t address, uint32_t allocation_id) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<LiveRange> ranges = current_.load()->ranges();
  const auto is_freed = [&](const LiveRange& range) {
    return range.begin == address && range.allocation_id == allocation_id;
  };
  ranges.erase(std::remove_if(ranges.begin(), ranges.end(), is_freed), ranges.end());
  publish(std::move(ranges));
}

void LiveAllocations::publish(std::vector<LiveRange> ranges) {
  const auto* replacement =
      new AddressIndex(std::move(ranges), current_.load()->version() + 1);
  replaced_.push_back(current_.exchange(replacement, std::memory_order_seq_cst));
  if (num_readers_.load(std::memory_order_seq_cst) != 0) return;
  for (const AddressIndex* index : replaced_) delete index;
  replaced_.clear();
}

}  // namespace transit
