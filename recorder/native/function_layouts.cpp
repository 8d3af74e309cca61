#include "recorder/native/function_layouts.h"

namespace transit {
namespace {

constexpr size_t kMaxParameters = 4096;
constexpr size_t kMaxProbes = 8;

}  // namespace

// The function's own slot, else the first near its place that may be taken. If all are
// in use two functions take turns, which costs time and nothing else.
FunctionLayouts::Slot& FunctionLayouts::slot_of(CUfunction function,
                                                uint32_t generation) {
  const auto key = reinterpret_cast<uintptr_t>(function) >> 4;
  const size_t first = key * 0x9E3779B97F4A7C15u >> 32;
  for (size_t i = first; i < first + kMaxProbes; ++i) {
    const FunctionLayout* layout =
        slots_[i % kNumSlots].load(std::memory_order_acquire);
    if (layout == nullptr || layout->function == function ||
        layout->generation != generation) {
      return slots_[i % kNumSlots];
    }
  }
  return slots_[first % kNumSlots];
}

const FunctionLayout& FunctionLayouts::get(CUfunction function,
                                           const char* symbol_name) {
  const uint32_t generation = generation_.load(std::memory_order_acquire);
  Slot& slot = slot_of(function, generation);
  const FunctionLayout* layout = slot.load(std::memory_order_acquire);
  if (layout == nullptr || layout->function != function ||
      layout->generation != generation) {
    // The replaced one may be in use on another thread: there are few, they stay.
    layout = ask_driver(function, symbol_name, generation);
    slot.store(layout, std::memory_order_release);
  }
  return *layout;
}

// Libraries pass a CUkernel where a CUfunction is asked for; only the driver can tell.
const FunctionLayout* FunctionLayouts::ask_driver(CUfunction function,
                                                  const char* symbol_name,
                                                  uint32_t generation) {
  const auto kernel = reinterpret_cast<CUkernel>(function);
  const char* name = nullptr;
  const bool is_kernel = driver_.cuKernelGetName(&name, kernel) == CUDA_SUCCESS;
  if (!is_kernel && driver_.cuFuncGetName(&name, function) != CUDA_SUCCESS) {
    name = symbol_name;
  }
  auto* layout = new FunctionLayout{function, generation, kNoName, {}};
  if (name != nullptr) layout->name_id = spool_.name_id(name);
  for (size_t i = 0; i < kMaxParameters; ++i) {
    size_t offset = 0, bytes = 0;
    const CUresult result =
        is_kernel ? driver_.cuKernelGetParamInfo(kernel, i, &offset, &bytes)
                  : driver_.cuFuncGetParamInfo(function, i, &offset, &bytes);
    if (result != CUDA_SUCCESS) break;
    if (bytes < sizeof(uint64_t)) continue;
    layout->parameters.push_back({static_cast<uint32_t>(i),
                                  static_cast<uint32_t>(offset),
                                  static_cast<uint32_t>(bytes)});
  }
  return layout;
}

}  // namespace transit
