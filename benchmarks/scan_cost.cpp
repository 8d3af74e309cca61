// What the recorder's callback costs a launch, without a GPU: the driver's answers are
// made up, the rest is the recorder as it is. Prints one JSON object; see scan_cost.py.
#include <cuda.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "recorder/native/clock.h"
#include "recorder/native/launches.h"

namespace transit {
namespace {

constexpr size_t kAllocations = 10000;
constexpr size_t kFunctions = 64;  // of each kind; launched in turns
constexpr size_t kBlocksPerFunction = 16;
constexpr size_t kHotLaunches = 100000;
constexpr size_t kColdLaunches = 1000;
constexpr size_t kLaunchesPerPreparation = 256;
// What is read before a launch: more than a core's own caches hold, or than all do.
constexpr size_t kWarmEvictedBytes = size_t{2} << 20;
constexpr size_t kColdEvictedBytes = size_t{64} << 20;
constexpr uint64_t kPageBytes = 2 << 20;

using Random = std::mt19937_64;

// A kind of kernel: one parameter, with words in it that are pointers.
struct Kind {
  const char* name;
  uint32_t parameter_bytes;
  std::vector<uint32_t> pointers;     // offsets
  std::vector<uint32_t> tensor_maps;  // too
  bool separate;                      // each word is a parameter of its own
};

std::vector<uint32_t> every(uint32_t bytes, uint32_t count, uint32_t first = 0) {
  std::vector<uint32_t> offsets;
  for (uint32_t i = 0; i < count; ++i) offsets.push_back(first + i * bytes);
  return offsets;
}

const std::vector<Kind>& kinds() {
  static const auto* all = new std::vector<Kind>{
      {"6 pointers and 2 sizes", 64, every(8, 6), {}, true},
      {"GEMM: 3 tensor maps, 4 pointers", 1720, every(8, 4, 512), every(128, 3), false},
      {"multi-tensor update: 150 pointers", 4096, every(8, 150), {}, false},
  };
  return *all;
}

struct Function {
  const Kind* kind;
  size_t parameters() const {
    return kind->separate ? kind->parameter_bytes / sizeof(uint64_t) : 1;
  }
};

CUresult get_name(const char** name, CUfunction function) {
  *name = reinterpret_cast<const Function*>(function)->kind->name;
  return CUDA_SUCCESS;
}

CUresult get_parameter(CUfunction handle, size_t index, size_t* offset, size_t* bytes) {
  const auto& function = *reinterpret_cast<const Function*>(handle);
  if (index >= function.parameters()) return CUDA_ERROR_INVALID_VALUE;
  *bytes = function.kind->parameter_bytes / function.parameters();
  *offset = index * *bytes;
  return CUDA_SUCCESS;
}

DriverApi made_up_driver() {
  DriverApi driver;
  driver.cuKernelGetName = [](const char**, CUkernel) {
    return CUDA_ERROR_INVALID_HANDLE;
  };
  driver.cuFuncGetName = get_name;
  driver.cuFuncGetParamInfo = get_parameter;
  return driver;
}

// Parameters as a caller has them.
struct Block {
  std::vector<uint64_t> words;
  std::vector<void*> params;
};

class Bench {
 public:
  explicit Bench(const std::string& folder) : evicted_(kColdEvictedBytes, 1) {
    const std::string error = spool_.create(folder);
    if (!error.empty()) {
      fprintf(stderr, "%s\n", error.c_str());
      exit(1);
    }
    make_allocations();
    const ApiCalls calls = submitting_calls();
    api_ = std::find_if(calls.begin, calls.end, [](const ApiCall& call) {
      return call.cbid == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel;
    });
  }

  void measure(const Kind& kind) {
    make_launches(kind);
    const size_t words = kind.parameter_bytes / sizeof(uint64_t);
    printf("{\"name\": \"%s\", \"words\": %zu, \"pointers\": %zu, \"tensor_maps\": %zu",
           kind.name, words, kind.pointers.size(), kind.tensor_maps.size());
    const size_t count = kHotLaunches / (1 + kind.pointers.size() / 10);
    report("first", words, time_launches(blocks_.size(), 0));
    report("hot", words, time_launches(count, 0));
    report("warm", words, time_launches(kColdLaunches, kWarmEvictedBytes));
    report("cold", words, time_launches(kColdLaunches, kColdEvictedBytes));
    printf("}");
  }

 private:
  // As a caching allocator's segments lie: close to each other, with gaps.
  void make_allocations() {
    uint64_t address = uint64_t{0x7f0000000000};
    std::vector<LiveRange> ranges;
    for (uint32_t id = 0; id < kAllocations; ++id) {
      const uint64_t bytes = kPageBytes * (1 + random_() % 10);
      ranges.push_back({address, address + bytes, id});
      address += bytes + kPageBytes * (random_() % 4);
    }
    ranges_ = ranges;
    std::shuffle(ranges.begin(), ranges.end(), random_);
    for (const LiveRange& range : ranges) {
      live_.insert(range.begin, range.end - range.begin, range.allocation_id);
    }
  }

