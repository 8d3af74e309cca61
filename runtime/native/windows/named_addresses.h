// The addresses that a piece of work names, and their hash: FlatLaunch::addresses.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "runtime/native/plan/plan.h"
#include "runtime/native/windows/work.h"

namespace transit {

// Which words are addresses: those in live allocations that lie as they were recorded.
struct AddressFilter {
  CUdeviceptr lowest;  // what the offsets of the plan count from
  uint64_t span_bytes;
  const std::atomic<uint64_t>* live_pieces;  // a bit for each 2 MiB from `lowest` on

  bool accepts(uint64_t word) const;
};

// Used for one launch after the other: no memory is taken per launch. Large: not for
// the stack.
class NamedAddresses {
 public:
  // With `words`, of the parameters only what stands at those: rising.
  void collect(const Work& work, const AddressFilter& filter,
               const Entries<uint32_t>* words = nullptr);

  // Distinct, in the order in which they were found; valid until the next collect().
  const CUdeviceptr* begin() const { return addresses_; }
  const CUdeviceptr* end() const { return addresses_ + count_; }

  bool contains(CUdeviceptr address) const { return is_taken(slot_for(address)); }

  uint64_t hash() const { return hash_; }

  // False if there may be more than were found.
  bool is_whole() const { return is_whole_; }

 private:
  // A parameter block has at most 32764 bytes.
  static constexpr uint32_t kMaxAddresses = 4096;
  static constexpr uint32_t kNumSlots = 2 * kMaxAddresses;

  void collect_from_parameters(const Work& work);
  void collect_from_buffer(void** extra);
  void add_words(const void* bytes, size_t num_bytes, size_t offset);
  void add_word(const void* at);
  void add(CUdeviceptr address);

  // The one that holds the address, or that where it would go.
  uint16_t slot_for(CUdeviceptr address) const;
  bool is_taken(uint16_t slot) const {
    return slots_[slot] < count_ && slot_of_[slots_[slot]] == slot;
  }

  AddressFilter filter_{};
  const Entries<uint32_t>* words_ = nullptr;  // or all
  uint64_t hash_ = 0;
  uint32_t count_ = 0;
  bool is_whole_ = true;
  uint16_t slots_[kNumSlots] = {};        // hash of an address -> index
  uint16_t slot_of_[kMaxAddresses] = {};  // and back
  CUdeviceptr addresses_[kMaxAddresses] = {};
};

}  // namespace transit
