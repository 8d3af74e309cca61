// Placements by advice on managed memory. Where the pages really are is the driver's
// business: advice is followed as long as the card has room for what prefers it.
#include "runtime/native/backend/backend.h"
#include "runtime/native/interpose/driver.h"

namespace transit {
namespace {

CUmemLocation on_device(CUdevice device) {
  return {CU_MEM_LOCATION_TYPE_DEVICE, device};
}

CUmemLocation on_host() { return {CU_MEM_LOCATION_TYPE_HOST, 0}; }

// A stream of its own: prefetching on a stream that is being captured would break the
// capture, and the job's other streams have better things to wait for.
class SideStream {
 public:
  SideStream() : result_(driver().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING)) {}
  ~SideStream() {
    if (result_ == CUDA_SUCCESS) driver().cuStreamDestroy_v2(stream_);
  }
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;

  CUresult prefetch_to_host(CUdeviceptr address, uint64_t bytes) {
    if (result_ != CUDA_SUCCESS) return result_;
    const CUresult result =
        driver().cuMemPrefetchAsync_v2(address, bytes, on_host(), 0, stream_);
    return result != CUDA_SUCCESS ? result : driver().cuStreamSynchronize(stream_);
  }

 private:
  CUstream stream_ = nullptr;
  CUresult result_;
};

CUresult keep_resident(CUdevice device, CUdeviceptr address, uint64_t bytes) {
  return driver().cuMemAdvise_v2(address, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION,
                                 on_device(device));
}

// The prefetch fills the pages now: by GPU faults, later, it costs as much per page as
// a whole iteration can lose.
CUresult keep_on_host(CUdevice device, CUdeviceptr address, uint64_t bytes) {
  CUresult result = driver().cuMemAdvise_v2(
      address, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, on_host());
  if (result != CUDA_SUCCESS) return result;
  result = driver().cuMemAdvise_v2(address, bytes, CU_MEM_ADVISE_SET_ACCESSED_BY,
                                   on_device(device));
  return result != CUDA_SUCCESS ? result
                                : SideStream().prefetch_to_host(address, bytes);
}

// What is resident here next shall move to the device when it is first used, and not
// be reached over the link.
void end_access_from_device(CUdevice device, Ranges ranges, CUdeviceptr base) {
  for (const FlatRange& range : ranges) {
    if (range.placement != static_cast<uint32_t>(Placement::kZeroCopy)) continue;
    driver().cuMemAdvise_v2(base + range.offset, range.bytes,
                            CU_MEM_ADVISE_UNSET_ACCESSED_BY, on_device(device));
  }
}

// Without concurrent access every launch would move all managed memory to the device.
bool can_place_managed(CUdevice device) {
  int concurrent = 0;
  driver().cuDeviceGetAttribute(&concurrent,
                                CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, device);
  return concurrent != 0 && driver().cuMemAdvise_v2 != nullptr;
}

class UvmBackend : public Backend {
 public:
  // Managed memory has pages only where it was used or prefetched.
  CUdeviceptr reserve(CUdevice device, uint64_t bytes) override {
    CUdeviceptr base = 0;
    if (!can_place_managed(device)) return 0;
    driver().cuMemAllocManaged(&base, bytes, CU_MEM_ATTACH_GLOBAL);
    return base;
  }

  Outcome allocate(CUdevice device, Ranges ranges, CUdeviceptr* address) override {
    if (!can_place_managed(device)) {
      return {CUDA_ERROR_NOT_SUPPORTED,
              "device or driver cannot place managed memory (it takes concurrent "
              "managed access and CUDA 12.2)"};
    }
    const bool is_reserved = *address != 0;
    const FlatRange& last = ranges.first[ranges.count - 1];
    const CUdeviceptr base =
        is_reserved ? *address : reserve(device, last.offset + last.bytes);
    if (base == 0) {
      return {CUDA_ERROR_OUT_OF_MEMORY, "no memory (cuMemAllocManaged)"};
    }
    for (const FlatRange& range : ranges) {
      const bool resident =
          range.placement == static_cast<uint32_t>(Placement::kResident);
      const CUresult advised = (resident ? keep_resident : keep_on_host)(
          device, base + range.offset, range.bytes);
      if (advised == CUDA_SUCCESS) continue;
      if (is_reserved) {
        end_access_from_device(device, ranges, base);
      } else {
        driver().cuMemFree_v2(base);
      }
      return {advised, resident ? "advice was refused (cuMemAdvise)"
                                : "no host memory, or advice was refused "
                                  "(cuMemAdvise, cuMemPrefetchAsync)"};
    }
    *address = base;
    return {};
  }

  // Within a reservation the pages stay with the driver, for the next that comes here.
  CUresult release(CUdevice device, CUdeviceptr address, Ranges ranges,
                   bool is_reserved) override {
    if (!is_reserved) return driver().cuMemFree_v2(address);
    const CUresult waited = driver().cuCtxSynchronize();
    end_access_from_device(device, ranges, address);
    return waited;
  }
};

}  // namespace

std::unique_ptr<Backend> make_uvm_backend() { return std::make_unique<UvmBackend>(); }

}  // namespace transit
