#include <sys/mman.h>

#include <cstring>

#include "call.h"
#include "capture.h"
#include "context.h"
#include "managed.h"

namespace simgpu {
namespace {

using Happened = std::vector<UvmActivity>;

int location_of(const CUmemLocation& location) {
  switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return find_device(location.id).ordinal;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
      return Page::kHost;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      require(location.id == 0, CUDA_ERROR_INVALID_DEVICE);
      return Page::kHost;
    default:
      fail(CUDA_ERROR_INVALID_VALUE);
  }
}

// The location of the older functions: a device, or CU_DEVICE_CPU.
int location_of(CUdevice device) {
  return device == CU_DEVICE_CPU ? Page::kHost : find_device(device).ordinal;
}

// Calls with the lock held and the managed range; reports what happened without it.
template <class Action>
void with_managed(CUdeviceptr address, size_t bytes, Action action) {
  Happened happened;
  {
    const std::lock_guard lock(memory_mutex());
    const Range* range = find_range(address);
    require(range && range->managed && bytes > 0 && bytes <= range->end() - address);
    action(*range, Access{address, bytes, false, false}, happened);
  }
  report(happened);
}

void advise(CUdeviceptr address, size_t bytes, CUmem_advise advice, int location) {
  require(advice >= CU_MEM_ADVISE_SET_READ_MOSTLY &&
          advice <= CU_MEM_ADVISE_UNSET_ACCESSED_BY);
  refuse_during_capture();
  with_managed(address, bytes,
               [&](const Range& range, const Access& where, Happened& happened) {
                 advise_managed(range, where, advice, location, happened);
               });
}

// Advice that does not depend on the location accepts any.
template <class Location>
int advised_location(CUmem_advise advice, const Location& location) {
  const bool matters = advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ||
                       advice == CU_MEM_ADVISE_SET_ACCESSED_BY ||
                       advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
  return matters ? location_of(location) : Page::kHost;
}

void prefetch(CUdeviceptr address, size_t bytes, int destination, CUstream handle) {
  const StreamRef stream = find_stream(handle);
  refuse_capturing(*stream);
  const Range range = range_of(address, bytes);
  require(range.managed && bytes > 0);
  stream->context.submit(*stream, [=](Stream&) {
    with_managed(address, bytes,
                 [&](const Range& found, const Access& where, Happened& happened) {
                   prefetch_managed(destination, found, where, happened);
                 });
  });
}

// What all pages agree on, else kNowhere.
template <class Member>
int common(const std::vector<Page>& pages, size_t first, size_t last, Member member) {
  for (size_t i = first; i <= last; ++i)
    if (pages[i].*member != pages[first].*member) return Page::kNowhere;
  return pages[first].*member;
}

int location_type(int location) {
  return location >= 0             ? CU_MEM_LOCATION_TYPE_DEVICE
         : location == Page::kHost ? CU_MEM_LOCATION_TYPE_HOST
                                   : CU_MEM_LOCATION_TYPE_INVALID;
}

int location_id(int location) {
  return location >= 0             ? location
         : location == Page::kHost ? CU_DEVICE_CPU
                                   : CU_DEVICE_INVALID;
}

void get_accessed_by(const std::vector<Page>& pages, size_t first, size_t last,
                     void* data, size_t data_bytes) {
  uint64_t all = ~uint64_t{0};
  for (size_t i = first; i <= last; ++i) all &= pages[i].accessed_by;
  auto* ids = static_cast<int*>(data);
  size_t filled = 0;
  for (unsigned device = 0; device < 64; ++device)
    if (all >> device & 1 && filled < data_bytes / sizeof(int))
      ids[filled++] = static_cast<int>(device);
  while (filled < data_bytes / sizeof(int)) ids[filled++] = CU_DEVICE_INVALID;
}

void get_attribute(void* data, size_t data_bytes, CUmem_range_attribute attribute,
                   const std::vector<Page>& pages, size_t first, size_t last) {
  require(data && data_bytes >= sizeof(int) && data_bytes % sizeof(int) == 0);
  const int preferred = common(pages, first, last, &Page::preferred);
  const int prefetched = common(pages, first, last, &Page::last_prefetch);
  int value = 0;
  switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
      value = common(pages, first, last, &Page::read_mostly) == 1;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
      value = location_id(preferred);
      break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
      value = location_id(prefetched);
      break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
      value = location_type(preferred);
      break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
      value = location_type(prefetched);
      break;
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
      return get_accessed_by(pages, first, last, data, data_bytes);
    default:
      fail(CUDA_ERROR_INVALID_VALUE);
  }
  std::memcpy(data, &value, sizeof(value));
}

