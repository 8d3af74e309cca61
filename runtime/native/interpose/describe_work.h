// What the arguments of a submitting call say: for the rows of hooks.def.
#pragma once

#include "runtime/native/windows/work.h"

namespace transit::describe {

inline CUdeviceptr number(CUdeviceptr address) { return address; }
inline CUdeviceptr number(const void* host) {
  return reinterpret_cast<CUdeviceptr>(host);
}

inline Work work(Work::Kind kind, CUstream stream) {
  Work work{kind};
  work.stream = stream;
  return work;
}

inline void add_range(Work& work, CUdeviceptr address, size_t bytes) {
  if (bytes > 0) work.ranges[work.num_ranges++] = {address, bytes};
}

inline Work blocking(Work work) {
  work.is_blocking = true;
  return work;
}

inline Work kernel(CUfunction function, const uint32_t (&grid)[3],
                   const uint32_t (&block)[3], CUstream stream, void** params,
                   void** extra) {
  Work kernel = work(Work::Kind::kKernel, stream);
  kernel.function = function;
  for (int i = 0; i < 3; ++i) {
    kernel.grid[i] = grid[i];
    kernel.block[i] = block[i];
  }
  kernel.params = params;
  kernel.extra = extra;
  return kernel;
}

inline Work kernel(CUfunction function, const CUlaunchConfig* config, void** params,
                   void** extra) {
  const CUlaunchConfig c = config != nullptr ? *config : CUlaunchConfig{};
  return kernel(function, {c.gridDimX, c.gridDimY, c.gridDimZ},
                {c.blockDimX, c.blockDimY, c.blockDimZ}, c.hStream, params, extra);
}

inline Work graph_launch(CUstream stream) { return work(Work::Kind::kGraph, stream); }

template <typename To, typename From>
Work copy(To to, From from, size_t bytes, CUstream stream = nullptr) {
  Work copy = work(Work::Kind::kCopy, stream);
  add_range(copy, number(to), bytes);
  add_range(copy, number(from), bytes);
  return copy;
}

inline Work set(CUdeviceptr to, size_t bytes, CUstream stream = nullptr) {
  Work set = work(Work::Kind::kSet, stream);
  add_range(set, to, bytes);
  return set;
}

inline Work box_set(CUdeviceptr to, size_t pitch_bytes, size_t row_bytes, size_t rows,
                    CUstream stream = nullptr) {
  if (row_bytes == 0 || rows == 0) return set(to, 0, stream);
  return set(to, (rows - 1) * pitch_bytes + row_bytes, stream);
}

inline Work batch(CUstream stream) {
  Work batch = work(Work::Kind::kCopy, stream);
  batch.has_more_ranges = true;
  return batch;
}

Work box_copy(const CUDA_MEMCPY2D* copy, CUstream stream = nullptr);
Work box_copy(const CUDA_MEMCPY3D* copy, CUstream stream = nullptr);
Work box_copy(const CUDA_MEMCPY3D_PEER* copy, CUstream stream = nullptr);

}  // namespace transit::describe
