#include "recorder/native/allocations.h"

#include <algorithm>

namespace transit {
namespace {

bool begins_after(uint64_t address, const LiveRange& range) {
  return address < range.begin;
}

}  // namespace

const std::vector<LiveRange>& LiveAllocations::View::enter(
    const LiveAllocations& live) {
  // Both sequentially consistent: a writer that sees no reader after it published knows
  // that every later reader takes what it published.
  live.num_readers_.fetch_add(1, std::memory_order_seq_cst);
  return *live.current_.load(std::memory_order_seq_cst);
}

// Without branches to mispredict: this is most of what a launch costs.
const LiveRange* LiveAllocations::View::search(uint64_t address) const {
  const LiveRange* range = ranges_.data();
  for (size_t count = ranges_.size(); count > 1;) {
    const size_t half = count / 2;
    range += range[half].begin <= address ? half : 0;
    count -= half;
  }
  return address < range->end ? range : nullptr;
}

void LiveAllocations::insert(uint64_t address, uint64_t bytes, uint32_t allocation_id) {
  const LiveRange added{address, address + bytes, allocation_id};
  std::lock_guard<std::mutex> lock(mutex_);
  auto* snapshot = new Snapshot(*current_.load());
  // What the driver hands out anew is no longer anybody else's: a free went unseen.
  snapshot->erase(std::remove_if(snapshot->begin(), snapshot->end(),
                                 [&](const LiveRange& range) {
                                   return range.begin < added.end &&
                                          added.begin < range.end;
                                 }),
                  snapshot->end());
  snapshot->insert(
      std::upper_bound(snapshot->begin(), snapshot->end(), address, begins_after),
      added);
  publish(snapshot);
}

void LiveAllocations::erase(uint64_t address, uint32_t allocation_id) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto* snapshot = new Snapshot(*current_.load());
  snapshot->erase(std::remove_if(snapshot->begin(), snapshot->end(),
                                 [&](const LiveRange& range) {
                                   return range.begin == address &&
                                          range.allocation_id == allocation_id;
                                 }),
                  snapshot->end());
  publish(snapshot);
}

void LiveAllocations::publish(Snapshot* replacement) {
  replaced_.push_back(current_.exchange(replacement, std::memory_order_seq_cst));
  if (num_readers_.load(std::memory_order_seq_cst) != 0) return;
  for (const Snapshot* snapshot : replaced_) delete snapshot;
  replaced_.clear();
}

}  // namespace transit