void get_range_attribute(void* data, size_t data_bytes, CUmem_range_attribute attribute,
                         CUdeviceptr address, size_t bytes) {
  with_managed(address, bytes, [&](const Range& range, const Access&, Happened&) {
    get_attribute(data, data_bytes, attribute, range.managed->pages,
                  (address - range.base) / kPageBytes,
                  (address + bytes - 1 - range.base) / kPageBytes);
  });
}

}  // namespace

DRIVER_API(cuMemAllocManaged, (CUdeviceptr * address, size_t bytes, unsigned flags),
           (address, bytes, flags)) {
  require(address && bytes > 0);
  require(flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST);
  Context& context = current_context();
  refuse_during_capture();
  require(bytes <= host_memory_bytes() + context.device.memory_bytes,
          CUDA_ERROR_OUT_OF_MEMORY);
  Range range;
  range.managed = std::make_shared<Managed>();
  range.managed->pages.resize(round_up(bytes, kPageBytes) / kPageBytes);
  range.base = map_aligned(bytes, kPageBytes, PROT_READ | PROT_WRITE);
  range.bytes = bytes;
  range.kind = Kind::kManaged;
  range.context = &context;
  range.device = context.device.ordinal;
  {
    const std::lock_guard lock(memory_mutex());
    add_range(range);
  }
  report_memory(range, false, Call::current().correlation_id);
  *address = range.base;
}

DRIVER_API(cuMemAdvise,
           (CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device),
           (address, bytes, advice, device)) {
  advise(address, bytes, advice, advised_location(advice, device));
}

DRIVER_API(cuMemAdvise_v2,
           (CUdeviceptr address, size_t bytes, CUmem_advise advice,
            CUmemLocation location),
           (address, bytes, advice, location)) {
  advise(address, bytes, advice, advised_location(advice, location));
}

STREAM_API(cuMemPrefetchAsync, ptsz,
           (CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream),
           (address, bytes, device, stream)) {
  prefetch(address, bytes, location_of(device), stream);
}

STREAM_API(cuMemPrefetchAsync_v2, ptsz,
           (CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned flags,
            CUstream stream),
           (address, bytes, location, flags, stream)) {
  require(flags == 0);
  prefetch(address, bytes, location_of(location), stream);
}

STREAM_API(cuStreamAttachMemAsync, ptsz,
           (CUstream stream, CUdeviceptr address, size_t bytes, unsigned flags),
           (stream, address, bytes, flags)) {
  find_stream(stream);
  require(range_of(address, bytes).managed != nullptr);
}

DRIVER_API(cuMemRangeGetAttribute,
           (void* data, size_t data_bytes, CUmem_range_attribute attribute,
            CUdeviceptr address, size_t bytes),
           (data, data_bytes, attribute, address, bytes)) {
  get_range_attribute(data, data_bytes, attribute, address, bytes);
}

DRIVER_API(cuMemRangeGetAttributes,
           (void** data, size_t* data_bytes, CUmem_range_attribute* attributes,
            size_t count, CUdeviceptr address, size_t bytes),
           (data, data_bytes, attributes, count, address, bytes)) {
  require(data && data_bytes && attributes);
  for (size_t i = 0; i < count; ++i)
    get_range_attribute(data[i], data_bytes[i], attributes[i], address, bytes);
}

}  // namespace simgpu
