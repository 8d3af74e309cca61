#include "runtime/native/windows/chunk.h"

#include "runtime/native/interpose/driver.h"

namespace transit {

Chunk::Chunk(CUdevice device, CUdeviceptr address, uint64_t bytes)
    : device_(device), address_(address), bytes_(bytes) {}

Chunk::~Chunk() {
  if (mapped_ != nullptr) driver().cuMemUnmap(address_, bytes_);
  if (home_address_ == 0) return;
  driver().cuMemUnmap(home_address_, bytes_);
  driver().cuMemAddressFree(home_address_, bytes_);
}

Outcome Chunk::create() {
  Outcome outcome = home_.create(Location::kHost, device_, bytes_);
  if (!outcome.ok()) return outcome;
  CUdeviceptr home = 0;
  const CUresult reserved =
      driver().cuMemAddressReserve(&home, bytes_, kPieceBytes, 0, 0);
  if (reserved != CUDA_SUCCESS) {
    return {reserved, "no addresses left (cuMemAddressReserve)"};
  }
  outcome = home_.map(home);
  if (!outcome.ok()) {
    driver().cuMemAddressFree(home, bytes_);
    return outcome;
  }
  home_address_ = home;
  return map(&home_);
}

Outcome Chunk::map(const PhysicalMemory* memory) {
  const PhysicalMemory* before = mapped_;
  if (before != nullptr) {
    const CUresult unmapped = driver().cuMemUnmap(address_, bytes_);
    if (unmapped != CUDA_SUCCESS) return {unmapped, "cannot unmap memory (cuMemUnmap)"};
  }
  Outcome outcome;
  if (memory != nullptr) outcome = memory->map(address_);
  if (outcome.ok()) {
    mapped_ = memory;
  } else if (before != nullptr && !before->map(address_).ok()) {
    mapped_ = nullptr;
  }
  return outcome;
}

Outcome Chunk::go_to_gpu(PhysicalMemory memory) {
  gpu_ = std::move(memory);
  const Outcome outcome = map(&gpu_);
  if (!outcome.ok()) gpu_.release();
  return outcome;
}

CUresult Chunk::copy_in(CUstream stream) const {
  return driver().cuMemcpyDtoDAsync_v2(address_, home_address_, bytes_, stream);
}

CUresult Chunk::copy_out(CUstream stream) const {
  return driver().cuMemcpyDtoDAsync_v2(home_address_, address_, bytes_, stream);
}

}  // namespace transit
