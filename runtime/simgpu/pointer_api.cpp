// What the driver says about an address.
#include <cstring>

#include "call.h"
#include "context.h"
#include "memory.h"

namespace simgpu {
namespace {

template <class Value>
void store(void* data, Value value) {
  std::memcpy(data, &value, sizeof(value));
}

void get_attribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  require(data);
  const Range range = range_of(address, 0);
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return store(data, range.context ? range.context->handle() : nullptr);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return store(data, range.on_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return store(data, address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      require(range.managed || (range.on_host && range.kind != Kind::kVirtual));
      return store(data, reinterpret_cast<void*>(address));
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return store(data, 0);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return store(data, range.buffer_id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return store(data, range.managed ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return store(data, range.device);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return store(data, range.kind == Kind::kDevice ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return store(data, range.base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return store(data, range.bytes);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return store(data, 1);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return store(data, uint64_t{0});
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return store(data, CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return store(data, static_cast<void*>(nullptr));
    default:
      fail(CUDA_ERROR_NOT_SUPPORTED);
  }
}

size_t bytes_of(CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return 8;
    default:
      return 4;
  }
}

}  // namespace

DRIVER_API(cuPointerGetAttribute,
           (void* data, CUpointer_attribute attribute, CUdeviceptr address),
           (data, attribute, address)) {
  get_attribute(data, attribute, address);
}

// The plural form answers for any address: zeros where there is nothing to say.
DRIVER_API(cuPointerGetAttributes,
           (unsigned count, CUpointer_attribute* attributes, void** data,
            CUdeviceptr address),
           (count, attributes, data, address)) {
  require(attributes && data);
  for (unsigned i = 0; i < count; ++i) {
    std::memset(data[i], 0, bytes_of(attributes[i]));
    try {
      get_attribute(data[i], attributes[i], address);
    } catch (const Error&) {
      if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) store(data[i], -2);
    }
  }
}

DRIVER_API(cuPointerSetAttribute,
           (const void* value, CUpointer_attribute attribute, CUdeviceptr address),
           (value, attribute, address)) {
  require(value && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS);
  range_of(address, 0);
}

}  // namespace simgpu
