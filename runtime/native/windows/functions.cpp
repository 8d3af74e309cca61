#include "runtime/native/windows/functions.h"

#include <stddef.h>

#include <array>
#include <atomic>

#include "runtime/native/interpose/driver.h"
#include "runtime/native/windows/signature.h"

namespace transit::functions {
namespace {

constexpr size_t kNumSlots = 1 << 14;
constexpr size_t kMaxProbes = 8;
constexpr size_t kMaxParameters = 4096;

using Slot = std::atomic<const Description*>;

std::atomic<uint32_t> g_generation{0};
std::array<Slot, kNumSlots> g_slots{};

bool is_of(const Description* description, CUfunction function, uint32_t generation) {
  return description != nullptr && description->function == function &&
         description->generation == generation;
}

// The function's own slot, else the first near its place that may be taken. If all are
// in use two functions take turns, which costs time and nothing else.
Slot& slot_of(CUfunction function, uint32_t generation) {
  const auto key = reinterpret_cast<uintptr_t>(function) >> 4;
  const size_t first = key * 0x9E3779B97F4A7C15u >> 32;
  for (size_t i = first; i < first + kMaxProbes; ++i) {
    Slot& slot = g_slots[i % kNumSlots];
    const Description* description = slot.load(std::memory_order_acquire);
    if (description == nullptr || description->function == function ||
        description->generation != generation) {
      return slot;
    }
  }
  return g_slots[first % kNumSlots];
}

// Libraries pass a CUkernel where a CUfunction is asked for; only the driver can tell.
const Description* ask_driver(CUfunction function, uint32_t generation) {
  const Driver& real = driver();
  const auto kernel = reinterpret_cast<CUkernel>(function);
  const char* name = nullptr;
  const bool is_kernel = real.cuKernelGetName(&name, kernel) == CUDA_SUCCESS;
  if (!is_kernel && real.cuFuncGetName(&name, function) != CUDA_SUCCESS) name = "";
  auto* description = new Description{function, generation, hash_of_name(name), {}};
  for (size_t i = 0; i < kMaxParameters; ++i) {
    size_t offset = 0, bytes = 0;
    const CUresult result = is_kernel
                                ? real.cuKernelGetParamInfo(kernel, i, &offset, &bytes)
                                : real.cuFuncGetParamInfo(function, i, &offset, &bytes);
    if (result != CUDA_SUCCESS) break;
    if (bytes < sizeof(uint64_t)) continue;
    description->parameters.push_back({static_cast<uint32_t>(i),
                                       static_cast<uint32_t>(offset),
                                       static_cast<uint32_t>(bytes)});
  }
  return description;
}

}  // namespace

bool can_describe() {
  const Driver& real = driver();
  return real.cuKernelGetName != nullptr && real.cuFuncGetName != nullptr &&
         real.cuKernelGetParamInfo != nullptr && real.cuFuncGetParamInfo != nullptr;
}

const Description& describe(CUfunction function) {
  const uint32_t generation = g_generation.load(std::memory_order_acquire);
  Slot& slot = slot_of(function, generation);
  const Description* description = slot.load(std::memory_order_acquire);
  if (!is_of(description, function, generation)) {
    // The replaced one may be in use on another thread: there are few, they stay.
    description = ask_driver(function, generation);
    slot.store(description, std::memory_order_release);
  }
  return *description;
}

bool is_known(CUfunction function) {
  const uint32_t generation = g_generation.load(std::memory_order_acquire);
  const Slot& slot = slot_of(function, generation);
  return is_of(slot.load(std::memory_order_acquire), function, generation);
}

void forget_all() { g_generation.fetch_add(1, std::memory_order_release); }

}  // namespace transit::functions
