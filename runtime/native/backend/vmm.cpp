// Placements by virtual memory management: one reserved address range per allocation,
// and under each range of one placement a handle, on the device or in pinned host
// memory.
#include "runtime/native/backend/backend.h"
#include "runtime/native/backend/vmm_memory.h"
#include "runtime/native/interpose/driver.h"

namespace transit {
namespace {

uint64_t bytes_of(Ranges ranges) {
  const FlatRange& last = ranges.first[ranges.count - 1];
  return last.offset + last.bytes;
}

// Where other numbers that kernels are passed, such as pairs of small integers, are not
// taken for addresses. A wish: the driver knows what is free.
constexpr CUdeviceptr kHighAddress = CUdeviceptr{0x5a5} << 34;

Outcome map_range(CUdevice device, const FlatRange& range, CUdeviceptr address) {
  const bool on_host = range.placement == static_cast<uint32_t>(Placement::kZeroCopy);
  PhysicalMemory memory;
  const Outcome created =
      memory.create(on_host ? Location::kHost : Location::kDevice, device, range.bytes);
  return created.ok() ? memory.map(address) : created;
}

CUresult unmap(CUdeviceptr address, Ranges ranges, uint32_t num_mapped,
               bool keep_addresses) {
  CUresult first_error = CUDA_SUCCESS;
  for (uint32_t i = 0; i < num_mapped; ++i) {
    const FlatRange& range = ranges.first[i];
    if (is_windowed(range)) continue;
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
    driver().cuMemAddressReserve(&base, bytes, kPieceBytes, kHighAddress, 0);
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
      if (is_windowed(range)) continue;  // windows/ puts memory there
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
