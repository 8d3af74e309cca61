// A part of a windowed range that moves as one: at home, in pinned host memory, or on
// the GPU, at the same address in both; or nowhere, while nobody needs it: to be mapped
// at home takes as long as to be copied there.
#pragma once

#include "runtime/native/backend/vmm_memory.h"

namespace transit {

class Chunk {
 public:
  // At most so large: the next one's memory is mapped while one is copied.
  static constexpr uint64_t kMostBytes = uint64_t{32} << 20;

  Chunk(CUdevice device, CUdeviceptr address, uint64_t bytes);
  ~Chunk();
  Chunk(const Chunk&) = delete;
  Chunk& operator=(const Chunk&) = delete;

  // To be called once, before all others: it comes to be at home.
  Outcome create();

  // Maps memory of the GPU, as large as the chunk and of any content, or that of the
  // host, or nothing: what it holds is then at home. Nobody may use the chunk
  // meanwhile. If it fails the chunk is where it was.
  Outcome go_to_gpu(PhysicalMemory memory);
  Outcome go_home() { return map(&home_); }
  Outcome go_nowhere() { return map(nullptr); }

  // The GPU's, when it has gone from there.
  PhysicalMemory take_memory() { return std::move(gpu_); }

  // Into the GPU's memory, or from there, when it is on the GPU.
  CUresult copy_in(CUstream stream) const;
  CUresult copy_out(CUstream stream) const;

  bool is_on_gpu() const { return mapped_ == &gpu_; }
  bool is_nowhere() const { return mapped_ == nullptr; }
  CUdeviceptr address() const { return address_; }
  uint64_t bytes() const { return bytes_; }

 private:
  Outcome map(const PhysicalMemory* memory);

  const CUdevice device_;
  const CUdeviceptr address_;
  const uint64_t bytes_;
  CUdeviceptr home_address_ = 0;  // where it can always be reached in host memory
  PhysicalMemory home_, gpu_;
  const PhysicalMemory* mapped_ = nullptr;
};

}  // namespace transit
