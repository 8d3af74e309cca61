// Runs of launches: which the last ones were, and where in a cycle they are found.
#pragma once

#include <stdint.h>

#include <array>
#include <optional>
#include <vector>

#include "runtime/native/flat_plan.h"

namespace transit {

inline bool has_same_addresses(const FlatLaunch& planned, uint64_t addresses) {
  return planned.addresses == addresses || planned.addresses == kAnyAddresses;
}

// The last launches, up to a number of them, and hashes that follow from one to the
// next: of the signatures alone, and with the addresses.
class Run {
 public:
  static constexpr uint32_t kMaxLength = 256;

  // `length` is at least 1 and at most kMaxLength.
  explicit Run(uint32_t length);

  void add(const FlatLaunch& launch);
  void clear();

  bool is_full() const { return num_launches_ == length_; }
  uint32_t length() const { return length_; }
  uint64_t signatures_hash() const { return signatures_hash_; }
  uint64_t launches_hash() const { return launches_hash_; }

  // Of a full run, from the oldest to the newest.
  const FlatLaunch& operator[](uint32_t i) const {
    const uint32_t place = oldest_ + i;
    return launches_[place < length_ ? place : place - length_];
  }

 private:
  uint32_t length_;
  uint64_t weight_of_dropped_ = 1;
  uint32_t num_launches_ = 0;
  uint32_t oldest_ = 0;
  uint64_t signatures_hash_ = 0;
  uint64_t launches_hash_ = 0;
  std::array<FlatLaunch, kMaxLength> launches_{};
};

// The places of a cycle of launches, by the run that ends there. Layers repeat: many
// runs are found at several places and tell nothing, unless their addresses differ.
class RunIndex {
 public:
  // `launches` must outlive the index.
  RunIndex(const FlatLaunch* launches, uint32_t count, uint32_t run_length);

  // Where a full run ends, if that is the only place with its signatures and nearly
  // all of its addresses are those of the plan, or the only one with its addresses.
  std::optional<uint32_t> find(const Run& run) const;

 private:
  struct Place {
    uint64_t hash;
    uint32_t position;
  };
  using Places = std::vector<Place>;  // by hash

  static void sort(Places& places);
  static std::optional<uint32_t> find_only(const Places& places, uint64_t hash);
  bool is_run_at(uint32_t position, const Run& run) const;

  const FlatLaunch* launches_;
  uint32_t count_;
  Places by_signatures_;
  Places by_launches_;
};

}  // namespace transit