  uint64_t some_address() {
    const LiveRange& range = ranges_[random_() % ranges_.size()];
    return range.begin + random_() % (range.end - range.begin) / 512 * 512;
  }

  void make_launches(const Kind& kind) {
    functions_.assign(kFunctions, {&kind});
    layouts_.forget_all();  // the addresses were other functions' before
    blocks_.assign(kFunctions * kBlocksPerFunction, {});
    for (Block& block : blocks_) {
      block.words.resize(kind.parameter_bytes / sizeof(uint64_t));
      for (uint64_t& word : block.words) word = random_() % 100000;
      for (uint32_t at : kind.pointers) block.words[at / 8] = some_address();
      for (uint32_t at : kind.tensor_maps) {
        // As opaque as a driver's: the scan knows it by all of its bytes.
        for (size_t i = 0; i < 16; ++i) block.words[at / 8 + i] = random_();
        tensor_maps_.remember(&block.words[at / 8], {some_address(), 1 << 20});
      }
      const size_t step = kind.separate ? 1 : block.words.size();
      for (size_t i = 0; i < block.words.size(); i += step) {
        block.params.push_back(&block.words[i]);
      }
    }
    std::shuffle(blocks_.begin(), blocks_.end(), random_);
  }

  std::vector<uint64_t> time_launches(size_t count, size_t evicted_bytes) {
    std::vector<uint64_t> times_ns(count);
    for (size_t i = 0; i < count; ++i) {
      if (i % kLaunchesPerPreparation == 0) spool_.prepare();
      cuLaunchKernel_params params{};
      params.f = reinterpret_cast<CUfunction>(&functions_[i % functions_.size()]);
      params.gridDimX = params.gridDimY = params.gridDimZ = 1;
      params.blockDimX = params.blockDimY = params.blockDimZ = 32;
      params.kernelParams = blocks_[i % blocks_.size()].params.data();
      CUpti_CallbackData call{};
      call.functionName = "cuLaunchKernel";
      call.functionParams = &params;
      call.correlationId = static_cast<uint32_t>(i);
      for (size_t at = 0; at < evicted_bytes; at += 64) ++evicted_[at];
      const uint64_t begin_ns = clock_ns(CLOCK_MONOTONIC);
      launches_.record(*api_, call);
      times_ns[i] = clock_ns(CLOCK_MONOTONIC) - begin_ns;
    }
    return times_ns;
  }

  void report(const char* label, size_t words, std::vector<uint64_t> times_ns) {
    std::sort(times_ns.begin(), times_ns.end());
    const uint64_t clock = clock_cost_ns();
    const auto at = [&](double share) {
      const auto index =
          static_cast<size_t>(share * static_cast<double>(times_ns.size()));
      return times_ns[index] - std::min(clock, times_ns[index]);
    };
    printf(
        ", \"%s\": {\"median_ns\": %lu, \"p99_ns\": %lu, \"median_ns_per_word\": %.2f}",
        label, at(0.5), at(0.99),
        static_cast<double>(at(0.5)) / static_cast<double>(words));
  }

  // What reading the clock twice adds to each time.
  uint64_t clock_cost_ns() {
    std::vector<uint64_t> times_ns(10001);
    for (uint64_t& time_ns : times_ns) {
      const uint64_t begin_ns = clock_ns(CLOCK_MONOTONIC);
      time_ns = clock_ns(CLOCK_MONOTONIC) - begin_ns;
    }
    std::nth_element(times_ns.begin(), times_ns.begin() + 5000, times_ns.end());
    return times_ns[5000];
  }

  Random random_{1};
  const DriverApi driver_ = made_up_driver();
  const CuptiApi cupti_;
  Contexts contexts_;
  LiveAllocations live_;
  Spool spool_;
  FunctionLayouts layouts_{driver_, spool_};
  TensorMaps tensor_maps_;
  Graphs graphs_{cupti_, driver_, live_, tensor_maps_, layouts_, spool_};
  Launches launches_{driver_,  contexts_, live_, tensor_maps_,
                     layouts_, graphs_,   spool_};
  const ApiCall* api_;
  std::vector<LiveRange> ranges_;
  std::vector<Function> functions_;
  std::vector<Block> blocks_;
  std::vector<uint8_t> evicted_;
};

}  // namespace
}  // namespace transit

int main(int, char** arguments) {
  using transit::kinds;
  auto* bench = new transit::Bench(arguments[1]);
  printf("{\"live_allocations\": %zu, \"kernels\": [", transit::kAllocations);
  for (const auto& kind : kinds()) {
    if (&kind != &kinds().front()) printf(", ");
    bench->measure(kind);
  }
  printf("]}\n");
}
