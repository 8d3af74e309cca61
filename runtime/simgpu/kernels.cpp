#include "kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

#include "tensor_map.h"

namespace simgpu {
namespace {

constexpr double kLaunchNs = 2000;
constexpr double kMemoryBytesPerNs = 4400;
constexpr double kFlopsPerNs = 1000;

Access reading(const float* p, size_t elements) {
  return {reinterpret_cast<uintptr_t>(p), elements * sizeof(float), true, false};
}

Access writing(const float* p, size_t elements) {
  return {reinterpret_cast<uintptr_t>(p), elements * sizeof(float), false, true};
}

Access updating(const float* p, size_t elements) {
  return {reinterpret_cast<uintptr_t>(p), elements * sizeof(float), true, true};
}

Footprint streaming(std::vector<Access> accesses) {
  double bytes = 0;
  for (const Access& access : accesses)
    bytes += static_cast<double>(access.bytes) * (access.reads + access.writes);
  return {std::move(accesses),
          static_cast<uint64_t>(kLaunchNs + bytes / kMemoryBytesPerNs)};
}

// Each kernel is a struct laid out as its parameters are.

struct Matmul {
  static constexpr char kName[] = "matmul";
  static constexpr size_t kParameters = 9;
  float* c;
  const float* a;
  const float* b;
  int m, n, k, trans_a, trans_b, accumulate;

  size_t elements(int rows, int columns) const {
    return static_cast<size_t>(rows) * static_cast<size_t>(columns);
  }

  Footprint footprint() const {
    if (m <= 0 || n <= 0 || k <= 0) return {{}, 0};
    const double flops = 2.0 * m * n * k;
    const Access output =
        accumulate ? updating(c, elements(m, n)) : writing(c, elements(m, n));
    return {{reading(a, elements(m, k)), reading(b, elements(k, n)), output},
            static_cast<uint64_t>(kLaunchNs + flops / kFlopsPerNs)};
  }

  float a_at(int row, int column) const {
    return trans_a ? a[elements(column, m) + static_cast<size_t>(row)]
                   : a[elements(row, k) + static_cast<size_t>(column)];
  }

  void add_rows_of_b(int row, float* out) const {
    for (int l = 0; l < k; ++l) {
      const float factor = a_at(row, l);
      const float* in = b + elements(l, n);
      for (int j = 0; j < n; ++j) out[j] += factor * in[j];
    }
  }

  void add_dot_products(int row, float* out) const {
    std::vector<float> left(static_cast<size_t>(k));
    for (int l = 0; l < k; ++l) left[static_cast<size_t>(l)] = a_at(row, l);
    for (int j = 0; j < n; ++j) {
      const float* right = b + elements(j, k);
      float sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int l = 0; l < k; ++l) sum += left[static_cast<size_t>(l)] * right[l];
      out[j] += sum;
    }
  }

  void run() const {
    for (int row = 0; row < m; ++row) {
      float* out = c + elements(row, n);
      if (!accumulate) std::memset(out, 0, elements(1, n) * sizeof(float));
      trans_b ? add_dot_products(row, out) : add_rows_of_b(row, out);
    }
  }
};

struct TanhForward {
  static constexpr char kName[] = "tanh_forward";
  static constexpr size_t kParameters = 3;
  float* y;
  const float* x;
  size_t n;

  Footprint footprint() const { return streaming({reading(x, n), writing(y, n)}); }
  void run() const {
    for (size_t i = 0; i < n; ++i) y[i] = std::tanh(x[i]);
  }
};

struct TanhBackward {
  static constexpr char kName[] = "tanh_backward";
  static constexpr size_t kParameters = 4;
  float* dx;
  const float* y;
  const float* dy;
  size_t n;

  Footprint footprint() const {
    return streaming({reading(y, n), reading(dy, n), writing(dx, n)});
  }
  void run() const {
    for (size_t i = 0; i < n; ++i) dx[i] = dy[i] * (1 - y[i] * y[i]);
  }
};

struct MseGradient {
  static constexpr char kName[] = "mse_gradient";
  static constexpr size_t kParameters = 5;
  float* dy;
  const float* y;
  const float* target;
  float* loss;
  size_t n;

