#include "runtime/native/memory/placer.h"

#include <inttypes.h>

#include <mutex>
#include <utility>

#include "runtime/native/interpose/driver.h"
#include "runtime/native/lifecycle/log.h"
#include "runtime/native/lifecycle/process.h"
#include "runtime/native/lifecycle/settings.h"
#include "runtime/native/memory/audited.h"
#include "runtime/native/memory/captures.h"
#include "runtime/native/memory/host_memory.h"
#include "runtime/native/memory/recorded_addresses.h"
#include "runtime/native/paging/paging.h"
#include "runtime/native/status/status.h"
#include "runtime/native/windows/windows.h"

namespace transit {
namespace {

// Our own calls, in the context they belong to, allowed while the job captures.
class DriverScope {
 public:
  explicit DriverScope(CUcontext context)
      : pushed_(driver().cuCtxPushCurrent_v2(context) == CUDA_SUCCESS) {}
  ~DriverScope() {
    CUcontext popped = nullptr;
    if (pushed_) driver().cuCtxPopCurrent_v2(&popped);
  }
  DriverScope(const DriverScope&) = delete;
  DriverScope& operator=(const DriverScope&) = delete;

 private:
  const bool pushed_;
  const captures::Relaxed relaxed_;
};

struct Deferred {
  std::mutex mutex;
  std::vector<Allocation> allocations;
};

Deferred& deferred() {
  static Deferred& instance = *new Deferred;
  return instance;
}

// An ordinal is asked for, used and taken by one thread at a time.
std::mutex& placing() {
  static std::mutex& instance = *new std::mutex;
  return instance;
}

void count_match(const Allocation& allocation, bool is_planned) {
  if (replay() == nullptr) return;
  status::add(is_planned ? &StatusFile::allocations_matched
                         : &StatusFile::allocations_unmatched);
  log::info("allocation %d of device %d: %" PRIu64 " bytes, %s", allocation.ordinal,
            allocation.device, allocation.bytes,
            allocation.placed != nullptr ? "placed" : "left to the driver");
}

const FlatAllocation* find_planned(CUdevice device, uint64_t bytes) {
  if (replay() == nullptr) return nullptr;
  const uint32_t ordinal = Registry::instance().next_ordinal(device);
  const FlatAllocation* planned = replay()->plan->find(device, ordinal);
  return planned != nullptr && planned->bytes == bytes ? planned : nullptr;
}

void report_unplaced(const Allocation& allocation, const Outcome& outcome) {
  status::add(&StatusFile::placement_failures);
  log::failure("allocation %u of device %d, %" PRIu64
               " bytes: %s: %s; left to the driver",
               Registry::instance().next_ordinal(allocation.device), allocation.device,
               allocation.bytes, outcome.what, error_name(outcome.result));
}

// To be found by the job as it finds that a card is full.
CUresult refuse(const Allocation& allocation, uint64_t host_bytes,
                const Outcome& outcome) {
  status::add(&StatusFile::host_refusals);
  log::failure("allocation of %" PRIu64
               " bytes on device %d refused as out of memory: it takes %" PRIu64
               " bytes of host memory: %s; this process has %" PRIu64
               ", and all of the job may have %" PRIu64
               " (0: no bound); give more --host-memory if there is more, or let the "
               "job use less",
               allocation.bytes, allocation.device, host_bytes, outcome.what,
               status::get(&StatusFile::host_bytes), settings().host_memory_bytes);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

Outcome place(const FlatAllocation& planned, Allocation* allocation) {
  const Ranges ranges = replay()->plan->ranges_of(planned);
  CUdeviceptr address = recorded_addresses::take(planned);
  const bool is_at_recorded_address = address != 0;
  Outcome outcome = replay()->backend->allocate(allocation->device, ranges, &address);
  if (outcome.ok()) {
    outcome = windows::add(planned, address, is_at_recorded_address);
    if (!outcome.ok()) {
      replay()->backend->release(allocation->device, address, ranges,
                                 is_at_recorded_address);
    }
  }
  if (!outcome.ok()) {
    if (is_at_recorded_address) recorded_addresses::give_back(planned);
    return outcome;
  }
  allocation->address = address;
  allocation->placed = &planned;
  allocation->is_at_recorded_address = is_at_recorded_address;
  return outcome;
}

Outcome page(Allocation* allocation) {
  CUdeviceptr address = 0;
  const Outcome outcome =
      paging::allocate(allocation->device, allocation->bytes, &address);
  allocation->address = address;
  allocation->is_paged = outcome.ok();
  return outcome;
}

// As planned, or paged without a plan.
Outcome allocate_placed(const FlatAllocation* planned, uint64_t host_bytes,
                        Allocation* allocation) {
  if (!host_memory::take(host_bytes)) {
    return {CUDA_ERROR_OUT_OF_MEMORY, "more than is left of --host-memory", true};
  }
  driver().cuCtxGetCurrent(&allocation->context);
  const DriverScope scope(allocation->context);
  const Outcome outcome =
      planned != nullptr ? place(*planned, allocation) : page(allocation);
  if (outcome.ok()) {
    allocation->host_bytes = host_bytes;
  } else {
    host_memory::give_back(host_bytes);
  }
  return outcome;
}

uint64_t host_bytes_for(const FlatAllocation* planned, uint64_t bytes) {
  return planned != nullptr ? replay()->plan->ranges_of(*planned).host_bytes()
                            : round_up_to_piece(bytes);
}

// By the driver, or for an audit in its stead.
CUresult allocate_unplaced(Allocation* allocation) {
  CUdeviceptr address = 0;
  CUresult result = CUDA_SUCCESS;
  if (audited::is_on()) {
    driver().cuCtxGetCurrent(&allocation->context);
    const DriverScope scope(allocation->context);
    const auto served = audited::allocate(allocation->device, allocation->bytes);
    address = served.address;
    result = served.result;
    if (served.is_managed) allocation->api = TRANSIT_API_AUDITED;
  } else {
    windows::make_room(allocation->bytes);
    result = driver().cuMemAlloc_v2(&address, allocation->bytes);
  }
  allocation->address = address;
  return result;
}

// As cuMemFree does, it waits for the device first.
CUresult release_paged(const Allocation& allocation) {
  const CUresult waited = driver().cuCtxSynchronize();
  paging::release(allocation.address);
  count_free(allocation);
  return waited;
}

CUresult release_now(const Allocation& allocation) {
  const DriverScope scope(allocation.context);
  if (allocation.is_paged) return release_paged(allocation);
  const Ranges ranges = replay()->plan->ranges_of(*allocation.placed);
  windows::remove(*allocation.placed, allocation.is_at_recorded_address);
  const CUresult result = replay()->backend->release(
      allocation.device, allocation.address, ranges, allocation.is_at_recorded_address);
  if (allocation.is_at_recorded_address) {
    recorded_addresses::give_back(*allocation.placed);
  }
  count_free(allocation);
  return result;
}

// What is paged is counted where it moves; what then is too small for it is packed by
// the driver like all that it is left with.
bool is_resident(const Allocation& allocation) {
  return allocation.is_movable && !is_paging();
}

}  // namespace

CUresult allocate_movable(CUdevice device, uint64_t bytes, const char* caller,
                          CUdeviceptr* address) {
  release_deferred();
  const std::lock_guard<std::mutex> lock(placing());
  Allocation allocation;
  allocation.bytes = bytes;
  allocation.device = device;
  allocation.caller = caller;
  allocation.is_movable = true;
  const FlatAllocation* planned = find_planned(device, bytes);
  if (planned != nullptr || paging::takes(bytes)) {
    const uint64_t host_bytes = host_bytes_for(planned, bytes);
    const Outcome outcome = allocate_placed(planned, host_bytes, &allocation);
    if (outcome.is_out_of_host_memory) return refuse(allocation, host_bytes, outcome);
    if (!outcome.ok()) report_unplaced(allocation, outcome);
  }
  if (!allocation.is_placed()) {
    const CUresult result = allocate_unplaced(&allocation);
    if (result != CUDA_SUCCESS) return result;
  }
  *address = allocation.address;
  allocation.ordinal = static_cast<int32_t>(Registry::instance().next_ordinal(device));
  count_alloc(allocation);
  count_match(allocation, planned != nullptr);
  const auto stale = Registry::instance().add(std::move(allocation));
  if (stale) count_free(*stale);
  return CUDA_SUCCESS;
}

CUresult release_placed(const Allocation& allocation) {
  if (!captures::any()) return release_now(allocation);
  const std::lock_guard<std::mutex> lock(deferred().mutex);
  deferred().allocations.push_back(allocation);
  return CUDA_SUCCESS;
}

void release_deferred() {
  const bool may_be_placed = replay() != nullptr || is_paging();
  if (!may_be_placed || captures::any()) return;
  std::vector<Allocation> ready;
  {
    const std::lock_guard<std::mutex> lock(deferred().mutex);
    ready.swap(deferred().allocations);
  }
  for (const Allocation& allocation : ready) release_now(allocation);
}

void count_alloc(const Allocation& allocation) {
  const uint64_t bytes = round_up_to_piece(allocation.bytes);
  if (allocation.placed != nullptr) {
    const Ranges ranges = replay()->plan->ranges_of(*allocation.placed);
    status::add_gpu_bytes(allocation.device, &StatusFile::resident_bytes,
                          &StatusFile::resident_peak_bytes,
                          ranges.bytes(Placement::kResident));
    status::add_bytes(&StatusFile::zero_copy_bytes, &StatusFile::zero_copy_peak_bytes,
                      ranges.bytes(Placement::kZeroCopy));
  } else if (is_resident(allocation)) {
    status::add_gpu_bytes(allocation.device, &StatusFile::resident_bytes,
                          &StatusFile::resident_peak_bytes, bytes);
  } else if (allocation.is_on_device && !allocation.is_paged) {
    status::add(&StatusFile::allocations_passed);
    status::add_gpu_bytes(allocation.device, &StatusFile::passed_bytes,
                          &StatusFile::passed_peak_bytes, allocation.bytes);
  }
  if (allocation.is_movable) status::add(&StatusFile::allocations_seen);
}

void count_free(const Allocation& allocation) {
  host_memory::give_back(allocation.host_bytes);
  const uint64_t bytes = round_up_to_piece(allocation.bytes);
  if (allocation.placed != nullptr) {
    const Ranges ranges = replay()->plan->ranges_of(*allocation.placed);
    status::subtract_gpu_bytes(allocation.device, &StatusFile::resident_bytes,
                               ranges.bytes(Placement::kResident));
    status::subtract_bytes(&StatusFile::zero_copy_bytes,
                           ranges.bytes(Placement::kZeroCopy));
  } else if (is_resident(allocation)) {
    status::subtract_gpu_bytes(allocation.device, &StatusFile::resident_bytes, bytes);
  } else if (allocation.is_on_device && !allocation.is_paged) {
    status::subtract_gpu_bytes(allocation.device, &StatusFile::passed_bytes,
                               allocation.bytes);
  }
  if (allocation.is_movable) {
    status::add(&StatusFile::frees_seen);
    if (audited::is_on()) {
      audited::count_free(allocation.device, allocation.bytes,
                          allocation.api == TRANSIT_API_AUDITED);
    }
  }
}

}  // namespace transit
