// Prints what the recorder reads from the parameters of copies and sets that the
// simulated GPU does not have: a line per access, with the name of the call.
#include <cstdio>
#include <cstdlib>

#include "recorder/native/api_calls.h"

namespace {

constexpr CUdeviceptr kX = 1u << 30, kY = 2u << 30;
constexpr uint64_t kBytes = 1u << 30;  // of the allocation at each
const auto kStream = reinterpret_cast<CUstream>(0x5);

transit::AccessCollector collector;
const transit::TensorMaps no_tensor_maps;

const transit::LiveAllocations& live() {
  static const auto* allocations = [] {
    auto* both = new transit::LiveAllocations;
    both->insert(kX, kBytes, 0);
    both->insert(kY, kBytes, 1);
    return both;
  }();
  return *allocations;
}

template <typename P>
void read(const char* name, CUpti_CallbackId cbid, const P& params) {
  const transit::ApiCalls calls = transit::submitting_calls();
  const transit::ApiCall* call = calls.begin;
  while (call != calls.end && call->cbid != cbid) ++call;
  if (call == calls.end) exit(2);
  transit::LaunchRecord launch{};
  transit::Launched launched{};
  const transit::LiveAllocations::View view(live());
  collector.start(view, no_tensor_maps);
  call->read(&params, launch, launched, collector);
  const transit::Accesses found = collector.found();
  for (size_t i = 0; i < found.count; ++i) {
    const transit::AccessRecord& access = found.begin[i];
    printf("%s %lu %lu %lu %u %u\n", name, launch.stream, access.address, access.bytes,
           access.direction, access.source);
  }
}

#define READ(api, ...) \
  read(#api, CUPTI_DRIVER_TRACE_CBID_##api, api##_params{__VA_ARGS__})

// Rows of 10 bytes: from column 3 of row 2 on, in a pitch of 64.
template <typename Copy>
Copy rows_of(size_t num_rows) {
  Copy copy{};
  copy.srcXInBytes = 3;
  copy.srcY = 2;
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = kX;
  copy.dstDevice = kY;
  copy.srcPitch = 64;
  copy.dstPitch = 32;
  copy.WidthInBytes = 10;
  copy.Height = num_rows;
  return copy;
}

// As many rows in each of 3 slices, from slice 1 on; a slice has 8 rows, there 5.
template <typename Copy>
Copy slices_of(size_t num_rows) {
  auto copy = rows_of<Copy>(num_rows);
  copy.srcZ = 1;
  copy.srcHeight = 8;
  copy.dstHeight = 5;
  copy.Depth = 3;
  return copy;
}

void read_boxes() {
  auto rows = rows_of<CUDA_MEMCPY2D>(4);
  READ(cuMemcpy2D_v2, &rows);
  READ(cuMemcpy2DAsync_v2, &rows, kStream);
  rows.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  READ(cuMemcpy2DUnaligned_v2, &rows);
  rows.dstMemoryType = CU_MEMORYTYPE_HOST;
  rows.dstHost = reinterpret_cast<void*>(kY + 1);  // pinned: an allocation, too
  rows.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
  READ(cuMemcpy2DAsync_v2_ptsz, &rows, kStream);
  rows.Height = 0;
  READ(cuMemcpy2D_v2_ptds, &rows);
  const auto slices = slices_of<CUDA_MEMCPY3D>(4);
  READ(cuMemcpy3D_v2, &slices);
  READ(cuMemcpy3DAsync_v2, &slices, kStream);
  const auto peer = slices_of<CUDA_MEMCPY3D_PEER>(1);
  READ(cuMemcpy3DPeer, &peer);
  READ(cuMemcpy3DPeerAsync, &peer, kStream);
}

void read_batches() {
  CUdeviceptr to[] = {kY, kY + 100, 1}, from[] = {kX, 2, kX + 7};
  size_t sizes[] = {10, 20, 30};
  READ(cuMemcpyBatchAsync, to, from, sizes, 3, nullptr, nullptr, 0, nullptr, kStream);
  READ(cuMemcpyBatchAsync_v2, to, from, sizes, 3, nullptr, nullptr, 0, kStream);
  READ(cuMemcpyBatchAsync_v2, nullptr, nullptr, nullptr, 3, nullptr, nullptr, 0,
       kStream);
  CUDA_MEMCPY3D_BATCH_OP copies[2]{};
  for (CUDA_MEMCPY3D_BATCH_OP& copy : copies) {
    copy.src.type = copy.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    copy.src.op.ptr = {kX, 64, 8, {}};
    copy.dst.op.ptr = {kY, 0, 0, {}};  // 0: as wide and high as what is copied
    copy.extent = {10, 4, 3};
  }
  copies[1].dst = {};
  copies[1].dst.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
  READ(cuMemcpy3DBatchAsync, 2, copies, nullptr, 0, kStream);
  READ(cuMemcpy3DBatchAsync_v2, 2, copies, 0, kStream);
}

void read_others() {
  const auto context = reinterpret_cast<CUcontext>(0x1);
  READ(cuMemcpyPeer, kY, context, kX, context, 50);
  READ(cuMemcpyPeerAsync, kY, context, kX, context, 50, kStream);
  READ(cuMemsetD2D8_v2, kX, 64, 1, 10, 4);
  READ(cuMemsetD2D16Async, kX, 64, 1, 10, 4, kStream);
  READ(cuMemsetD2D32Async, kX, 64, 1, 10, 0, kStream);
}

}  // namespace

int main() {
  read_boxes();
  read_batches();
  read_others();
}
