// Physical memory by handle, on the device or pinned on the host, and mapping it.
#pragma once

#include <utility>

#include "runtime/native/backend/backend.h"

namespace transit {

enum class Location { kDevice, kHost };

// What it maps stays mapped when it is gone: a mapping keeps the memory alive.
class PhysicalMemory {
 public:
  PhysicalMemory() = default;
  ~PhysicalMemory() { release(); }
  PhysicalMemory(PhysicalMemory&& other) noexcept { *this = std::move(other); }
  PhysicalMemory& operator=(PhysicalMemory&& other) noexcept;
  PhysicalMemory(const PhysicalMemory&) = delete;
  PhysicalMemory& operator=(const PhysicalMemory&) = delete;

  // Host memory is near `device`.
  Outcome create(Location location, CUdevice device, uint64_t bytes);
  void release();

  // At reserved addresses, for `device` to read and write.
  Outcome map(CUdeviceptr address) const;

  uint64_t bytes() const { return bytes_; }

 private:
  CUmemGenericAllocationHandle handle_ = 0;
  CUdevice device_ = 0;
  uint64_t bytes_ = 0;  // 0: there is none
};

}  // namespace transit
