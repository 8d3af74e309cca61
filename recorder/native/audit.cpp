#include "recorder/native/audit.h"

#include <algorithm>
#include <iterator>

#include "recorder/native/failure.h"

namespace transit {
namespace {

constexpr uint64_t kBlockBytes = 2 << 20;  // of the driver: it moves no less at will

uint64_t round_down(uint64_t address) { return address & ~(kBlockBytes - 1); }
uint64_t round_up(uint64_t address) { return round_down(address + kBlockBytes - 1); }

}  // namespace

void Audit::add_memory(uint64_t address, uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  memory_[address] = round_up(address + bytes);
}

void Audit::remove_memory(uint64_t address) {
  const std::lock_guard<std::mutex> lock(mutex_);
  memory_.erase(address);
}

std::string Audit::begin() {
  std::map<uint64_t, uint64_t> memory;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    memory = memory_;
  }
  if (memory.empty()) {
    return "no audit: the job has no memory that could be managed in its stead";
  }
  for (const auto& [begin, end] : memory) {
    if (push_to_host({begin, end}, nullptr) != CUDA_SUCCESS) {
      return "no audit: the driver does not bring managed memory to the host";
    }
  }
  driver_.cuCtxSynchronize();
  return {};
}

// In the launch's stream, and so before the next launch there can begin: what that one
// touches is a first touch again, and hides behind nothing that came before.
void Audit::after(const SubmittedLaunch& launch) {
  for (const auto& [begin, end] : ranges_named_by(launch)) {
    if (push_to_host({begin, end}, launch.stream) == CUDA_SUCCESS) continue;
    const std::lock_guard<std::mutex> lock(mutex_);
    ++num_failures_;
  }
}

void Audit::end() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (num_failures_ == 0) return;
  say("audit: " + std::to_string(num_failures_) +
      " times the driver did not take memory back to the host; later touches of it may "
      "be missing");
}

// Whole blocks of the driver, each once: ends by beginnings.
std::map<uint64_t, uint64_t> Audit::ranges_named_by(const SubmittedLaunch& launch) {
  std::map<uint64_t, uint64_t> ranges;
  const std::lock_guard<std::mutex> lock(mutex_);
  // By now the framework has told what its allocator did.
  if (!reach_) reach_ = MemoryReach::of_spool(spool_.folder());
  for (size_t i = 0; i < launch.num_accesses; ++i) {
    const AccessRecord& access = launch.accesses[i];
    const auto after = memory_.upper_bound(access.address);
    if (after == memory_.begin()) continue;
    const auto& [begin, end] = *std::prev(after);
    if (access.address >= end) continue;
    uint64_t& reached = ranges[std::max(begin, round_down(access.address))];
    reached = std::max(reached, std::min(end, round_up(reach_->end_of(access, end))));
  }
  return ranges;
}

CUresult Audit::push_to_host(MemoryRange range, CUstream stream) const {
  const CUmemLocation host{CU_MEM_LOCATION_TYPE_HOST, 0};
  return driver_.cuMemPrefetchAsync_v2(range.begin, range.end - range.begin, host, 0,
                                       stream);
}

}  // namespace transit
