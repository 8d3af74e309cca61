#include "runtime/native/backend/managed_memory.h"

#include "runtime/native/interpose/driver.h"

namespace transit::managed {
namespace {

CUmemLocation on_device(CUdevice device) {
  return {CU_MEM_LOCATION_TYPE_DEVICE, device};
}

CUmemLocation on_host() { return {CU_MEM_LOCATION_TYPE_HOST, 0}; }

}  // namespace

// Without concurrent access every launch would move all managed memory to the device.
Outcome check(CUdevice device) {
  int concurrent = 0;
  driver().cuDeviceGetAttribute(&concurrent,
                                CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, device);
  if (concurrent != 0 && driver().cuMemAdvise_v2 != nullptr) return {};
  return {CUDA_ERROR_NOT_SUPPORTED,
          "device or driver cannot place managed memory (it takes concurrent managed "
          "access and CUDA 12.2)"};
}

CUresult prefer_device(CUdevice device, CUdeviceptr address, uint64_t bytes) {
  return driver().cuMemAdvise_v2(address, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION,
                                 on_device(device));
}

CUresult prefer_host(CUdevice device, CUdeviceptr address, uint64_t bytes) {
  const CUresult result = driver().cuMemAdvise_v2(
      address, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, on_host());
  if (result != CUDA_SUCCESS) return result;
  return driver().cuMemAdvise_v2(address, bytes, CU_MEM_ADVISE_SET_ACCESSED_BY,
                                 on_device(device));
}

CUresult prefer_nothing(CUdevice device, CUdeviceptr address, uint64_t bytes) {
  const CUresult result = driver().cuMemAdvise_v2(
      address, bytes, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, on_host());
  if (result != CUDA_SUCCESS) return result;
  return driver().cuMemAdvise_v2(address, bytes, CU_MEM_ADVISE_UNSET_ACCESSED_BY,
                                 on_device(device));
}

CUresult prefetch_to_device(CUdevice device, CUdeviceptr address, uint64_t bytes,
                            CUstream stream) {
  return driver().cuMemPrefetchAsync_v2(address, bytes, on_device(device), 0, stream);
}

CUresult prefetch_to_host(CUdeviceptr address, uint64_t bytes, CUstream stream) {
  return driver().cuMemPrefetchAsync_v2(address, bytes, on_host(), 0, stream);
}

}  // namespace transit::managed
