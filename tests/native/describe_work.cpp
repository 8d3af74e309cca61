// Prints what the shim reads from launches, without a driver. From stdin, as words:
//
//   filter LOWEST SPAN_BYTES DEVICE     and a bit for each 2 MiB, as 64-bit numbers
//   kernel NAME GRID BLOCK PARAMETERS WORDS...     both shapes as three numbers; of
//   each
//       parameter the offset and bytes; last how many words, and the parameter block
//
// A line for each kernel: signature, hash, whether it is whole, the addresses. Then the
// ranges of the boxes that driver calls have.
#include "runtime/native/interpose/describe_work.h"

#include <cstdio>
#include <iostream>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "runtime/native/interpose/driver.h"
#include "runtime/native/plan/plan.h"
#include "runtime/native/windows/functions.h"
#include "runtime/native/windows/named_addresses.h"
#include "runtime/native/windows/signature.h"

namespace {

// What a CUfunction is here.
struct Function {
  std::string name;
  std::vector<std::pair<size_t, size_t>> parameters;  // offset, bytes
};

CUresult get_name(const char** name, CUfunction function) {
  *name = reinterpret_cast<const Function*>(function)->name.c_str();
  return CUDA_SUCCESS;
}

CUresult get_parameter(CUfunction function, size_t index, size_t* offset,
                       size_t* bytes) {
  const auto& parameters = reinterpret_cast<const Function*>(function)->parameters;
  if (index >= parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = parameters[index].first;
  *bytes = parameters[index].second;
  return CUDA_SUCCESS;
}

transit::AddressFilter filter{};
transit::NamedAddresses named;

void print(const transit::Work& work) {
  named.collect(work, filter);
  printf("%lu %lu %d", transit::signature_of(work), named.hash(), named.is_whole());
  for (const CUdeviceptr address : named) printf(" %llu", address);
  printf("\n");
}

template <typename T>
T read() {
  T value{};
  std::cin >> value;
  return value;
}

void read_filter() {
  filter.lowest = read<uint64_t>();
  filter.span_bytes = read<uint64_t>();
  const uint64_t num_words = filter.span_bytes / transit::kPieceBytes / 64 + 1;
  static std::vector<std::atomic<uint64_t>> pieces;
  pieces = std::vector<std::atomic<uint64_t>>(num_words);
  for (auto& word : pieces) word = read<uint64_t>();
  filter.live_pieces = pieces.data();
}

// Each value is where nothing follows it, and aligned for nothing.
std::vector<std::vector<uint8_t>> values_of(const Function& function,
                                            const std::vector<uint64_t>& block) {
  std::vector<std::vector<uint8_t>> values;
  for (const auto& [offset, bytes] : function.parameters) {
    const auto* begin = reinterpret_cast<const uint8_t*>(block.data()) + offset;
    values.emplace_back(begin, begin + bytes);
    values.back().insert(values.back().begin(), 0);
  }
  return values;
}

void read_kernel() {
  static std::list<Function> functions;  // a handle is never used again
  Function* function = &functions.emplace_back();
  function->name = read<std::string>();
  uint32_t grid[3], block[3];
  for (uint32_t& size : grid) size = read<uint32_t>();
  for (uint32_t& size : block) size = read<uint32_t>();
  function->parameters.resize(read<size_t>());
  for (auto& parameter : function->parameters) {
    parameter.first = read<size_t>();
    parameter.second = read<size_t>();
  }
  std::vector<uint64_t> words(read<size_t>());
  for (uint64_t& word : words) word = read<uint64_t>();
  auto values = values_of(*function, words);
  std::vector<void*> params;
  params.reserve(values.size());
  for (auto& value : values) params.push_back(value.data() + 1);
  const auto handle = reinterpret_cast<CUfunction>(function);
  print(
      transit::describe::kernel(handle, grid, block, nullptr, params.data(), nullptr));
  size_t num_bytes = words.size() * sizeof(uint64_t);
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, words.data(),
                   CU_LAUNCH_PARAM_BUFFER_SIZE, &num_bytes, CU_LAUNCH_PARAM_END};
  print(transit::describe::kernel(handle, grid, block, nullptr, nullptr, extra));
}

void print_ranges(const char* name, const transit::Work& work) {
  for (uint32_t i = 0; i < work.num_ranges; ++i) {
    printf("%s %llu %zu\n", name, work.ranges[i].address, work.ranges[i].bytes);
  }
}

template <typename Copy>
Copy rows() {
  Copy copy{};
  copy.srcXInBytes = 3;
  copy.srcY = 2;
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = 1000;
  copy.dstDevice = 9000;
  copy.srcPitch = 64;
  copy.dstPitch = 32;
  copy.WidthInBytes = 10;
  copy.Height = 4;
  return copy;
}

template <typename Copy>
Copy slices() {
  auto copy = rows<Copy>();
  copy.srcZ = 1;
  copy.srcHeight = 8;
  copy.dstHeight = 5;
  copy.Depth = 3;
  return copy;
}

void print_boxes() {
  namespace describe = transit::describe;
  auto copy = rows<CUDA_MEMCPY2D>();
  print_ranges("rows", describe::box_copy(&copy));
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  print_ranges("from", describe::box_copy(&copy));
  const auto slice_copy = slices<CUDA_MEMCPY3D>();
  print_ranges("slices", describe::box_copy(&slice_copy));
  const auto peer_copy = slices<CUDA_MEMCPY3D_PEER>();
  print_ranges("peers", describe::box_copy(&peer_copy));
  print_ranges("set", describe::box_set(1000, 64, 10, 4));
  print_ranges("nothing", describe::box_set(1000, 64, 10, 0));
  print_ranges("nothing", describe::copy(CUdeviceptr{1}, CUdeviceptr{2}, 0));
}

}  // namespace

namespace transit {

std::atomic<const Driver*> g_driver{nullptr};

const Driver& load_driver() {
  static const Driver driver = [] {
    Driver made_up{};
    made_up.cuKernelGetName = [](const char**, CUkernel) {
      return CUDA_ERROR_INVALID_HANDLE;
    };
    made_up.cuFuncGetName = get_name;
    made_up.cuFuncGetParamInfo = get_parameter;
    return made_up;
  }();
  return driver;
}

}  // namespace transit

int main() {
  for (std::string what; std::cin >> what;) {
    if (what == "filter") read_filter();
    if (what == "kernel") read_kernel();
  }
  print_boxes();
}
