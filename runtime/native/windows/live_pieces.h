// Which pieces of 2 MiB of a range of addresses hold memory. May be read while it
// changes.
#pragma once

#include <stdint.h>

#include <atomic>
#include <vector>

#include "runtime/native/plan/plan.h"

namespace transit {

class LivePieces {
 public:
  explicit LivePieces(uint64_t span_bytes)
      : words_(span_bytes / kPieceBytes / 64 + 1) {}

  // A bit for each.
  const std::atomic<uint64_t>* words() const { return words_.data(); }

  void set(uint64_t offset, uint64_t bytes, bool is_live) {
    const uint64_t end = (offset + round_up_to_piece(bytes)) / kPieceBytes;
    for (uint64_t piece = offset / kPieceBytes; piece < end; ++piece) {
      const uint64_t bit = uint64_t{1} << piece % 64;
      std::atomic<uint64_t>& word = words_[piece / 64];
      is_live ? word.fetch_or(bit) : word.fetch_and(~bit);
    }
  }

 private:
  std::vector<std::atomic<uint64_t>> words_;
};

}  // namespace transit
