// Linear copies and sets.
#include <cupti_activity.h>

#include "call.h"
#include "capture.h"
#include "context.h"
#include "memory.h"

namespace simgpu {
namespace {

enum class Side { kHost, kDevice, kUnknown };

uint8_t memory_kind(uintptr_t address) {
  const std::lock_guard lock(memory_mutex());
  const Range* range = find_range(address);
  if (!range) return CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE;
  if (range->managed) return CUPTI_ACTIVITY_MEMORY_KIND_MANAGED;
  return range->on_host ? CUPTI_ACTIVITY_MEMORY_KIND_PINNED
                        : CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
}

bool on_host(Side side, uint8_t kind) {
  if (side != Side::kUnknown) return side == Side::kHost;
  return kind == CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE ||
         kind == CUPTI_ACTIVITY_MEMORY_KIND_PINNED;
}

uint8_t copy_kind(bool from_host, bool to_host) {
  if (from_host)
    return to_host ? CUPTI_ACTIVITY_MEMCPY_KIND_HTOH : CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
  return to_host ? CUPTI_ACTIVITY_MEMCPY_KIND_DTOH : CUPTI_ACTIVITY_MEMCPY_KIND_DTOD;
}

// Memory on the device side must be the driver's, from end to end.
void check_known(uintptr_t address, size_t bytes) {
  const std::lock_guard lock(memory_mutex());
  for (uintptr_t at = address; at < address + bytes;) {
    const Range* range = find_range(at);
    require(range);
    at = range->end();
  }
}

CopyWork describe(uintptr_t destination, Side destination_side, uintptr_t source,
                  Side source_side, size_t bytes) {
  require(destination && source && destination + bytes >= destination &&
          source + bytes >= source);
  if (destination_side == Side::kDevice) check_known(destination, bytes);
  if (source_side == Side::kDevice) check_known(source, bytes);
  const uint8_t from = memory_kind(source), to = memory_kind(destination);
  return {
      destination, source,
      bytes,       copy_kind(on_host(source_side, from), on_host(destination_side, to)),
      from,        to};
}

void wait_for(Stream& stream) {
  stream.drain();
  stream.context.check();
}

struct Ends {
  Side destination, source;
};

constexpr Ends kHtoD = {Side::kDevice, Side::kHost};
constexpr Ends kDtoH = {Side::kHost, Side::kDevice};
constexpr Ends kDtoD = {Side::kDevice, Side::kDevice};
constexpr Ends kAny = {Side::kUnknown, Side::kUnknown};

void copy(uintptr_t destination, uintptr_t source, size_t bytes, Ends ends,
          CUstream handle, bool asynchronous) {
  const StreamRef stream = find_stream(handle);
  if (!asynchronous) refuse_during_capture();
  if (bytes == 0) return;
  const CopyWork work =
      describe(destination, ends.destination, source, ends.source, bytes);
  const bool pageable = work.source_kind == CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE ||
                        work.destination_kind == CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE;
  const bool runs = submit(*stream, work);
  // Pageable memory is staged by the driver: its owner may reuse it after the call.
  if (runs && (pageable || !asynchronous)) wait_for(*stream);
}

uintptr_t address_of(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer);
}

void set(uintptr_t destination, uint32_t value, size_t element_bytes, size_t elements,
         CUstream handle, bool asynchronous) {
  const StreamRef stream = find_stream(handle);
  if (!asynchronous) refuse_during_capture();
  if (elements == 0) return;
  require(elements <= SIZE_MAX / element_bytes && destination % element_bytes == 0);
  const size_t bytes = elements * element_bytes;
  require(destination + bytes > destination);
  check_known(destination, bytes);
  const bool runs =
      submit(*stream, SetWork{destination, value, element_bytes, elements});
  if (runs && !asynchronous) wait_for(*stream);
}

}  // namespace

STREAM_API(cuMemcpyHtoD_v2, ptds, (CUdeviceptr to, const void* from, size_t bytes),
           (to, from, bytes)) {
  copy(to, address_of(from), bytes, kHtoD, nullptr, false);
}

STREAM_API(cuMemcpyDtoH_v2, ptds, (void* to, CUdeviceptr from, size_t bytes),
           (to, from, bytes)) {
  copy(address_of(to), from, bytes, kDtoH, nullptr, false);
}

STREAM_API(cuMemcpyDtoD_v2, ptds, (CUdeviceptr to, CUdeviceptr from, size_t bytes),
           (to, from, bytes)) {
  copy(to, from, bytes, kDtoD, nullptr, false);
}

STREAM_API(cuMemcpy, ptds, (CUdeviceptr to, CUdeviceptr from, size_t bytes),
           (to, from, bytes)) {
  copy(to, from, bytes, kAny, nullptr, false);
}

STREAM_API(cuMemcpyHtoDAsync_v2, ptsz,
           (CUdeviceptr to, const void* from, size_t bytes, CUstream stream),
           (to, from, bytes, stream)) {
  copy(to, address_of(from), bytes, kHtoD, stream, true);
}

STREAM_API(cuMemcpyDtoHAsync_v2, ptsz,
           (void* to, CUdeviceptr from, size_t bytes, CUstream stream),
           (to, from, bytes, stream)) {
  copy(address_of(to), from, bytes, kDtoH, stream, true);
}

STREAM_API(cuMemcpyDtoDAsync_v2, ptsz,
           (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
           (to, from, bytes, stream)) {
  copy(to, from, bytes, kDtoD, stream, true);
}

STREAM_API(cuMemcpyAsync, ptsz,
           (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
           (to, from, bytes, stream)) {
  copy(to, from, bytes, kAny, stream, true);
}

STREAM_API(cuMemcpyPeerAsync, ptsz,
           (CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
            CUcontext from_context, size_t bytes, CUstream stream),
           (to, to_context, from, from_context, bytes, stream)) {
  find_context(to_context);
  find_context(from_context);
  copy(to, from, bytes, kDtoD, stream, true);
}

STREAM_API(cuMemsetD8_v2, ptds, (CUdeviceptr to, unsigned char value, size_t elements),
           (to, value, elements)) {
  set(to, value, 1, elements, nullptr, false);
}

STREAM_API(cuMemsetD16_v2, ptds,
           (CUdeviceptr to, unsigned short value, size_t elements),
           (to, value, elements)) {
  set(to, value, 2, elements, nullptr, false);
}

STREAM_API(cuMemsetD32_v2, ptds, (CUdeviceptr to, unsigned value, size_t elements),
           (to, value, elements)) {
  set(to, value, 4, elements, nullptr, false);
}

STREAM_API(cuMemsetD8Async, ptsz,
           (CUdeviceptr to, unsigned char value, size_t elements, CUstream stream),
           (to, value, elements, stream)) {
  set(to, value, 1, elements, stream, true);
}

STREAM_API(cuMemsetD16Async, ptsz,
           (CUdeviceptr to, unsigned short value, size_t elements, CUstream stream),
           (to, value, elements, stream)) {
  set(to, value, 2, elements, stream, true);
}

STREAM_API(cuMemsetD32Async, ptsz,
           (CUdeviceptr to, unsigned value, size_t elements, CUstream stream),
           (to, value, elements, stream)) {
  set(to, value, 4, elements, stream, true);
}

}  // namespace simgpu
