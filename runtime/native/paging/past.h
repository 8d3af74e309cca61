// What the job did, piece by piece of work, and when it last was where it is now: what
// it did then it may do again. Wrong guesses only cost time.
#pragma once

#include <stdint.h>

#include <unordered_map>
#include <vector>

#include "runtime/native/interpose/driver_api.h"
#include "runtime/native/plan/plan.h"

namespace transit {

class Past {
 public:
  // Longer iterations are not remembered.
  static constexpr uint64_t kNumRemembered = 1 << 16;

  Past() : pieces_(kNumRemembered), addresses_(kNumAddresses) {}

  // The next piece of work. The key is equal for equal work on equal addresses, which
  // it names from `begin` to before `end`.
  void note(uint64_t key, const CUdeviceptr* begin, const CUdeviceptr* end);

  // The number of the last piece, from 1.
  uint64_t now() const { return now_; }

  // When the job last was where it is; 0 if it never was, as far as is remembered.
  uint64_t then() const { return then_; }

  // What the piece of this number named: nothing if it is forgotten, or to come.
  Entries<CUdeviceptr> named_at(uint64_t number) const;

  bool remembers(uint64_t number) const {
    return number != 0 && number <= now_ && number + kNumRemembered > now_;
  }

 private:
  static constexpr uint64_t kNumAddresses = kNumRemembered * 8;

  struct Piece {
    uint64_t key;
    uint64_t first_address;  // counted from the start
    uint32_t num_addresses;
  };

  Piece& piece(uint64_t number) { return pieces_[number % kNumRemembered]; }
  const Piece& piece(uint64_t number) const { return pieces_[number % kNumRemembered]; }
  uint64_t when_last(uint64_t key) const;
  void forget(uint64_t number);

  std::vector<Piece> pieces_;
  std::vector<CUdeviceptr> addresses_;  // in turn; those of one piece lie together
  std::unordered_map<uint64_t, uint64_t> last_;  // by key
  uint64_t now_ = 0;
  uint64_t then_ = 0;
  uint64_t num_addresses_ = 0;  // ever
};

}  // namespace transit
