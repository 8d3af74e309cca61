// The contexts alive now, and the device of each.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "recorder/native/driver_api.h"

namespace transit {

// Makes a context the thread's current one for as long as it lives, if that can be.
class CurrentContext {
 public:
  CurrentContext(const DriverApi& driver, CUcontext context)
      : driver_(driver),
        is_pushed_(driver.cuCtxPushCurrent_v2(context) == CUDA_SUCCESS) {}
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
  ~CurrentContext() {
    CUcontext popped = nullptr;
    if (is_pushed_) driver_.cuCtxPopCurrent_v2(&popped);
  }

  explicit operator bool() const { return is_pushed_; }

 private:
  const DriverApi& driver_;
  const bool is_pushed_;
};

// Looked into at every launch, therefore without a lock.
class Contexts {
 public:
  void add(CUcontext context, int32_t device);
  void remove(CUcontext context);

  // 0 for a context that is not known.
  int32_t device_of(CUcontext context) const;

  struct Alive {
    CUcontext context;
    int32_t device;
  };
  std::vector<Alive> alive() const;

  // Waits for all work of all of them.
  void synchronize(const DriverApi& driver) const;

 private:
  struct Slot {
    std::atomic<CUcontext> context{nullptr};
    std::atomic<int32_t> device{0};
  };

  std::array<Slot, 64> slots_;
};

}  // namespace transit
