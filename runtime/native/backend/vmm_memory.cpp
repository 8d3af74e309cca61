#include "runtime/native/backend/vmm_memory.h"

#include "runtime/native/interpose/driver.h"

namespace transit {
namespace {

// Host memory near the device: what crosses the CPUs' own link crosses it twice.
CUmemLocation host_near(CUdevice device) {
  int numa_node = -1;
  driver().cuDeviceGetAttribute(&numa_node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device);
  CUmemLocation location{};
  location.type =
      numa_node < 0 ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_HOST_NUMA;
  location.id = numa_node < 0 ? 0 : numa_node;
  return location;
}

CUmemLocation location_of(Location location, CUdevice device) {
  if (location == Location::kHost) return host_near(device);
  return {CU_MEM_LOCATION_TYPE_DEVICE, device};
}

}  // namespace

PhysicalMemory& PhysicalMemory::operator=(PhysicalMemory&& other) noexcept {
  if (this == &other) return *this;
  release();
  handle_ = other.handle_;
  device_ = other.device_;
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

Outcome PhysicalMemory::create(Location location, CUdevice device, uint64_t bytes) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = location_of(location, device);
  const CUresult result = driver().cuMemCreate(&handle_, bytes, &properties, 0);
  if (result != CUDA_SUCCESS) {
    const bool is_on_host = location == Location::kHost;
    return {result,
            is_on_host ? "no pinned host memory (cuMemCreate)"
                       : "no device memory (cuMemCreate)",
            is_on_host && result == CUDA_ERROR_OUT_OF_MEMORY};
  }
  device_ = device;
  bytes_ = bytes;
  return {};
}

void PhysicalMemory::release() {
  if (bytes_ != 0) driver().cuMemRelease(handle_);
  bytes_ = 0;
}

Outcome PhysicalMemory::map(CUdeviceptr address) const {
  CUresult result = driver().cuMemMap(address, bytes_, 0, handle_, 0);
  if (result != CUDA_SUCCESS) return {result, "cannot map memory (cuMemMap)"};
  CUmemAccessDesc access{};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  result = driver().cuMemSetAccess(address, bytes_, &access, 1);
  if (result == CUDA_SUCCESS) return {};
  driver().cuMemUnmap(address, bytes_);
  return {result, "the device may not access it (cuMemSetAccess)"};
}

}  // namespace transit
