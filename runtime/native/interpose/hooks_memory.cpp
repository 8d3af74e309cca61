// Memory: allocation, freeing, and what is asked about an address.
#include "runtime/native/interpose/driver.h"
#include "runtime/native/interpose/events.h"
#include "runtime/native/interpose/export.h"
#include "runtime/native/lifecycle/log.h"
#include "runtime/native/lifecycle/process.h"

#define CALLER __builtin_return_address(0)

namespace {

using transit::driver;
namespace events = transit::events;

// Calls the driver's function, or says that it has none.
template <typename Function, typename... Arguments>
CUresult call(Function real, Arguments... arguments) {
  return real != nullptr ? real(arguments...) : CUDA_ERROR_NOT_FOUND;
}

CUdeviceptr as_address(void* host) { return reinterpret_cast<CUdeviceptr>(host); }

}  // namespace

TRANSIT_HOOK CUresult cuInit(unsigned flags) {
  const CUresult result = call(driver().cuInit, flags);
  if (result == CUDA_SUCCESS) transit::start();
  return result;
}

TRANSIT_HOOK CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  return events::on_mem_alloc(address, bytes, CALLER);
}

TRANSIT_HOOK CUresult cuMemFree_v2(CUdeviceptr address) {
  return events::on_mem_free(address);
}

TRANSIT_HOOK CUresult cuMemAllocPitch_v2(CUdeviceptr* address, size_t* pitch,
                                         size_t width, size_t height,
                                         unsigned element_bytes) {
  events::before_alloc(width * height);
  const CUresult result =
      call(driver().cuMemAllocPitch_v2, address, pitch, width, height, element_bytes);
  if (result == CUDA_SUCCESS) {
    events::on_alloc(TRANSIT_API_PITCH, *address, *pitch * height, CALLER);
  }
  return result;
}

TRANSIT_HOOK CUresult cuMemAllocManaged(CUdeviceptr* address, size_t bytes,
                                        unsigned flags) {
  const CUresult result = call(driver().cuMemAllocManaged, address, bytes, flags);
  if (result == CUDA_SUCCESS) {
    events::on_alloc(TRANSIT_API_MANAGED, *address, bytes, CALLER);
  }
  return result;
}

#define ALLOC_ASYNC(symbol)                                                           \
  TRANSIT_HOOK CUresult symbol(CUdeviceptr* address, size_t bytes, CUstream stream) { \
    events::before_alloc(bytes);                                                      \
    const CUresult result = call(driver().symbol, address, bytes, stream);            \
    if (result == CUDA_SUCCESS) {                                                     \
      events::on_alloc(TRANSIT_API_ASYNC, *address, bytes, CALLER);                   \
    }                                                                                 \
    return result;                                                                    \
  }
ALLOC_ASYNC(cuMemAllocAsync)
ALLOC_ASYNC(cuMemAllocAsync_ptsz)

#define ALLOC_FROM_POOL(symbol)                                                       \
  TRANSIT_HOOK CUresult symbol(CUdeviceptr* address, size_t bytes, CUmemoryPool pool, \
                               CUstream stream) {                                     \
    events::before_alloc(bytes);                                                      \
    const CUresult result = call(driver().symbol, address, bytes, pool, stream);      \
    if (result == CUDA_SUCCESS) {                                                     \
      events::on_alloc(TRANSIT_API_ASYNC, *address, bytes, CALLER);                   \
    }                                                                                 \
    return result;                                                                    \
  }
ALLOC_FROM_POOL(cuMemAllocFromPoolAsync)
ALLOC_FROM_POOL(cuMemAllocFromPoolAsync_ptsz)

#define FREE_ASYNC(symbol)                                             \
  TRANSIT_HOOK CUresult symbol(CUdeviceptr address, CUstream stream) { \
    events::on_free(address);                                          \
    return call(driver().symbol, address, stream);                     \
  }
FREE_ASYNC(cuMemFreeAsync)
FREE_ASYNC(cuMemFreeAsync_ptsz)

