#include "runtime/native/windows/chunk.h"

#include "runtime/native/interpose/driver.h"

namespace transit {

Chunk::Chunk(CUdevice device, CUdeviceptr address, uint64_t bytes)
    : device_(device), address_(address), bytes_(bytes) {}

Chunk::~Chunk() {
  if (is_mapped_) driver().cuMemUnmap(address_, bytes_);
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
  outcome = home_.map(address_);
  is_mapped_ = outcome.ok();
  return outcome;
}

Outcome Chunk::replace(const PhysicalMemory& before,
                       const PhysicalMemory& after) const {
  const CUresult unmapped = driver().cuMemUnmap(address_, bytes_);
  if (unmapped != CUDA_SUCCESS) return {unmapped, "cannot unmap memory (cuMemUnmap)"};
  const Outcome outcome = after.map(address_);
  if (!outcome.ok()) before.map(address_);
  return outcome;
}

Outcome Chunk::go_to_gpu() {
  Outcome outcome = gpu_.create(Location::kDevice, device_, bytes_);
  if (outcome.ok()) outcome = replace(home_, gpu_);
  is_on_gpu_ = outcome.ok();
  if (!is_on_gpu_) gpu_.release();
  return outcome;
}

Outcome Chunk::go_home() {
  const Outcome outcome = replace(gpu_, home_);
  if (!outcome.ok()) return outcome;
  is_on_gpu_ = false;
  gpu_.release();
  return outcome;
}

CUresult Chunk::copy_in(CUstream stream) const {
  return driver().cuMemcpyDtoDAsync_v2(address_, home_address_, bytes_, stream);
}

CUresult Chunk::copy_out(CUstream stream) const {
  return driver().cuMemcpyDtoDAsync_v2(home_address_, address_, bytes_, stream);
}

}  // namespace transit
