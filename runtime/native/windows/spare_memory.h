// Memory of the GPU that no chunk has at the moment. What leaves one chunk goes to the
// next: to give it to the driver and take it back would take as long as to map it.
#pragma once

#include <deque>
#include <mutex>

#include "runtime/native/backend/vmm_memory.h"

namespace transit {

// What is put here was counted as resident, and is so again when it is taken.
class SpareMemory {
 public:
  explicit SpareMemory(CUdevice device) : device_(device) {}

  // Spare memory of just this size; false if there is none.
  bool take(uint64_t bytes, PhysicalMemory* memory);
  void put(PhysicalMemory memory);

  // Gives the rest back to the driver, what has been spare for longest first.
  void keep(uint64_t most_bytes);

 private:
  const CUdevice device_;
  std::mutex mutex_;
  std::deque<PhysicalMemory> spare_;
  uint64_t bytes_ = 0;
};

}  // namespace transit