TRANSIT_HOOK CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                               CUmemGenericAllocationHandle handle,
                               unsigned long long flags) {
  const CUresult result =
      call(driver().cuMemMap, address, bytes, offset, handle, flags);
  if (result == CUDA_SUCCESS) events::on_map(address, bytes, handle, CALLER);
  return result;
}

TRANSIT_HOOK CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  events::on_unmap(address, bytes);
  return call(driver().cuMemUnmap, address, bytes);
}

TRANSIT_HOOK CUresult cuMemHostAlloc(void** host, size_t bytes, unsigned flags) {
  const CUresult result = call(driver().cuMemHostAlloc, host, bytes, flags);
  if (result == CUDA_SUCCESS) {
    events::on_alloc(TRANSIT_API_HOST, as_address(*host), bytes, CALLER);
  }
  return result;
}

TRANSIT_HOOK CUresult cuMemAllocHost_v2(void** host, size_t bytes) {
  const CUresult result = call(driver().cuMemAllocHost_v2, host, bytes);
  if (result == CUDA_SUCCESS) {
    events::on_alloc(TRANSIT_API_HOST, as_address(*host), bytes, CALLER);
  }
  return result;
}

TRANSIT_HOOK CUresult cuMemFreeHost(void* host) {
  events::on_free(as_address(host));
  return call(driver().cuMemFreeHost, host);
}

TRANSIT_HOOK CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  return events::on_mem_get_info(free_bytes, total_bytes);
}

// With several handles under one allocation the driver knows only the piece.
TRANSIT_HOOK CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes,
                                              CUdeviceptr address) {
  const auto placed = events::find_placed(address);
  if (!placed) return call(driver().cuMemGetAddressRange_v2, base, bytes, address);
  if (base != nullptr) *base = placed->address;
  if (bytes != nullptr) *bytes = placed->bytes;
  return CUDA_SUCCESS;
}

namespace {

template <typename Value>
void store(void* data, Value value) {
  *static_cast<Value*>(data) = value;
}

// Says of placed memory what the driver would say if it had made it, which is asked
// also while nothing is mapped there. False for what depends on where it is.
bool correct_attribute(const events::Extent& placed, CUpointer_attribute attribute,
                       void* data, CUdeviceptr address) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      store<CUdeviceptr>(data, placed.address);
      return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      store<size_t>(data, placed.bytes);
      return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      store<CUdeviceptr>(data, address);
      return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      store<int>(data, placed.device);
      return true;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      store<unsigned>(data, CU_MEMORYTYPE_DEVICE);
      return true;
    default:
      return false;
  }
}

}  // namespace

TRANSIT_HOOK CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute,
                                            CUdeviceptr address) {
  const CUresult result =
      call(driver().cuPointerGetAttribute, data, attribute, address);
  const bool is_unmapped = result == CUDA_ERROR_INVALID_VALUE && data != nullptr;
  if (result != CUDA_SUCCESS && !is_unmapped) return result;
  const auto placed = events::find_placed(address);
  const bool is_known = placed && correct_attribute(*placed, attribute, data, address);
  return is_known ? CUDA_SUCCESS : result;
}

// The driver answers for any address: with zeros where it has nothing to say.
TRANSIT_HOOK CUresult cuPointerGetAttributes(unsigned count,
                                             CUpointer_attribute* attributes,
                                             void** data, CUdeviceptr address) {
  const CUresult result =
      call(driver().cuPointerGetAttributes, count, attributes, data, address);
  if (result != CUDA_SUCCESS) return result;
  const auto placed = events::find_placed(address);
  if (!placed) return result;
  for (unsigned i = 0; i < count; ++i) {
    correct_attribute(*placed, attributes[i], data[i], address);
  }
  return result;
}

// Neither backend's memory can be shared so; the driver says no, and we say why.
TRANSIT_HOOK CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  const CUresult result = call(driver().cuIpcGetMemHandle, handle, address);
  if (result == CUDA_SUCCESS || !events::find_placed(address)) return result;
  constexpr char kWhy[] =
      "cuIpcGetMemHandle: memory that transit placed cannot be shared with another "
      "process; put the calling library into TRANSIT_KEEP_MODULES";
  transit::status::set_message(kWhy);
  transit::log::warn("%s", kWhy);
  return result;
}
