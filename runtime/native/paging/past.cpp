#include "runtime/native/paging/past.h"

#include <algorithm>

namespace transit {

void Past::note(uint64_t key, const CUdeviceptr* begin, const CUdeviceptr* end) {
  // Where many pieces are alike, the one after the last found is the likely one.
  const bool goes_on =
      then_ != 0 && remembers(then_ + 1) && piece(then_ + 1).key == key;
  then_ = goes_on ? then_ + 1 : when_last(key);
  ++now_;
  forget(now_ - std::min(now_, kNumRemembered));
  const uint64_t in_row = kNumAddresses - num_addresses_ % kNumAddresses;
  const uint64_t count = std::min(static_cast<uint64_t>(end - begin), kNumAddresses);
  if (count > in_row) num_addresses_ += in_row;
  std::copy_n(begin, count, &addresses_[num_addresses_ % kNumAddresses]);
  piece(now_) = {key, num_addresses_, static_cast<uint32_t>(count)};
  num_addresses_ += count;
  last_[key] = now_;
}

Entries<CUdeviceptr> Past::named_at(uint64_t number) const {
  if (!remembers(number)) return {nullptr, 0};
  const Piece& found = piece(number);
  if (found.first_address + kNumAddresses < num_addresses_) return {nullptr, 0};
  return {&addresses_[found.first_address % kNumAddresses], found.num_addresses};
}

uint64_t Past::when_last(uint64_t key) const {
  const auto found = last_.find(key);
  return found != last_.end() ? found->second : 0;
}

void Past::forget(uint64_t number) {
  if (number == 0) return;
  const auto found = last_.find(piece(number).key);
  if (found != last_.end() && found->second == number) last_.erase(found);
}

}  // namespace transit
