// The kernels of layers.py. PTX is committed, so that the job needs no CUDA compiler:
//   nvcc -ptx -arch=compute_75 -o kernels.ptx kernels.cu
// Every kernel adds in a fixed order: the same input gives the same bits.
#include <cstddef>

namespace {

constexpr int kTile = 16;            // matmul: block of kTile x kTile threads
constexpr int kReduceThreads = 256;  // mse_gradient: one block of so many threads

__device__ size_t global_index() {
  return static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

}  // namespace

// c[m, n] = op(a) op(b), or += when accumulate. Row-major; op transposes when asked to.
extern "C" __global__ void matmul(float* c, const float* a, const float* b, int m,
                                  int n, int k, int trans_a, int trans_b,
                                  int accumulate) {
  __shared__ float tile_a[kTile][kTile + 1];
  __shared__ float tile_b[kTile][kTile + 1];
  const int row = blockIdx.y * kTile + threadIdx.y;
  const int col = blockIdx.x * kTile + threadIdx.x;
  float sum = 0.0f;
  for (int start = 0; start < k; start += kTile) {
    const int ka = start + threadIdx.x;
    const int kb = start + threadIdx.y;
    const size_t at_a =
        trans_a ? static_cast<size_t>(ka) * m + row : static_cast<size_t>(row) * k + ka;
    const size_t at_b =
        trans_b ? static_cast<size_t>(col) * k + kb : static_cast<size_t>(kb) * n + col;
    tile_a[threadIdx.y][threadIdx.x] = row < m && ka < k ? a[at_a] : 0.0f;
    tile_b[threadIdx.y][threadIdx.x] = col < n && kb < k ? b[at_b] : 0.0f;
    __syncthreads();
    for (int i = 0; i < kTile; ++i)
      sum += tile_a[threadIdx.y][i] * tile_b[i][threadIdx.x];
    __syncthreads();
  }
  if (row < m && col < n) {
    const size_t at = static_cast<size_t>(row) * n + col;
    c[at] = accumulate ? c[at] + sum : sum;
  }
}

extern "C" __global__ void tanh_forward(float* y, const float* x, size_t n) {
  const size_t i = global_index();
  if (i < n) y[i] = tanhf(x[i]);
}

extern "C" __global__ void tanh_backward(float* dx, const float* y, const float* dy,
                                         size_t n) {
  const size_t i = global_index();
  if (i < n) dx[i] = (1.0f - y[i] * y[i]) * dy[i];
}

// loss[0] = mean squared error, dy = its gradient. Launch one block of kReduceThreads.
extern "C" __global__ void mse_gradient(float* dy, const float* y, const float* target,
                                        float* loss, size_t n) {
  __shared__ float sums[kReduceThreads];
  float sum = 0.0f;
  for (size_t i = threadIdx.x; i < n; i += kReduceThreads) {
    const float difference = y[i] - target[i];
    dy[i] = 2.0f * difference / static_cast<float>(n);
    sum += difference * difference;
  }
  sums[threadIdx.x] = sum;
  for (int half = kReduceThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  if (threadIdx.x == 0) loss[0] = sums[0] / static_cast<float>(n);
}

// bias1 = 1 - beta1^step, bias2 = 1 - beta2^step.
extern "C" __global__ void adam(float* p, const float* g, float* m, float* v, size_t n,
                                float lr, float beta1, float beta2, float eps,
                                float bias1, float bias2) {
  const size_t i = global_index();
  if (i >= n) return;
  m[i] = beta1 * m[i] + (1.0f - beta1) * g[i];
  v[i] = beta2 * v[i] + (1.0f - beta2) * g[i] * g[i];
  p[i] -= lr * (m[i] / bias1) / (sqrtf(v[i] / bias2) + eps);
}

extern "C" __global__ void fill(float* p, float value, size_t n) {
  const size_t i = global_index();
  if (i < n) p[i] = value;
}

extern "C" __global__ void scale(float* y, const float* x, float a, size_t n) {
  const size_t i = global_index();
  if (i < n) y[i] = a * x[i];
}
