#include "runtime/native/paging/address_space.h"

namespace transit {

CUdeviceptr AddressSpace::take(uint64_t bytes) {
  const uint64_t needed = round_up_to_piece(bytes);
  uint64_t begin = 0;
  for (const auto& [offset, end] : taken_) {
    if (offset - begin >= needed) break;
    begin = end;
  }
  if (needed < bytes || bytes_ - begin < needed) return 0;
  taken_.emplace(begin, begin + needed);
  live_.set(begin, needed, true);
  return lowest_ + begin;
}

void AddressSpace::give_back(CUdeviceptr address) {
  const auto taken = taken_.find(address - lowest_);
  live_.set(taken->first, taken->second - taken->first, false);
  taken_.erase(taken);
}

}  // namespace transit