  Footprint footprint() const {
    return streaming(
        {reading(y, n), reading(target, n), writing(dy, n), writing(loss, 1)});
  }
  void run() const {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) {
      const float difference = y[i] - target[i];
      dy[i] = 2 * difference / static_cast<float>(n);
      sum += static_cast<double>(difference) * difference;
    }
    *loss = static_cast<float>(sum / static_cast<double>(n));
  }
};

struct Adam {
  static constexpr char kName[] = "adam";
  static constexpr size_t kParameters = 11;
  float* p;
  const float* g;
  float* m;
  float* v;
  size_t n;
  float lr, beta1, beta2, eps, bias1, bias2;

  Footprint footprint() const {
    return streaming({reading(g, n), updating(p, n), updating(m, n), updating(v, n)});
  }
  void run() const {
    for (size_t i = 0; i < n; ++i) {
      m[i] = beta1 * m[i] + (1 - beta1) * g[i];
      v[i] = beta2 * v[i] + (1 - beta2) * g[i] * g[i];
      p[i] -= lr * (m[i] / bias1) / (std::sqrt(v[i] / bias2) + eps);
    }
  }
};

struct Fill {
  static constexpr char kName[] = "fill";
  static constexpr size_t kParameters = 3;
  float* p;
  float value;
  size_t n;

  Footprint footprint() const { return streaming({writing(p, n)}); }
  void run() const {
    for (size_t i = 0; i < n; ++i) p[i] = value;
  }
};

struct Scale {
  static constexpr char kName[] = "scale";
  static constexpr size_t kParameters = 4;
  float* y;
  const float* x;
  float a;
  size_t n;

  Footprint footprint() const { return streaming({reading(x, n), writing(y, n)}); }
  void run() const {
    for (size_t i = 0; i < n; ++i) y[i] = a * x[i];
  }
};

// Of a tiled float32 matrix, by its tensor map.
struct ScaleTensor {
  static constexpr char kName[] = "scale_tensor";
  static constexpr size_t kParameters = 2;
  float a;
  CUtensorMap tensor;  // by value

  size_t row_bytes() const { return read_tensor_map(tensor).dims[0] * sizeof(float); }
  size_t rows() const {
    const TensorMap map = read_tensor_map(tensor);
    return map.rank > 1 ? map.dims[1] : 1;
  }
  float* row(size_t index) const {
    const TensorMap map = read_tensor_map(tensor);
    return reinterpret_cast<float*>(map.address() + index * map.strides_bytes[0]);
  }

  Footprint footprint() const {
    std::vector<Access> accesses;
    accesses.reserve(rows());
    for (size_t i = 0; i < rows(); ++i)
      accesses.push_back(updating(row(i), row_bytes() / sizeof(float)));
    return streaming(std::move(accesses));
  }
  void run() const {
    for (size_t i = 0; i < rows(); ++i)
      for (size_t j = 0; j < row_bytes() / sizeof(float); ++j) row(i)[j] *= a;
  }
};

// Its rows lie behind pointers that are themselves in the device's memory.
struct GatherRows {
  static constexpr char kName[] = "gather_rows";
  static constexpr size_t kParameters = 4;
  float* y;
  const float* const* rows;
  size_t num_rows;
  size_t row_size;

  Footprint footprint() const {
    std::vector<Access> accesses = {
        {reinterpret_cast<uintptr_t>(rows), num_rows * sizeof(*rows), true, false},
        writing(y, num_rows * row_size)};
    for (size_t i = 0; i < num_rows; ++i)
      accesses.push_back(reading(rows[i], row_size));
    return streaming(std::move(accesses));
  }
  void run() const {
    for (size_t i = 0; i < num_rows; ++i)
      std::memcpy(y + i * row_size, rows[i], row_size * sizeof(float));
  }
};

// The recorder's own: see recorder/native/checksum_kernel.cpp.
struct Checksum {
  static constexpr char kName[] = "transit_checksum";
  static constexpr size_t kParameters = 1;
  struct Piece {
    const uint8_t* begin;
    size_t bytes;
  };
  uint64_t* sums;
  Piece pieces[255];  // of 0 bytes behind the last

  // Murmur's, of a word and its place.
  static uint64_t mix(uint64_t word) {
    word = (word ^ word >> 33) * 0xff51afd7ed558ccd;
    word = (word ^ word >> 33) * 0xc4ceb9fe1a85ec53;
    return word ^ word >> 33;
  }

