#include "runtime/native/paging/paging.h"

#include <string.h>

#include <atomic>

#include "runtime/native/backend/managed_memory.h"
#include "runtime/native/interpose/driver.h"
#include "runtime/native/lifecycle/process.h"
#include "runtime/native/lifecycle/settings.h"
#include "runtime/native/paging/advised_memory.h"
#include "runtime/native/paging/managed_pager.h"
#include "runtime/native/paging/pager.h"
#include "runtime/native/windows/windows.h"

namespace transit::paging {
namespace {

// Of addresses: more than there is memory, since what is freed leaves gaps, if they can
// be had.
constexpr uint64_t kMostSpanBytes = uint64_t{1} << 40;
constexpr uint64_t kLeastSpanBytes = uint64_t{1} << 34;

// Made for the first allocation, by one thread at a time; never destroyed.
struct Owner {
  CUdevice device;
  MemoryOwner* memory;
};
std::atomic<const Owner*> g_owner{nullptr};

const Owner* owner() { return g_owner.load(std::memory_order_acquire); }

template <typename Pager>
MemoryOwner* follow(Pager* pager) {
  windows::set_follower(pager);
  return pager;
}

Outcome start_on_demand(CUdevice device, MemoryOwner** memory) {
  const auto backend = make_vmm_backend();
  uint64_t span_bytes = kMostSpanBytes;
  CUdeviceptr lowest = backend->reserve(device, span_bytes);
  while (lowest == 0 && span_bytes > kLeastSpanBytes) {
    span_bytes /= 2;
    lowest = backend->reserve(device, span_bytes);
  }
  if (lowest == 0) {
    return {CUDA_ERROR_OUT_OF_MEMORY, "no addresses left (cuMemAddressReserve)"};
  }
  CUcontext context = nullptr;
  driver().cuCtxGetCurrent(&context);
  const Pager::Options options{settings().paging_bytes, settings().paging_ahead};
  *memory = follow(new Pager(options, device, context, lowest, span_bytes));
  return {};
}

Outcome start_managed(CUdevice device, Policy policy, MemoryOwner** memory) {
  const Outcome supported = managed::check(device);
  if (!supported.ok()) return supported;
  const uint64_t budget_bytes = settings().paging_bytes;
  if (policy == Policy::kAdvise) {
    *memory = new AdvisedMemory(budget_bytes, device);
    return {};
  }
  size_t free_bytes = 0, total_bytes = 0;
  driver().cuMemGetInfo_v2(&free_bytes, &total_bytes);
  const ManagedPager::Options options{budget_bytes, policy == Policy::kPrefetch,
                                      free_bytes};
  *memory = follow(new ManagedPager(options, device));
  return {};
}

Outcome start(CUdevice device) {
  const Policy policy =
      find_policy(settings().paging_policy).value_or(Policy::kOnDemand);
  MemoryOwner* memory = nullptr;
  const Outcome started = policy == Policy::kOnDemand
                              ? start_on_demand(device, &memory)
                              : start_managed(device, policy, &memory);
  if (!started.ok()) return started;
  g_owner.store(new Owner{device, memory}, std::memory_order_release);
  return {};
}

}  // namespace

std::optional<Policy> find_policy(const char* name) {
  if (name == nullptr) return Policy::kOnDemand;
  if (strcmp(name, "base") == 0) return Policy::kBase;
  if (strcmp(name, "prefetch") == 0) return Policy::kPrefetch;
  if (strcmp(name, "advise") == 0) return Policy::kAdvise;
  return std::nullopt;
}

bool takes(uint64_t bytes) { return is_paging() && bytes >= kPieceBytes; }

Outcome allocate(CUdevice device, uint64_t bytes, CUdeviceptr* address) {
  if (owner() == nullptr) {
    const Outcome started = start(device);
    if (!started.ok()) return started;
  }
  if (owner()->device != device) {
    return {CUDA_ERROR_NOT_SUPPORTED, "paging is on one device of a process only"};
  }
  return owner()->memory->add(bytes, address);
}

void release(CUdeviceptr address) { owner()->memory->remove(address); }

bool is_on(CUdevice device) {
  return is_paging() && (owner() == nullptr || owner()->device == device);
}

}  // namespace transit::paging
