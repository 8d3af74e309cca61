// The events of interpose/events.h that concern memory: placing what is to be
// placed, following all the rest.
#include "runtime/native/interpose/events.h"

#include <utility>

#include "runtime/native/interpose/driver.h"
#include "runtime/native/lifecycle/process.h"
#include "runtime/native/memory/audited.h"
#include "runtime/native/memory/caller.h"
#include "runtime/native/memory/memory_info.h"
#include "runtime/native/memory/placer.h"
#include "runtime/native/memory/registry.h"
#include "runtime/native/windows/windows.h"

namespace transit::events {
namespace {

// A driver or observer that allocates while we allocate is not the job.
thread_local bool t_inside = false;

class Entry {
 public:
  Entry() : is_outermost_(!t_inside) { t_inside = true; }
  ~Entry() {
    if (is_outermost_) t_inside = false;
  }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  bool is_from_job() const { return is_outermost_ && is_active(); }

 private:
  const bool is_outermost_;
};

CUdevice current_device() {
  CUdevice device = -1;
  if (driver().cuCtxGetDevice(&device) != CUDA_SUCCESS) return -1;
  return device;
}

void follow(Allocation allocation) {
  count_alloc(allocation);
  const auto stale = Registry::instance().add(std::move(allocation));
  if (stale) count_free(*stale);
}

}  // namespace

CUresult on_mem_alloc(CUdeviceptr* address, size_t bytes, const void* caller) {
  const auto real = driver().cuMemAlloc_v2;
  if (real == nullptr) return CUDA_ERROR_NOT_FOUND;
  const Entry entry;
  if (!entry.is_from_job()) return real(address, bytes);
  start();
  const CUdevice device = current_device();
  // The driver has its own words for these.
  if (address == nullptr || bytes == 0 || device < 0) return real(address, bytes);
  note_card();
  const char* module = module_of(caller);
  if (!keeps_its_memory(module)) {
    return allocate_movable(device, bytes, module, address);
  }
  windows::make_room(bytes);
  const CUresult result = real(address, bytes);
  if (result == CUDA_SUCCESS) {
    Allocation allocation;
    allocation.address = *address;
    allocation.bytes = bytes;
    allocation.device = device;
    allocation.caller = module;
    follow(std::move(allocation));
  }
  return result;
}

CUresult on_mem_free(CUdeviceptr address) {
  const auto real = driver().cuMemFree_v2;
  if (real == nullptr) return CUDA_ERROR_NOT_FOUND;
  const Entry entry;
  if (!entry.is_from_job()) return real(address);
  release_deferred();
  const auto allocation = Registry::instance().take(address);
  if (allocation && (allocation->placed != nullptr || allocation->is_paged)) {
    return release_placed(*allocation);
  }
  if (allocation) count_free(*allocation);
  return real(address);
}

void before_alloc(size_t bytes) {
  const Entry entry;
  if (entry.is_from_job()) windows::make_room(bytes);
}

void on_alloc(TransitAllocationApi api, CUdeviceptr address, size_t bytes,
              const void* caller) {
  const Entry entry;
  if (!entry.is_from_job()) return;
  Allocation allocation;
  allocation.address = address;
  allocation.bytes = bytes;
  allocation.device = current_device();
  allocation.api = api;
  allocation.is_on_device = api != TRANSIT_API_HOST;
  allocation.caller = module_of(caller);
  follow(std::move(allocation));
}

void on_free(CUdeviceptr address) {
  const Entry entry;
  if (!entry.is_from_job()) return;
  const auto allocation = Registry::instance().take(address);
  if (allocation) count_free(*allocation);
}

void on_map(CUdeviceptr address, size_t bytes, CUmemGenericAllocationHandle handle,
            const void* caller) {
  const Entry entry;
  if (!entry.is_from_job()) return;
  CUmemAllocationProp properties{};
  driver().cuMemGetAllocationPropertiesFromHandle(&properties, handle);
  Allocation allocation;
  allocation.address = address;
  allocation.bytes = bytes;
  allocation.api = TRANSIT_API_VMM;
  allocation.is_on_device = properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  allocation.device =
      allocation.is_on_device ? properties.location.id : current_device();
  allocation.caller = module_of(caller);
  follow(std::move(allocation));
}

void on_unmap(CUdeviceptr address, size_t bytes) {
  const Entry entry;
  if (!entry.is_from_job()) return;
  for (const Allocation& allocation :
       Registry::instance().take_within(address, bytes)) {
    count_free(allocation);
  }
}

CUresult on_mem_get_info(size_t* free_bytes, size_t* total_bytes) {
  const auto real = driver().cuMemGetInfo_v2;
  if (real == nullptr) return CUDA_ERROR_NOT_FOUND;
  const Entry entry;
  const CUresult result = real(free_bytes, total_bytes);
  if (result != CUDA_SUCCESS || !entry.is_from_job()) return result;
  const auto info = memory_info(current_device(), *free_bytes);
  if (!info) return result;
  *free_bytes = info->free_bytes;
  *total_bytes = info->total_bytes;
  return result;
}

std::optional<Extent> find_placed(CUdeviceptr address) {
  const bool may_be_placed = replay() != nullptr || is_paging() || audited::is_on();
  if (!may_be_placed) return std::nullopt;
  const auto allocation = Registry::instance().find_placed(address);
  if (!allocation) return std::nullopt;
  return Extent{allocation->address, allocation->bytes, allocation->device};
}

}  // namespace transit::events
