#include "runtime/native/paging/paging.h"

#include <atomic>

#include "runtime/native/interpose/driver.h"
#include "runtime/native/lifecycle/process.h"
#include "runtime/native/lifecycle/settings.h"
#include "runtime/native/paging/pager.h"
#include "runtime/native/windows/windows.h"

namespace transit::paging {
namespace {

// Of addresses: more than there is memory, since what is freed leaves gaps, if they can
// be had.
constexpr uint64_t kMostSpanBytes = uint64_t{1} << 40;
constexpr uint64_t kLeastSpanBytes = uint64_t{1} << 34;

// Made for the first allocation, by one thread at a time; never destroyed.
std::atomic<Pager*> g_pager{nullptr};

Pager* pager() { return g_pager.load(std::memory_order_acquire); }

Outcome start(CUdevice device) {
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
  auto* started = new Pager(options, device, context, lowest, span_bytes);
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

bool is_on(CUdevice device) {
  return is_paging() && (pager() == nullptr || pager()->device() == device);
}

}  // namespace transit::paging
