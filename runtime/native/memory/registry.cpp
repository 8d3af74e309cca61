#include "runtime/native/memory/registry.h"

#include <utility>

namespace transit {

Registry& Registry::instance() {
  static Registry& instance = *new Registry;
  return instance;
}

uint32_t Registry::next_ordinal(int32_t device) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return num_movable_[device];
}

std::optional<Allocation> Registry::add(Allocation allocation) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::optional<Allocation> stale;
  const auto position = live_.find(allocation.address);
  if (position != live_.end()) stale = remove(position);
  allocation.id = num_allocations_++;
  if (allocation.is_movable) {
    allocation.ordinal = static_cast<int32_t>(num_movable_[allocation.device]++);
  }
  report(allocation);
  live_.emplace(allocation.address, std::move(allocation));
  return stale;
}

std::optional<Allocation> Registry::take(uint64_t address) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto position = live_.find(address);
  if (position == live_.end()) return std::nullopt;
  return remove(position);
}

std::vector<Allocation> Registry::take_within(uint64_t address, uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Allocation> taken;
  auto position = live_.lower_bound(address);
  while (position != live_.end() && position->first - address < bytes) {
    taken.push_back(remove(position++));
  }
  return taken;
}

std::optional<Allocation> Registry::find_placed(uint64_t address) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto position = live_.upper_bound(address);
  if (position == live_.begin()) return std::nullopt;
  const Allocation& allocation = (--position)->second;
  const bool holds = address - allocation.address < allocation.bytes;
  if (!allocation.is_placed() || !holds) return std::nullopt;
  return allocation;
}

void Registry::observe(const TransitObserver* observer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  observer_ = observer;
  for (const auto& entry : live_) report(entry.second);
}

// The observer is called under the lock, so that it hears of one address's allocations
// and frees in the order they happened.
void Registry::report(const Allocation& allocation) const {
  if (observer_ == nullptr) return;
  const TransitAllocation told{
      allocation.address,        allocation.bytes,  allocation.id,
      allocation.ordinal,        allocation.device, allocation.api,
      allocation.caller.c_str(),
  };
  observer_->on_alloc(&told);
}

Allocation Registry::remove(std::map<uint64_t, Allocation>::iterator position) {
  Allocation allocation = std::move(position->second);
  live_.erase(position);
  if (observer_ != nullptr) observer_->on_free(allocation.address, allocation.id);
  return allocation;
}

}  // namespace transit
