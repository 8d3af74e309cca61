#include "runtime/native/interpose/describe_work.h"

namespace transit::describe {
namespace {

// One side of a copy.
struct Box {
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
  size_t x, y, z, pitch, rows_per_slice;
};

Box source(const CUDA_MEMCPY2D& c) {
  return {c.srcMemoryType, c.srcHost, c.srcDevice, c.srcXInBytes,
          c.srcY,          0,         c.srcPitch,  0};
}
Box destination(const CUDA_MEMCPY2D& c) {
  return {c.dstMemoryType, c.dstHost, c.dstDevice, c.dstXInBytes,
          c.dstY,          0,         c.dstPitch,  0};
}
template <typename Copy>  // CUDA_MEMCPY3D and CUDA_MEMCPY3D_PEER
Box source(const Copy& c) {
  return {c.srcMemoryType, c.srcHost, c.srcDevice, c.srcXInBytes,
          c.srcY,          c.srcZ,    c.srcPitch,  c.srcHeight};
}
template <typename Copy>
Box destination(const Copy& c) {
  return {c.dstMemoryType, c.dstHost, c.dstDevice, c.dstXInBytes,
          c.dstY,          c.dstZ,    c.dstPitch,  c.dstHeight};
}

void add_box(Work& work, const Box& box, size_t width, size_t height, size_t depth) {
  if (box.type == CU_MEMORYTYPE_ARRAY || width * height * depth == 0) return;
  const size_t slice_bytes = box.pitch * box.rows_per_slice;
  const CUdeviceptr base =
      box.type == CU_MEMORYTYPE_HOST ? number(box.host) : box.device;
  add_range(work, base + box.z * slice_bytes + box.y * box.pitch + box.x,
            (depth - 1) * slice_bytes + (height - 1) * box.pitch + width);
}

template <typename Copy>
Work describe_boxes(const Copy* copy, size_t depth, CUstream stream) {
  Work described = work(Work::Kind::kCopy, stream);
  add_box(described, destination(*copy), copy->WidthInBytes, copy->Height, depth);
  add_box(described, source(*copy), copy->WidthInBytes, copy->Height, depth);
  return described;
}

template <typename Copy>
Work describe_slices(const Copy* copy, CUstream stream) {
  if (copy == nullptr) return work(Work::Kind::kCopy, stream);
  return describe_boxes(copy, copy->Depth, stream);
}

}  // namespace

Work box_copy(const CUDA_MEMCPY2D* copy, CUstream stream) {
  if (copy == nullptr) return work(Work::Kind::kCopy, stream);
  return describe_boxes(copy, 1, stream);
}

Work box_copy(const CUDA_MEMCPY3D* copy, CUstream stream) {
  return describe_slices(copy, stream);
}

Work box_copy(const CUDA_MEMCPY3D_PEER* copy, CUstream stream) {
  return describe_slices(copy, stream);
}

}  // namespace transit::describe
