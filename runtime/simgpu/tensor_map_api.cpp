// Encoding tensor maps. Only tiled ones are used by a kernel here.
#include "call.h"
#include "tensor_map.h"

namespace simgpu {
namespace {

constexpr uintptr_t kAddressAlignment = 16;
constexpr uintptr_t kDescriptorAlignment = 64;
constexpr uint64_t kMaxDimension = uint64_t{1} << 32;
constexpr uint64_t kMaxStrideBytes = uint64_t{1} << 40;

void check_place(const CUtensorMap* opaque, const void* address) {
  require(opaque && reinterpret_cast<uintptr_t>(opaque) % kDescriptorAlignment == 0 &&
          reinterpret_cast<uintptr_t>(address) % kAddressAlignment == 0);
}

void write(CUtensorMap* opaque, const TensorMap& map) {
  *opaque = {};
  std::memcpy(opaque, &map, sizeof(map));
}

void encode(CUtensorMap* opaque, CUtensorMapDataType type, uint32_t rank, void* address,
            const cuuint64_t* dims, const cuuint64_t* strides,
            CUtensorMapInterleave interleave) {
  check_place(opaque, address);
  require(rank >= 1 && rank <= kMaxTensorRank && dims && (rank == 1 || strides));
  TensorMap map{};
  map.inverted_address = ~reinterpret_cast<uint64_t>(address);
  map.type = type;
  map.rank = rank;
  map.interleave = interleave;
  for (uint32_t i = 0; i < rank; ++i) {
    require(dims[i] >= 1 && dims[i] <= kMaxDimension);
    map.dims[i] = dims[i];
  }
  for (uint32_t i = 0; i + 1 < rank; ++i) {
    require(strides[i] % kAddressAlignment == 0 && strides[i] < kMaxStrideBytes);
    map.strides_bytes[i] = strides[i];
  }
  write(opaque, map);
}

}  // namespace

DRIVER_API(cuTensorMapEncodeTiled,
           (CUtensorMap * map, CUtensorMapDataType type, cuuint32_t rank, void* address,
            const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box,
            const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
            CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
            CUtensorMapFloatOOBfill fill),
           (map, type, rank, address, dims, strides, box, element_strides, interleave,
            swizzle, promotion, fill)) {
  require(box && element_strides);
  encode(map, type, rank, address, dims, strides, interleave);
}

DRIVER_API(cuTensorMapReplaceAddress, (CUtensorMap * opaque, void* address),
           (opaque, address)) {
  check_place(opaque, address);
  TensorMap map = read_tensor_map(*opaque);
  map.inverted_address = ~reinterpret_cast<uint64_t>(address);
  write(opaque, map);
}

}  // namespace simgpu
