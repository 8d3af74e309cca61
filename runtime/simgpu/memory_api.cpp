// Device memory, the stream-ordered kind, and pinned host memory.
#include <sys/mman.h>

#include <cstdio>
#include <cstring>

#include "call.h"
#include "capture.h"
#include "context.h"
#include "memory.h"

namespace simgpu {
namespace {

constexpr size_t kPitchBytes = 512;
constexpr unsigned kHostFlags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP |
                                CU_MEMHOSTALLOC_WRITECOMBINED;

// The range that starts at an address, if it is one of these kinds.
Range range_at(uintptr_t base, std::initializer_list<Kind> kinds) {
  Range range = range_of(base, 0);
  require(range.base == base);
  for (const Kind kind : kinds)
    if (range.kind == kind) return range;
  fail(CUDA_ERROR_INVALID_VALUE);
}

void allocate_host(void** address, size_t bytes) {
  require(address && bytes > 0);
  Context& context = current_context();
  refuse_during_capture();
  require(bytes <= host_memory_bytes(), CUDA_ERROR_OUT_OF_MEMORY);
  Range range;
  range.base = map_aligned(bytes, 4096, PROT_READ | PROT_WRITE);
  range.bytes = bytes;
  range.kind = Kind::kHost;
  range.context = &context;
  range.device = context.device.ordinal;
  range.on_host = true;
  {
    const std::lock_guard lock(memory_mutex());
    add_range(range);
  }
  report_memory(range, false, Call::current().correlation_id);
  *address = reinterpret_cast<void*>(range.base);
}

// Stream-ordered memory is there at once, and goes when the stream gets to it.
void allocate_ordered(CUdeviceptr* address, size_t bytes, CUstream handle) {
  require(address);
  const StreamRef stream = find_stream(handle);
  refuse_capturing(*stream);
  *address = allocate_device(stream->context, bytes, Kind::kPool);
}

CUmemoryPool default_pool(CUdevice device) {
  return reinterpret_cast<CUmemoryPool>(&find_device(device));
}

}  // namespace

DRIVER_API(cuMemAlloc_v2, (CUdeviceptr * address, size_t bytes), (address, bytes)) {
  require(address);
  Context& context = current_context();
  refuse_during_capture();
  *address = allocate_device(context, bytes, Kind::kDevice);
}

DRIVER_API(cuMemAllocPitch_v2,
           (CUdeviceptr * address, size_t* pitch, size_t width, size_t height,
            unsigned element_bytes),
           (address, pitch, width, height, element_bytes)) {
  require(address && pitch && width > 0 && height > 0);
  require(element_bytes == 4 || element_bytes == 8 || element_bytes == 16);
  Context& context = current_context();
  refuse_during_capture();
  require(width <= context.device.memory_bytes, CUDA_ERROR_OUT_OF_MEMORY);
  *pitch = round_up(width, kPitchBytes);
  require(height <= SIZE_MAX / *pitch, CUDA_ERROR_OUT_OF_MEMORY);
  *address = allocate_device(context, *pitch * height, Kind::kDevice);
}

DRIVER_API(cuMemFree_v2, (CUdeviceptr address), (address)) {
  if (address == 0) return;
  current_context();
  refuse_during_capture();
  const Range range = range_at(address, {Kind::kDevice, Kind::kManaged, Kind::kPool});
  range.context->synchronize();
  release(address, Call::current().correlation_id);
}

DRIVER_API(cuMemGetInfo_v2, (size_t* free_bytes, size_t* total_bytes),
           (free_bytes, total_bytes)) {
  require(free_bytes && total_bytes);
  const Device& device = current_context().device;
  const std::lock_guard lock(memory_mutex());
  *total_bytes = device.memory_bytes;
  *free_bytes = device.memory_bytes - used_bytes(device.ordinal);
}

DRIVER_API(cuMemGetAddressRange_v2,
           (CUdeviceptr * base, size_t* bytes, CUdeviceptr address),
           (base, bytes, address)) {
  const std::lock_guard lock(memory_mutex());
  const Range* range = find_range(address);
  require(range, CUDA_ERROR_NOT_FOUND);
  if (base) *base = range->base;
  if (bytes) *bytes = range->bytes;
}

DRIVER_API(cuMemHostAlloc, (void** address, size_t bytes, unsigned flags),
           (address, bytes, flags)) {
  require((flags & ~kHostFlags) == 0);
  allocate_host(address, bytes);
}

DRIVER_API(cuMemAllocHost_v2, (void** address, size_t bytes), (address, bytes)) {
  allocate_host(address, bytes);
}

DRIVER_API(cuMemFreeHost, (void* address), (address)) {
  refuse_during_capture();
  const Range range = range_at(reinterpret_cast<uintptr_t>(address), {Kind::kHost});
  range.context->synchronize();
  release(range.base, Call::current().correlation_id);
}

DRIVER_API(cuMemHostGetDevicePointer_v2,
           (CUdeviceptr * device_address, void* address, unsigned flags),
           (device_address, address, flags)) {
  require(device_address && flags == 0);
  const Range range = range_of(reinterpret_cast<uintptr_t>(address), 0);
  require(range.kind == Kind::kHost || range.kind == Kind::kRegistered);
  *device_address = reinterpret_cast<CUdeviceptr>(address);
}

DRIVER_API(cuMemHostGetFlags, (unsigned* flags, void* address), (flags, address)) {
  require(flags);
  range_at(reinterpret_cast<uintptr_t>(address), {Kind::kHost});
  *flags = CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE;
}

DRIVER_API(cuMemHostRegister_v2, (void* address, size_t bytes, unsigned flags),
           (address, bytes, flags)) {
  const auto base = reinterpret_cast<uintptr_t>(address);
  require(address && bytes > 0 && base + bytes > base);
  Context& context = current_context();
  const std::lock_guard lock(memory_mutex());
  const auto next = ranges().lower_bound(base);
  require(!find_range(base) && (next == ranges().end() || next->first >= base + bytes),
          CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  Range range;
  range.base = base;
  range.bytes = bytes;
  range.kind = Kind::kRegistered;
  range.context = &context;
  range.device = context.device.ordinal;
  range.on_host = true;
  add_range(range);
}

DRIVER_API(cuMemHostUnregister, (void* address), (address)) {
  const auto base = reinterpret_cast<uintptr_t>(address);
  const std::lock_guard lock(memory_mutex());
  const auto found = ranges().find(base);
  require(found != ranges().end() && found->second.kind == Kind::kRegistered,
          CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  ranges().erase(found);
}

STREAM_API(cuMemAllocAsync, ptsz,
           (CUdeviceptr * address, size_t bytes, CUstream stream),
           (address, bytes, stream)) {
  allocate_ordered(address, bytes, stream);
}

STREAM_API(cuMemAllocFromPoolAsync, ptsz,
           (CUdeviceptr * address, size_t bytes, CUmemoryPool pool, CUstream stream),
           (address, bytes, pool, stream)) {
  require(pool == default_pool(current_context().device.ordinal),
          CUDA_ERROR_NOT_SUPPORTED);
  allocate_ordered(address, bytes, stream);
}

STREAM_API(cuMemFreeAsync, ptsz, (CUdeviceptr address, CUstream handle),
           (address, handle)) {
  const StreamRef stream = find_stream(handle);
  refuse_capturing(*stream);
  range_at(address, {Kind::kPool, Kind::kDevice});
  const uint32_t correlation_id = Call::current().correlation_id;
  stream->context.submit(*stream, [=](Stream&) { release(address, correlation_id); });
}

DRIVER_API(cuDeviceGetDefaultMemPool, (CUmemoryPool * pool, CUdevice device),
           (pool, device)) {
  require(pool);
  *pool = default_pool(device);
}

DRIVER_API(cuDeviceGetMemPool, (CUmemoryPool * pool, CUdevice device), (pool, device)) {
  require(pool);
  *pool = default_pool(device);
}

DRIVER_API(cuMemPoolTrimTo, (CUmemoryPool pool, size_t bytes), (pool, bytes)) {
  require(pool);
}

// A handle can be had for memory of cuMemAlloc only: managed and mapped memory have
// none.
DRIVER_API(cuIpcGetMemHandle, (CUipcMemHandle * handle, CUdeviceptr address),
           (handle, address)) {
  require(handle);
  const Range range = range_of(address, 0);
  require(range.kind == Kind::kDevice);
  *handle = {};
  std::snprintf(handle->reserved, sizeof(handle->reserved), "transit-sim-%llu",
                static_cast<unsigned long long>(range.buffer_id));
}

DRIVER_API(cuIpcOpenMemHandle_v2,
           (CUdeviceptr * address, CUipcMemHandle handle, unsigned flags),
           (address, handle, flags)) {
  fail(CUDA_ERROR_NOT_SUPPORTED);
}

}  // namespace simgpu
