// The kernels that calibrate measures memory with. PTX is committed, so that it needs no
// CUDA compiler; its version is that of older drivers:
//   nvcc -ptx -arch=compute_75 -o kernels.ptx kernels.cu
//   sed -i 's/^.version .*/.version 7.0/' kernels.ptx
//
// Each touches `words` words of 16 bytes, of which `mask` + 1 are different ones: with a
// small mask, it goes over the same memory again and again. `mask` + 1 is a power of two,
// `words` a multiple of four times the number of threads.
#include <cstddef>

namespace {

constexpr int kInFlight = 4;  // loads of a thread that wait for memory at once

__device__ size_t num_threads() { return static_cast<size_t>(gridDim.x) * blockDim.x; }

__device__ size_t thread() {
  return static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

// Past L1, which is not what is measured.
__device__ void load(uint4 (&values)[kInFlight], const uint4* memory, size_t first,
                     size_t mask) {
#pragma unroll
  for (int i = 0; i < kInFlight; ++i)
    values[i] = __ldcg(memory + ((first + i * num_threads()) & mask));
}

}  // namespace

extern "C" __global__ void transit_read(uint4* memory, size_t words, size_t mask) {
  unsigned sum = 0;
  for (size_t at = thread(); at < words; at += kInFlight * num_threads()) {
    uint4 values[kInFlight];
    load(values, memory, at, mask);
#pragma unroll
    for (const uint4& value : values) sum |= value.x | value.y | value.z | value.w;
  }
  // Never, as there is no other bit in what is read: but a compiler does not know.
  if (sum == 0x80000000u) memory[0].x = sum;
}

extern "C" __global__ void transit_write(uint4* memory, size_t words, size_t mask) {
  for (size_t at = thread(); at < words; at += kInFlight * num_threads()) {
#pragma unroll
    for (int i = 0; i < kInFlight; ++i)
      memory[(at + i * num_threads()) & mask] = make_uint4(1, 1, 1, 1);
  }
}

extern "C" __global__ void transit_update(uint4* memory, size_t words, size_t mask) {
  for (size_t at = thread(); at < words; at += kInFlight * num_threads()) {
    uint4 values[kInFlight];
    load(values, memory, at, mask);
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      values[i].x |= 1;
      memory[(at + i * num_threads()) & mask] = values[i];
    }
  }
}