  static uint64_t sum_of(const Piece& piece) {
    constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;
    const size_t num_words = piece.bytes / sizeof(uint64_t);
    uint64_t sum = 0;
    for (size_t i = 0; i < num_words; ++i) {
      uint64_t word;
      std::memcpy(&word, piece.begin + i * sizeof word, sizeof word);
      sum += mix(word + i * kGolden);
    }
    for (size_t i = num_words * sizeof(uint64_t); i < piece.bytes; ++i)
      sum += mix(~(piece.begin[i] + i * kGolden));
    return sum;
  }

  Footprint footprint() const {
    std::vector<Access> accesses;
    for (size_t i = 0; i < std::size(pieces) && pieces[i].bytes > 0; ++i) {
      accesses.push_back(
          {reinterpret_cast<uintptr_t>(pieces[i].begin), pieces[i].bytes, true, false});
      accesses.push_back(
          {reinterpret_cast<uintptr_t>(sums + 2 * i), sizeof(*sums), true, true});
    }
    return streaming(std::move(accesses));
  }
  void run() const {
    for (size_t i = 0; i < std::size(pieces) && pieces[i].bytes > 0; ++i)
      sums[2 * i] += sum_of(pieces[i]);
  }
};

// Those that calibrate measures memory with: see runtime/calibration/kernels.cu. Words
// of 16 bytes, of which some are touched again and again.
struct Sweep {
  static constexpr size_t kParameters = 3;
  static constexpr size_t kWordBytes = 16;
  uint8_t* memory;
  size_t words;
  size_t mask;

  Footprint footprint(bool reads, bool writes) const {
    const size_t distinct = std::min(words, mask + 1);
    const auto moved = static_cast<double>(words * kWordBytes * (reads + writes));
    return {
        {{reinterpret_cast<uintptr_t>(memory), distinct * kWordBytes, reads, writes}},
        static_cast<uint64_t>(kLaunchNs + moved / kMemoryBytesPerNs)};
  }
  // Sets the lowest bit of each word's first byte, or all of the word.
  void write(bool keep_the_rest) const {
    const uint32_t ones[] = {1, 1, 1, 1};
    for (size_t i = 0; i < std::min(words, mask + 1); ++i)
      if (keep_the_rest)
        memory[i * kWordBytes] |= 1;
      else
        std::memcpy(memory + i * kWordBytes, ones, kWordBytes);
  }
};

struct SweepRead : Sweep {
  static constexpr char kName[] = "transit_read";
  Footprint footprint() const { return Sweep::footprint(true, false); }
  void run() const {}  // nothing is kept of it
};

struct SweepWrite : Sweep {
  static constexpr char kName[] = "transit_write";
  Footprint footprint() const { return Sweep::footprint(false, true); }
  void run() const { write(false); }
};

struct SweepUpdate : Sweep {
  static constexpr char kName[] = "transit_update";
  Footprint footprint() const { return Sweep::footprint(true, true); }
  void run() const { write(true); }
};

template <class Kernel>
Kernel unpack(const uint8_t* arguments) {
  Kernel kernel;
  std::memcpy(&kernel, arguments, sizeof(kernel));
  return kernel;
}

template <class Kernel>
constexpr KnownKernel known() {
  return {Kernel::kName, Kernel::kParameters, sizeof(Kernel),
          [](const uint8_t* a) { return unpack<Kernel>(a).footprint(); },
          [](const uint8_t* a) { unpack<Kernel>(a).run(); }};
}

constexpr KnownKernel kKernels[] = {
    known<Matmul>(),      known<TanhForward>(), known<TanhBackward>(),
    known<MseGradient>(), known<Adam>(),        known<Fill>(),
    known<Scale>(),       known<GatherRows>(),  known<ScaleTensor>(),
    known<Checksum>(),    known<SweepRead>(),   known<SweepWrite>(),
    known<SweepUpdate>(),
};

}  // namespace

const KnownKernel* find_kernel(const Entry& entry) {
  for (const KnownKernel& kernel : kKernels)
    if (entry.name == kernel.name && entry.parameters.size() == kernel.num_parameters &&
        entry.parameter_bytes() == kernel.parameter_bytes)
      return &kernel;
  return nullptr;
}

}  // namespace simgpu
