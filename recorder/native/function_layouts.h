// What is known of a kernel: its name, and where its parameters lie.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <mutex>
#include <vector>

#include "recorder/native/driver_api.h"
#include "recorder/native/spool.h"

namespace transit {

struct Parameter {
  uint32_t index;  // into kernelParams
  uint32_t offset;
  uint32_t bytes;
};

struct FunctionLayout {
  CUfunction function;
  uint32_t generation;
  uint32_t name_id;
  std::vector<Parameter> parameters;  // those that can hold a pointer
};

// A cache that is read without a lock. Handles are reused once a module is unloaded,
// and a wrong layout would read past the caller's parameters: unloading one makes all
// of them be asked for again.
class FunctionLayouts {
 public:
  FunctionLayouts(const DriverApi& driver, Spool& spool)
      : driver_(driver), spool_(spool) {}

  const FunctionLayout& get(CUfunction function, const char* symbol_name);
  void forget_all() { generation_.fetch_add(1, std::memory_order_release); }

 private:
  static constexpr size_t kNumSlots = 1 << 14;

  using Slot = std::atomic<const FunctionLayout*>;

  Slot& slot_of(CUfunction function, uint32_t generation);
  const FunctionLayout* ask_driver(CUfunction function, const char* symbol_name,
                                   uint32_t generation);

  const DriverApi& driver_;
  Spool& spool_;
  std::atomic<uint32_t> generation_{0};
  std::array<Slot, kNumSlots> slots_{};
};

}  // namespace transit
