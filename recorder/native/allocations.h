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

// Readers look into an immutable snapshot without a lock. A writer publishes a new one,
// and frees replaced ones at the next change that finds no reader inside.
class LiveAllocations {
 public:
  class View {
   public:
    explicit View(const LiveAllocations& live)
        : num_readers_(live.num_readers_), ranges_(enter(live)) {
      if (!ranges_.empty()) {
        lowest_ = ranges_.front().begin;
        highest_ = ranges_.back().end;
      }
    }
    View(const View&) = delete;
    View& operator=(const View&) = delete;
    ~View() { num_readers_.fetch_sub(1, std::memory_order_seq_cst); }

    // The allocation that holds the address, or null.
    const LiveRange* find(uint64_t address) const {
      if (address < lowest_ || address >= highest_) return nullptr;
      return search(address);
    }

   private:
    static const std::vector<LiveRange>& enter(const LiveAllocations& live);
    const LiveRange* search(uint64_t address) const;

    std::atomic<uint32_t>& num_readers_;
    const std::vector<LiveRange>& ranges_;
    uint64_t lowest_ = 0, highest_ = 0;
  };

  void insert(uint64_t address, uint64_t bytes, uint32_t allocation_id);
  void erase(uint64_t address, uint32_t allocation_id);

 private:
  using Snapshot = std::vector<LiveRange>;  // sorted, without overlaps

  void publish(Snapshot* replacement);

  std::mutex mutex_;
  std::atomic<const Snapshot*> current_{new Snapshot};
  std::vector<const Snapshot*> replaced_;
  mutable std::atomic<uint32_t> num_readers_{0};
};

}  // namespace transit
