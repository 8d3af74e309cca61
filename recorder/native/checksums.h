// An iteration that tells written memory from what is only read: what a launch names
// without a direction is hashed right before and right after it, in its stream.
#pragma once

#include <cupti.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "recorder/native/activities.h"
#include "recorder/native/allocations.h"
#include "recorder/native/contexts.h"
#include "recorder/native/driver_api.h"
#include "recorder/native/inspector.h"
#include "recorder/native/memory_pieces.h"
#include "recorder/native/spool.h"

namespace transit {

// Only plain device memory that was there when the iteration began: freeing it waits
// for the GPU, so a hash in flight never reads what is gone. "Changed" may also be the
// work of another stream at the same time.
class Checksums : public Inspector {
 public:
  Checksums(const DriverApi& driver, const Contexts& contexts,
            const LiveAllocations& live, Activities& activities, Spool& spool)
      : driver_(driver),
        contexts_(contexts),
        live_(live),
        activities_(activities),
        spool_(spool) {}

  // Before the memory is really freed. Waits for hashes that are being submitted.
  void on_free(uint64_t address, uint32_t allocation_id);

  Purpose purpose() const override { return Purpose::kDirection; }
  std::string begin() override;
  void before(const SubmittedLaunch& launch) override;
  void after(const SubmittedLaunch& launch) override;
  void end() override;

 private:
  struct Hashed {
    uint64_t launch_id = 0;
    uint64_t first_slot = 0;
    std::vector<MemoryPiece> pieces;
  };

  // The sums of one context's launches: of each piece two, before and after.
  struct Sums {
    Context context;
    CUmodule module = nullptr;
    CUfunction kernel = nullptr;
    CUdeviceptr address = 0;
    uint64_t num_slots = 0;
    std::atomic<uint64_t> next_slot{0};
    std::mutex mutex;  // guards this
    std::vector<Hashed> hashed;
  };

  // What the launch being made on this thread had hashed before it.
  struct Pending {
    Sums* sums = nullptr;  // null: nothing
    Hashed hashed;
  };
  static thread_local Pending pending_;

  enum Side : uint64_t { kBefore, kAfter };

  std::string open(Sums& sums);
  void close(Sums& sums);
  bool warm_up(const Sums& sums) const;
  void read_back(Sums& sums);
  void write(const Hashed& hashed, const std::vector<uint64_t>& values);
  void find_pieces();
  MemoryPieces read_pieces() const;
  bool is_hashable(const AllocationRecord& allocation) const;
  bool are_alive(const std::vector<MemoryPiece>& pieces) const;
  Sums* sums_of(CUcontext context);
  bool hash(const Sums& sums, Side side, CUstream stream, const Hashed& hashed) const;
  bool launch(const Sums& sums, CUstream stream, ChecksumTable& table) const;

  const DriverApi& driver_;
  const Contexts& contexts_;
  const LiveAllocations& live_;
  Activities& activities_;
  Spool& spool_;

  std::vector<std::unique_ptr<Sums>> sums_;
  std::atomic<uint64_t> num_unchecked_{0};

  // Shared while hashes are submitted, which may block until the GPU has taken some of
  // its queue; exclusive to change these.
  std::shared_mutex mutex_;
  bool is_open_ = false;
  std::unique_ptr<MemoryPieces> pieces_;
};

}  // namespace transit
