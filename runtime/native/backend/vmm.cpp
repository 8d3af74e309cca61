// Placements by virtual memory management: one reserved address range per allocation,
// and under each range of one placement a handle, on the device or in pinned host
// memory.
#include "runtime/native/backend/backend.h"
#include "runtime/native/interpose/driver.h"

namespace transit {
namespace {

uint64_t bytes_of(Ranges ranges) {
  const FlatRange& last = ranges.first[ranges.count - 1];
  return last.offset + last.bytes;
}

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

CUmemAllocationProp properties_of(const FlatRange& range, CUdevice device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  if (range.placement == static_cast<uint32_t>(Placement::kZeroCopy)) {
    properties.location = host_near(device);
  } else {
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
  }
  return properties;
}

// The mapping keeps the memory alive: the handle is let go at once.
Outcome map_range(CUdevice device, const FlatRange& range, CUdeviceptr address) {
  const Driver& real = driver();
  const bool on_host = range.placement == static_cast<uint32_t>(Placement::kZeroCopy);
  const CUmemAllocationProp properties = properties_of(range, device);
  CUmemGenericAllocationHandle handle = 0;
  CUresult result = real.cuMemCreate(&handle, range.bytes, &properties, 0);
  if (result != CUDA_SUCCESS) {
    return {result, on_host ? "no pinned host memory (cuMemCreate)"
                            : "no device memory (cuMemCreate)"};
  }
  result = real.cuMemMap(address, range.bytes, 0, handle, 0);
  real.cuMemRelease(handle);
  if (result != CUDA_SUCCESS) return {result, "cannot map memory (cuMemMap)"};

  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  result = real.cuMemSetAccess(address, range.bytes, &access, 1);
  if (result == CUDA_SUCCESS) return {};
  real.cuMemUnmap(address, range.bytes);
  return {result, "the device may not access it (cuMemSetAccess)"};
}

CUresult unmap(CUdeviceptr address, Ranges ranges, uint32_t num_mapped,
               bool keep_addresses) {
  CUresult first_error = CUDA_SUCCESS;
  for (uint32_t i = 0; i < num_mapped; ++i) {
    const FlatRange& range = ranges.first[i];
    const CUresult result = driver().cuMemUnmap(address + range.offset, range.bytes);
    if (first_error == CUDA_SUCCESS) first_error = result;
  }
  if (keep_addresses) return first_error;
  const CUresult result = driver().cuMemAddressFree(address, bytes_of(ranges));
  return first_error == CUDA_SUCCESS ? result : first_error;
}

class VmmBackend : public Backend {
 public:
  CUdeviceptr reserve(CUdevice, uint64_t bytes) override {
    CUdeviceptr base = 0;
    if (driver().cuMemAddressReserve == nullptr) return 0;
    driver().cuMemAddressReserve(&base, bytes, kPieceBytes, 0, 0);
    return base;
  }

  Outcome allocate(CUdevice device, Ranges ranges, CUdeviceptr* address) override {
    if (driver().cuMemCreate == nullptr) {
      return {CUDA_ERROR_NOT_SUPPORTED, "the driver has no virtual memory management"};
    }
    const bool is_reserved = *address != 0;
    const CUdeviceptr base = is_reserved ? *address : reserve(device, bytes_of(ranges));
    if (base == 0) {
      return {CUDA_ERROR_OUT_OF_MEMORY, "no addresses left (cuMemAddressReserve)"};
    }
    for (uint32_t i = 0; i < ranges.count; ++i) {
      const FlatRange& range = ranges.first[i];
      const Outcome outcome = map_range(device, range, base + range.offset);
      if (!outcome.ok()) {
        unmap(base, ranges, i, is_reserved);
        return outcome;
      }
    }
    *address = base;
    return {};
  }

  // As cuMemFree does, it waits for the device first.
  CUresult release(CUdevice, CUdeviceptr address, Ranges ranges,
                   bool is_reserved) override {
    const CUresult waited = driver().cuCtxSynchronize();
    const CUresult unmapped = unmap(address, ranges, ranges.count, is_reserved);
    return waited != CUDA_SUCCESS ? waited : unmapped;
  }
};

}  // namespace

std::unique_ptr<Backend> make_vmm_backend() { return std::make_unique<VmmBackend>(); }

}  // namespace transit
