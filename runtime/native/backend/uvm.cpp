// Placements by advice on managed memory. Where the pages really are is the driver's
// business: advice is followed as long as the card has room for what prefers it.
#include "runtime/native/backend/backend.h"
#include "runtime/native/backend/managed_memory.h"
#include "runtime/native/interpose/driver.h"

namespace transit {
namespace {

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
    const CUresult result = managed::prefetch_to_host(address, bytes, stream_);
    return result != CUDA_SUCCESS ? result : driver().cuStreamSynchronize(stream_);
  }

 private:
  CUstream stream_ = nullptr;
  CUresult result_;
};

// The prefetch fills the pages now: by GPU faults, later, it costs as much per page as
// a whole iteration can lose.
CUresult keep_on_host(CUdevice device, CUdeviceptr address, uint64_t bytes) {
  const CUresult result = managed::prefer_host(device, address, bytes);
  return result != CUDA_SUCCESS ? result
                                : SideStream().prefetch_to_host(address, bytes);
}

// What is resident here next shall move to the device when it is first used, and not
// be reached over the link.
void end_access_from_device(CUdevice device, Ranges ranges, CUdeviceptr base) {
  for (const FlatRange& range : ranges) {
    if (range.placement != static_cast<uint32_t>(Placement::kZeroCopy)) continue;
    managed::prefer_nothing(device, base + range.offset, range.bytes);
  }
}

class UvmBackend : public Backend {
 public:
  // Managed memory has pages only where it was used or prefetched.
  CUdeviceptr reserve(CUdevice device, uint64_t bytes) override {
    CUdeviceptr base = 0;
    if (!managed::check(device).ok()) return 0;
    driver().cuMemAllocManaged(&base, bytes, CU_MEM_ATTACH_GLOBAL);
    return base;
  }

  Outcome allocate(CUdevice device, Ranges ranges, CUdeviceptr* address) override {
    const Outcome supported = managed::check(device);
    if (!supported.ok()) return supported;
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
      const CUresult advised = (resident ? managed::prefer_device : keep_on_host)(
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
