// The allocations alive now, for looking up which one a word points into.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace transit {

struct LiveRange {
  uint64_t begin, end;
  uint32_t allocation_id;
};

// False for nearly every word that is no address.
struct AddressBounds {
  uint64_t lowest = 0, span = 0;

  bool may_hold(uint64_t word) const { return word - lowest < span; }
};

// Ranges without overlaps, in the order of their addresses. Over their begins lie
// levels, each with every eighth key of the one below: a look-up reads one cache line
// of each, and has no branches to mispredict.
class AddressIndex {
 public:
  AddressIndex() = default;
  AddressIndex(std::vector<LiveRange> ranges, uint64_t version);

  const std::vector<LiveRange>& ranges() const { return ranges_; }

  uint64_t version() const { return version_; }
  const AddressBounds& bounds() const { return bounds_; }

  // The range that holds the address, or null.
  const LiveRange* find(uint64_t address) const {
    return bounds_.may_hold(address) ? search(address) : nullptr;
  }

 private:
  static constexpr size_t kFanout = 8;
  static constexpr size_t kMaxLevels = 16;
  struct alignas(kFanout * sizeof(uint64_t)) Keys {
    uint64_t begin[kFanout];
  };

  void add_level(const std::vector<uint64_t>& keys);
  const LiveRange* search(uint64_t address) const;

  std::vector<LiveRange> ranges_;
  uint64_t version_ = 0;
  AddressBounds bounds_;
  std::vector<Keys> levels_[kMaxLevels];  // the begins first
  size_t num_levels_ = 0;
};

// Readers look into an immutable snapshot without a lock. A writer publishes a new one,
// and frees replaced ones at the next change that finds no reader inside.
class LiveAllocations {
 public:
  class View {
   public:
    explicit View(const LiveAllocations& live)
        : num_readers_(live.num_readers_), index_(enter(live)) {}
    View(const View&) = delete;
    View& operator=(const View&) = delete;
    ~View() { num_readers_.fetch_sub(1, std::memory_order_seq_cst); }

    // Another one whenever there is another allocation or one less.
    uint64_t version() const { return index_.version(); }
    const AddressBounds& bounds() const { return index_.bounds(); }

    // The allocation that holds the address, or null.
    const LiveRange* find(uint64_t address) const { return index_.find(address); }

   private:
    static const AddressIndex& enter(const LiveAllocations& live);

    std::atomic<uint32_t>& num_readers_;
    const AddressIndex& index_;
  };

  void insert(uint64_t address, uint64_t bytes, uint32_t allocation_id);
  void erase(uint64_t address, uint32_t allocation_id);

 private:
  void publish(std::vector<LiveRange> ranges);

  std::mutex mutex_;
  std::atomic<const AddressIndex*> current_{new AddressIndex};
  std::vector<const AddressIndex*> replaced_;
  mutable std::atomic<uint32_t> num_readers_{0};
};

}  // namespace transit
