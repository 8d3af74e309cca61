#include "runtime/native/windows/spare_memory.h"

#include <algorithm>
#include <utility>

#include "runtime/native/status/status.h"

namespace transit {

bool SpareMemory::take(uint64_t bytes, PhysicalMemory* memory) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = std::find_if(
      spare_.begin(), spare_.end(),
      [bytes](const PhysicalMemory& spare) { return spare.bytes() == bytes; });
  if (found == spare_.end()) return false;
  *memory = std::move(*found);
  spare_.erase(found);
  bytes_ -= bytes;
  status::subtract_bytes(&StatusFile::spare_bytes, bytes);
  status::add_bytes(&StatusFile::resident_bytes, &StatusFile::resident_peak_bytes,
                    bytes);
  return true;
}

void SpareMemory::put(PhysicalMemory memory) {
  const std::lock_guard<std::mutex> lock(mutex_);
  bytes_ += memory.bytes();
  status::subtract_bytes(&StatusFile::resident_bytes, memory.bytes());
  status::add(&StatusFile::spare_bytes, memory.bytes());
  spare_.push_back(std::move(memory));
}

void SpareMemory::keep(uint64_t most_bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  while (bytes_ > most_bytes) {
    const uint64_t bytes = spare_.front().bytes();
    spare_.pop_front();
    bytes_ -= bytes;
    status::subtract_gpu_bytes(device_, &StatusFile::spare_bytes, bytes);
  }
}

}  // namespace transit
