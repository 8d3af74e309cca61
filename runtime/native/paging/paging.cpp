#include "runtime/native/paging/paging.h"

#include <atomic>

#include "runtime/native/interpose/driver.h"
#include "runtime/native/lifecycle/process.h"
#include "runtime/native/lifecycle/settings.h"
#include "runtime/native/paging/pager.h"
#include "runtime/native/windows/windows.h"

namespace transit::paging {
namespace {

// More than any host has memory for: what is freed leaves gaps.
constexpr uint64_t kSpanBytes = uint64_t{1} << 40;

// Made for the first allocation, by one thread at a time; never destroyed.
std::atomic<Pager*> g_pager{nullptr};

Pager* pager() { return g_pager.load(std::memory_order_acquire); }

Outcome start(CUdevice device) {
  const CUdeviceptr lowest = make_vmm_backend()->reserve(device, kSpanBytes);
  if (lowest == 0) {
    return {CUDA_ERROR_OUT_OF_MEMORY, "no addresses left (cuMemAddressReserve)"};
  }
  CUcontext context = nullptr;
  driver().cuCtxGetCurrent(&context);
  const Pager::Options options{settings().paging_bytes, settings().paging_ahead};
  auto* started = new Pager(options, device, context, lowest, kSpanBytes);
  g_pager.store(started, std::memory_order_release);
  windows::set_follower(started);
  return {};
}

}  // namespace

bool takes(uint64_t bytes) { return is_paging() && bytes >= kPieceBytes; }

Outcome allocate(CUdevice device, uint64_t bytes, CUdeviceptr* address) {
  if (pager() == nullptr) {
    const Outcome started = start(device);
    if (!started.ok()) return started;
  }
  if (pager()->device() != device) {
    return {CUDA_ERROR_NOT_SUPPORTED, "paging is on one device of a process only"};
  }
  return pager()->add(bytes, address);
}

void release(CUdeviceptr address) { pager()->remove(address); }

void make_room(uint64_t bytes) {
  if (is_paging() && pager() != nullptr) pager()->make_room(bytes);
}

}  // namespace transit::paging
