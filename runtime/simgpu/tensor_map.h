// What a tensor map holds here. The driver's own form is not known, and nobody may rely
// on one: the address is not in it as such.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <cstring>

namespace simgpu {

constexpr uint32_t kMaxTensorRank = 5;

struct TensorMap {
  uint64_t inverted_address;
  uint32_t type, rank, interleave;
  uint64_t dims[kMaxTensorRank];
  uint64_t strides_bytes[kMaxTensorRank - 1];

  uint64_t address() const { return ~inverted_address; }
};
static_assert(sizeof(TensorMap) <= sizeof(CUtensorMap));

inline TensorMap read_tensor_map(const CUtensorMap& opaque) {
  TensorMap map;
  std::memcpy(&map, &opaque, sizeof(map));
  return map;
}

}  // namespace simgpu
