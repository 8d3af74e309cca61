#include "recorder/native/api_calls.h"

#include <algorithm>
#include <iterator>
#include <type_traits>

// The parameter structs name alike things differently (dst, dstDevice, dstHost): the
// overloads below take whichever a struct has, the last argument ranks them.
namespace transit {
namespace {

struct Fallback {};
struct Preferred : Fallback {};

uint64_t number(CUdeviceptr address) { return address; }
uint64_t number(const void* address) { return reinterpret_cast<uint64_t>(address); }

template <typename P>
auto destination(const P& p, Preferred) -> decltype(number(p.dstDevice)) {
  return number(p.dstDevice);
}
template <typename P>
auto destination(const P& p, Fallback) -> decltype(number(p.dst)) {
  return number(p.dst);
}
template <typename P>
auto destination(const P& p, Fallback) -> decltype(number(p.dstHost)) {
  return number(p.dstHost);
}
template <typename P>
auto destination(const P& p, Fallback) -> decltype(uint64_t{sizeof(p.dstArray)}) {
  return 0;  // arrays have no address
}

template <typename P>
auto source(const P& p, Preferred) -> decltype(number(p.srcDevice)) {
  return number(p.srcDevice);
}
template <typename P>
auto source(const P& p, Fallback) -> decltype(number(p.src)) {
  return number(p.src);
}
template <typename P>
auto source(const P& p, Fallback) -> decltype(number(p.srcHost)) {
  return number(p.srcHost);
}
template <typename P>
auto source(const P& p, Fallback) -> decltype(uint64_t{sizeof(p.srcArray)}) {
  return 0;
}

template <typename P>
auto stream_of(const P& p, Preferred) -> decltype(number(p.hStream)) {
  return number(p.hStream);
}
template <typename P>
uint64_t stream_of(const P&, Fallback) {
  return 0;
}

template <typename P>
auto graph_of(const P& p, Preferred) -> decltype(p.hGraphExec) {
  return p.hGraphExec;
}
template <typename P>
auto graph_of(const P& p, Fallback) -> decltype(CUgraphExec{p.hGraph}) {
  return p.hGraph;
}

template <typename P>
auto extra_of(const P& p, Preferred) -> decltype(p.extra) {
  return p.extra;
}
template <typename P>
void** extra_of(const P&, Fallback) {
  return nullptr;
}

template <typename C>
auto depth_of(const C& copy, Preferred) -> decltype(copy.Depth) {
  return copy.Depth;
}
template <typename C>
size_t depth_of(const C&, Fallback) {
  return 1;
}

template <typename P>
auto value_bytes(const P& p, Preferred) -> decltype(sizeof(p.uc)) {
  return sizeof(p.uc);
}
template <typename P>
auto value_bytes(const P& p, Fallback) -> decltype(sizeof(p.us)) {
  return sizeof(p.us);
}
template <typename P>
auto value_bytes(const P& p, Fallback) -> decltype(sizeof(p.ui)) {
  return sizeof(p.ui);
}

void add_copy(AccessCollector& accesses, uint64_t to, uint64_t from, uint64_t bytes) {
  accesses.add_range(from, bytes, Direction::kRead, AccessSource::kCopy);
  accesses.add_range(to, bytes, Direction::kWrite, AccessSource::kCopy);
}

template <typename P>
void read_copy(const void* params, LaunchRecord& launch, Launched&,
               AccessCollector& accesses) {
  const auto& p = *static_cast<const P*>(params);
  launch.stream = stream_of(p, Preferred{});
  add_copy(accesses, destination(p, Preferred{}), source(p, Preferred{}), p.ByteCount);
}

// One side of a 2D or 3D copy, from its first byte to its last, the gaps between rows
// included.
struct Box {
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
  size_t x, y, z, pitch, rows_per_slice;
};

void add_box(AccessCollector& accesses, const Box& box, size_t width, size_t height,
             size_t depth, Direction direction) {
  if (box.type == CU_MEMORYTYPE_ARRAY || width * height * depth == 0) return;
  const size_t slice_bytes = box.pitch * box.rows_per_slice;
  const uint64_t base =
      box.type == CU_MEMORYTYPE_HOST ? number(box.host) : number(box.device);
  accesses.add_range(base + box.z * slice_bytes + box.y * box.pitch + box.x,
                     (depth - 1) * slice_bytes + (height - 1) * box.pitch + width,
                     direction, AccessSource::kCopy);
}

Box source_box(const CUDA_MEMCPY2D& c) {
  return {c.srcMemoryType, c.srcHost, c.srcDevice, c.srcXInBytes,
          c.srcY,          0,         c.srcPitch,  0};
}
Box destination_box(const CUDA_MEMCPY2D& c) {
  return {c.dstMemoryType, c.dstHost, c.dstDevice, c.dstXInBytes,
          c.dstY,          0,         c.dstPitch,  0};
}
template <typename C>  // CUDA_MEMCPY3D and CUDA_MEMCPY3D_PEER
Box source_box(const C& c) {
  return {c.srcMemoryType, c.srcHost, c.srcDevice, c.srcXInBytes,
          c.srcY,          c.srcZ,    c.srcPitch,  c.srcHeight};
}
template <typename C>
Box destination_box(const C& c) {
  return {c.dstMemoryType, c.dstHost, c.dstDevice, c.dstXInBytes,
          c.dstY,          c.dstZ,    c.dstPitch,  c.dstHeight};
}

template <typename C>
void add_box_copy(AccessCollector& accesses, const C& copy) {
  const size_t depth = depth_of(copy, Preferred{});
  add_box(accesses, source_box(copy), copy.WidthInBytes, copy.Height, depth,
          Direction::kRead);
  add_box(accesses, destination_box(copy), copy.WidthInBytes, copy.Height, depth,
          Direction::kWrite);
}

template <typename P>
void read_box_copy(const void* params, LaunchRecord& launch, Launched&,
                   AccessCollector& accesses) {
  const auto& p = *static_cast<const P*>(params);
  launch.stream = stream_of(p, Preferred{});
  if (p.pCopy != nullptr) add_box_copy(accesses, *p.pCopy);
}

template <typename P>
void read_batch_copy(const void* params, LaunchRecord& launch, Launched&,
                     AccessCollector& accesses) {
  const auto& p = *static_cast<const P*>(params);
  launch.stream = stream_of(p, Preferred{});
  if (p.dsts == nullptr || p.srcs == nullptr || p.sizes == nullptr) return;
  for (size_t i = 0; i < p.count; ++i) {
    add_copy(accesses, p.dsts[i], p.srcs[i], p.sizes[i]);
  }
}

// The elements of a 3D batch have sizes only their arrays know; with pointers on both
// sides they are bytes.
template <typename P>
void read_box_batch_copy(const void* params, LaunchRecord& launch, Launched&,
                         AccessCollector& accesses) {
  const auto& p = *static_cast<const P*>(params);
  launch.stream = stream_of(p, Preferred{});
  if (p.opList == nullptr) return;
  const auto add = [&](const CUmemcpy3DOperand& side, const CUextent3D& extent,
                       Direction direction) {
    if (side.type != CU_MEMCPY_OPERAND_TYPE_POINTER) return;
    const auto& at = side.op.ptr;
    const Box box{CU_MEMORYTYPE_DEVICE,
                  nullptr,
                  at.ptr,
                  0,
                  0,
                  0,
                  std::max(at.rowLength, extent.width),
                  std::max(at.layerHeight, extent.height)};
    add_box(accesses, box, extent.width, extent.height, extent.depth, direction);
  };
  for (size_t i = 0; i < p.numOps; ++i) {
    add(p.opList[i].src, p.opList[i].extent, Direction::kRead);
    add(p.opList[i].dst, p.opList[i].extent, Direction::kWrite);
  }
}

template <typename P>
void read_set(const void* params, LaunchRecord& launch, Launched&,
              AccessCollector& accesses) {
  const auto& p = *static_cast<const P*>(params);
  launch.stream = stream_of(p, Preferred{});
  accesses.add_range(p.dstDevice, p.N * value_bytes(p, Preferred{}), Direction::kWrite,
                     AccessSource::kSet);
}

template <typename P>
void read_box_set(const void* params, LaunchRecord& launch, Launched&,
                  AccessCollector& accesses) {
  const auto& p = *static_cast<const P*>(params);
  launch.stream = stream_of(p, Preferred{});
  add_set(accesses, p.dstDevice, p.dstPitch, p.Width * value_bytes(p, Preferred{}),
          p.Height);
}

template <typename C>
void read_shape(const C& config, LaunchRecord& launch) {
  const uint32_t grid[] = {config.gridDimX, config.gridDimY, config.gridDimZ};
  const uint32_t block[] = {config.blockDimX, config.blockDimY, config.blockDimZ};
  std::copy(std::begin(grid), std::end(grid), launch.grid);
  std::copy(std::begin(block), std::end(block), launch.block);
  launch.stream = number(config.hStream);
}

template <typename P>
void read_kernel(const void* params, LaunchRecord& launch, Launched& launched,
                 AccessCollector&) {
  const auto& p = *static_cast<const P*>(params);
  read_shape(p, launch);
  launched = {p.f, p.kernelParams, extra_of(p, Preferred{}), nullptr};
}

template <typename P>
void read_kernel_ex(const void* params, LaunchRecord& launch, Launched& launched,
                    AccessCollector&) {
  const auto& p = *static_cast<const P*>(params);
  if (p.config != nullptr) read_shape(*p.config, launch);
  launched = {p.f, p.kernelParams, p.extra, nullptr};
}

template <typename P>
void read_graph(const void* params, LaunchRecord& launch, Launched& launched,
                AccessCollector&) {
  const auto& p = *static_cast<const P*>(params);
  launch.stream = number(p.hStream);
  launched.graph = graph_of(p, Preferred{});
}

// clang-format off
#define TRANSIT_CALL(kind, reader, api, own_stream)                           \
  {CUPTI_DRIVER_TRACE_CBID_##api, LaunchKind::kind, own_stream, &reader<api##_params>}

constexpr ApiCall kSubmittingCalls[] = {
    TRANSIT_CALL(kKernel, read_kernel, cuLaunchKernel, false),
    TRANSIT_CALL(kKernel, read_kernel, cuLaunchKernel_ptsz, true),
    TRANSIT_CALL(kKernel, read_kernel, cuLaunchCooperativeKernel, false),
    TRANSIT_CALL(kKernel, read_kernel, cuLaunchCooperativeKernel_ptsz, true),
    TRANSIT_CALL(kKernel, read_kernel_ex, cuLaunchKernelEx, false),
    TRANSIT_CALL(kKernel, read_kernel_ex, cuLaunchKernelEx_ptsz, true),
    TRANSIT_CALL(kGraph, read_graph, cuGraphLaunch, false),
    TRANSIT_CALL(kGraph, read_graph, cuGraphLaunch_ptsz, true),
    TRANSIT_CALL(kCopy, read_copy, cuMemcpy, false),
    TRANSIT_CALL(kCopy, read_copy, cuMemcpy_ptds, true),
    TRANSIT_CALL(kCopy, read_copy, cuMemcpyPeer, false),
    TRANSIT_CALL(kCopy, read_copy, cuMemcpyPeer_ptds, true),
    TRANSIT_CALL(kCopy, read_copy, cuMemcpyHtoD_v2, false),
    TRANSIT_CALL(kCopy, read_copy, cuMemcpyHtoD_v2_ptds, true),
    TRANSIT_CALL(kCopy, read_copy, cuMemcpyDtoH_v2, false),
    TRANSIT_CALL(kCopy, read_copy, cuMemcpyDtoH_v2_ptds, true),
    TRANSIT_CALL(kCopy, read_copy, cuMemcpyDtoD_v2, false),
    TRANSIT_CALL(kCopy, read_copy, cuMemcpyDtoD_v2_ptds, true),
    TRANSIT_CALL(kCopy, read_copy, cuMemcpyDtoA_v2, false),
    TRANSIT_CALL(kCopy, read_copy, cuMemcpyDtoA_v2_ptds, true),
    TRANSIT_CALL(kCopy, read_copy, cuMemcpyAtoD_v2, false),
    TRANSIT_CALL(kCopy, read_copy, cuMemcpyAtoD_v2_ptds, true),
    TRANSIT_CALL(kCopy, read_copy, cuMemcpyHtoA_v2, false),
    TRANSIT_CALL(kCopy, read_copy, cuMemcpyHtoA_v2_ptds, true),
    TRANSIT_CALL(kCopy, read_copy, cuMemcpyAtoH_v2, false),
    TRANSIT_CALL(kCopy, read_copy, cuMemcpyAtoH_v2_ptds, true),
    TRANSIT_CALL(kCopy, read_copy, cuMemcpyAtoA_v2, false),
    TRANSIT_CALL(kCopy, read_copy, cuMemcpyAtoA_v2_ptds, true),
    TRANSIT_CALL(kCopy, read_copy, cuMemcpyAsync, false),
    TRANSIT_CALL(kCopy, read_copy, cuMemcpyAsync_ptsz, true),
    TRANSIT_CALL(kCopy, read_copy, cuMemcpyPeerAsync, false),
    TRANSIT_CALL(kCopy, read_copy, cuMemcpyPeerAsync_ptsz, true),
    TRANSIT_CALL(kCopy, read_copy, cuMemcpyHtoDAsync_v2, false),
    TRANSIT_CALL(kCopy, read_copy, cuMemcpyHtoDAsync_v2_ptsz, true),
    TRANSIT_CALL(kCopy, read_copy, cuMemcpyDtoHAsync_v2, false),
    TRANSIT_CALL(kCopy, read_copy, cuMemcpyDtoHAsync_v2_ptsz, true),
    TRANSIT_CALL(kCopy, read_copy, cuMemcpyDtoDAsync_v2, false),
    TRANSIT_CALL(kCopy, read_copy, cuMemcpyDtoDAsync_v2_ptsz, true),
    TRANSIT_CALL(kCopy, read_copy, cuMemcpyHtoAAsync_v2, false),
    TRANSIT_CALL(kCopy, read_copy, cuMemcpyHtoAAsync_v2_ptsz, true),
    TRANSIT_CALL(kCopy, read_copy, cuMemcpyAtoHAsync_v2, false),
    TRANSIT_CALL(kCopy, read_copy, cuMemcpyAtoHAsync_v2_ptsz, true),
    TRANSIT_CALL(kCopy, read_box_copy, cuMemcpy2D_v2, false),
    TRANSIT_CALL(kCopy, read_box_copy, cuMemcpy2D_v2_ptds, true),
    TRANSIT_CALL(kCopy, read_box_copy, cuMemcpy2DUnaligned_v2, false),
    TRANSIT_CALL(kCopy, read_box_copy, cuMemcpy2DUnaligned_v2_ptds, true),
    TRANSIT_CALL(kCopy, read_box_copy, cuMemcpy3D_v2, false),
    TRANSIT_CALL(kCopy, read_box_copy, cuMemcpy3D_v2_ptds, true),
    TRANSIT_CALL(kCopy, read_box_copy, cuMemcpy3DPeer, false),
    TRANSIT_CALL(kCopy, read_box_copy, cuMemcpy3DPeer_ptds, true),
    TRANSIT_CALL(kCopy, read_box_copy, cuMemcpy2DAsync_v2, false),
    TRANSIT_CALL(kCopy, read_box_copy, cuMemcpy2DAsync_v2_ptsz, true),
    TRANSIT_CALL(kCopy, read_box_copy, cuMemcpy3DAsync_v2, false),
    TRANSIT_CALL(kCopy, read_box_copy, cuMemcpy3DAsync_v2_ptsz, true),
    TRANSIT_CALL(kCopy, read_box_copy, cuMemcpy3DPeerAsync, false),
    TRANSIT_CALL(kCopy, read_box_copy, cuMemcpy3DPeerAsync_ptsz, true),
    TRANSIT_CALL(kCopy, read_batch_copy, cuMemcpyBatchAsync, false),
    TRANSIT_CALL(kCopy, read_batch_copy, cuMemcpyBatchAsync_ptsz, true),
    TRANSIT_CALL(kCopy, read_batch_copy, cuMemcpyBatchAsync_v2, false),
    TRANSIT_CALL(kCopy, read_batch_copy, cuMemcpyBatchAsync_v2_ptsz, true),
    TRANSIT_CALL(kCopy, read_box_batch_copy, cuMemcpy3DBatchAsync, false),
    TRANSIT_CALL(kCopy, read_box_batch_copy, cuMemcpy3DBatchAsync_ptsz, true),
    TRANSIT_CALL(kCopy, read_box_batch_copy, cuMemcpy3DBatchAsync_v2, false),
    TRANSIT_CALL(kCopy, read_box_batch_copy, cuMemcpy3DBatchAsync_v2_ptsz, true),
    TRANSIT_CALL(kSet, read_set, cuMemsetD8_v2, false),
    TRANSIT_CALL(kSet, read_set, cuMemsetD8_v2_ptds, true),
    TRANSIT_CALL(kSet, read_set, cuMemsetD8Async, false),
    TRANSIT_CALL(kSet, read_set, cuMemsetD8Async_ptsz, true),
    TRANSIT_CALL(kSet, read_set, cuMemsetD16_v2, false),
    TRANSIT_CALL(kSet, read_set, cuMemsetD16_v2_ptds, true),
    TRANSIT_CALL(kSet, read_set, cuMemsetD16Async, false),
    TRANSIT_CALL(kSet, read_set, cuMemsetD16Async_ptsz, true),
    TRANSIT_CALL(kSet, read_set, cuMemsetD32_v2, false),
    TRANSIT_CALL(kSet, read_set, cuMemsetD32_v2_ptds, true),
    TRANSIT_CALL(kSet, read_set, cuMemsetD32Async, false),
    TRANSIT_CALL(kSet, read_set, cuMemsetD32Async_ptsz, true),
    TRANSIT_CALL(kSet, read_box_set, cuMemsetD2D8_v2, false),
    TRANSIT_CALL(kSet, read_box_set, cuMemsetD2D8_v2_ptds, true),
    TRANSIT_CALL(kSet, read_box_set, cuMemsetD2D8Async, false),
    TRANSIT_CALL(kSet, read_box_set, cuMemsetD2D8Async_ptsz, true),
    TRANSIT_CALL(kSet, read_box_set, cuMemsetD2D16_v2, false),
    TRANSIT_CALL(kSet, read_box_set, cuMemsetD2D16_v2_ptds, true),
    TRANSIT_CALL(kSet, read_box_set, cuMemsetD2D16Async, false),
    TRANSIT_CALL(kSet, read_box_set, cuMemsetD2D16Async_ptsz, true),
    TRANSIT_CALL(kSet, read_box_set, cuMemsetD2D32_v2, false),
    TRANSIT_CALL(kSet, read_box_set, cuMemsetD2D32_v2_ptds, true),
    TRANSIT_CALL(kSet, read_box_set, cuMemsetD2D32Async, false),
    TRANSIT_CALL(kSet, read_box_set, cuMemsetD2D32Async_ptsz, true),
};
// clang-format on

}  // namespace

void add_copy(AccessCollector& accesses, const CUDA_MEMCPY3D& copy) {
  add_box_copy(accesses, copy);
}

void add_set(AccessCollector& accesses, uint64_t address, uint64_t pitch_bytes,
             uint64_t width_bytes, uint64_t height) {
  if (width_bytes == 0 || height == 0) return;
  accesses.add_range(address, (height - 1) * pitch_bytes + width_bytes,
                     Direction::kWrite, AccessSource::kSet);
}

ApiCalls submitting_calls() {
  return {std::begin(kSubmittingCalls), std::end(kSubmittingCalls)};
}

}  // namespace transit
