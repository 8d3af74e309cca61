#include "runtime/native/windows/spare_memory.h"

#include <algorithm>
#include <utility>

namespace transit {

bool SpareMemory::take(uint64_t bytes, PhysicalMemory* memory) {
  const auto found = std::find_if(
      spare_.begin(), spare_.end(),
      [bytes](const PhysicalMemory& spare) { return spare.bytes() == bytes; });
  if (found == spare_.end()) return false;
  *memory = std::move(*found);
  spare_.erase(found);
  bytes_ -= bytes;
  return true;
}

void SpareMemory::put(PhysicalMemory memory) {
  bytes_ += memory.bytes();
  spare_.push_back(std::move(memory));
}

void SpareMemory::keep(uint64_t most_bytes) {
  while (bytes_ > most_bytes) {
    bytes_ -= spare_.front().bytes();
    spare_.pop_front();
  }
}

}  // namespace transit
