#include "runtime/native/memory/memory_info.h"

#include <algorithm>

#include "runtime/native/interpose/driver.h"
#include "runtime/native/lifecycle/process.h"
#include "runtime/native/lifecycle/settings.h"
#include "runtime/native/memory/host_memory.h"
#include "runtime/native/memory/registry.h"
#include "runtime/native/paging/paging.h"
#include "runtime/native/status/status.h"

namespace transit {
namespace {

// Each allocation has its place in host memory, wherever it is: it takes no room of the
// budget.
std::optional<MemoryInfo> info_of_paging() {
  if (!host_memory::is_bounded()) return std::nullopt;
  return MemoryInfo{host_memory::free_bytes(), settings().host_memory_bytes};
}

// What is there of the budget, for any allocation, and host memory for those that the
// plan has it for: each of them comes once.
std::optional<MemoryInfo> info_of_replay(CUdevice device, uint64_t card_free_bytes) {
  const Plan& plan = *replay()->plan;
  const uint32_t next_ordinal = Registry::instance().next_ordinal(device);
  uint64_t planned_bytes = 0, to_come_bytes = 0;
  bool is_planned = false;
  for (const FlatAllocation& allocation : plan.allocations()) {
    if (allocation.device != device) continue;
    is_planned = true;
    const uint64_t bytes = plan.ranges_of(allocation).host_bytes();
    planned_bytes += bytes;
    if (allocation.ordinal >= next_ordinal) to_come_bytes += bytes;
  }
  if (!is_planned) return std::nullopt;
  const uint64_t budget = plan.gpu_memory_bytes();
  const uint64_t room_bytes = budget - std::min(budget, status::gpu_bytes(device));
  return MemoryInfo{std::min(room_bytes, card_free_bytes) +
                        std::min(to_come_bytes, host_memory::free_bytes()),
                    budget + planned_bytes};
}

}  // namespace

std::optional<MemoryInfo> memory_info(CUdevice device, uint64_t card_free_bytes) {
  if (paging::is_on(device)) return info_of_paging();
  if (replay() != nullptr) return info_of_replay(device, card_free_bytes);
  return std::nullopt;
}

void note_card() {
  static const bool is_noted = [] {
    size_t free_bytes = 0, total_bytes = 0;
    const bool has_budget = replay() != nullptr || is_paging();
    if (!has_budget ||
        driver().cuMemGetInfo_v2(&free_bytes, &total_bytes) != CUDA_SUCCESS) {
      return false;
    }
    status::add(&StatusFile::card_bytes, total_bytes);
    status::add(&StatusFile::card_taken_bytes, total_bytes - free_bytes);
    return true;
  }();
  static_cast<void>(is_noted);
}

}  // namespace transit
