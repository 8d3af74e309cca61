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

// A handle may be another context's later, a serial number never.
struct Context {
  CUcontext handle = nullptr;
  int32_t device = 0;
  uint64_t serial = 0;
};

// Looked into at every launch, and told of the end of a context while the driver keeps
// others out of it: therefore without a lock.
class Contexts {
 public:
  void add(CUcontext handle, int32_t device);
  void remove(CUcontext handle);

  // Without a handle if it is not known.
  Context find(CUcontext handle) const;
  bool is_alive(const Context& context) const {
    return find(context.handle).serial == context.serial;
  }
  std::vector<Context> alive() const;

  // Waits for all work of all of them.
  void synchronize(const DriverApi& driver) const;

 private:
  struct Slot {
    std::atomic<CUcontext> handle{nullptr};
    std::atomic<int32_t> device{0};
    std::atomic<uint64_t> serial{0};

    Context read() const { return {handle.load(), device.load(), serial.load()}; }
  };

  std::array<Slot, 64> slots_;
  std::atomic<uint64_t> num_added_{0};
};

}  // namespace transit
