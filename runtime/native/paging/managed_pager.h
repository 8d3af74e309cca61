// Demand paging by the driver, on managed memory: kernels reach it wherever it is, so
// numbers are right whatever they use. By what launches name an account is kept of what
// is on the GPU. For room, what was named least recently is prefetched to the host: the
// driver itself evicts from a full card only.
//
// How memory comes is the policy. What is held prefers the host, where the GPU uses it
// in place: it comes by a prefetch before the launch that names it, and not without.
// What is not held comes by the GPU's faults, which nobody tells us of.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/native/paging/managed_moves.h"
#include "runtime/native/paging/paging.h"
#include "runtime/native/windows/follower.h"
#include "runtime/native/windows/live_pieces.h"
#include "runtime/native/windows/named_addresses.h"
#include "runtime/native/windows/stream_log.h"

namespace transit {

class ManagedPager : public Follower, public paging::MemoryOwner {
 public:
  struct Options {
    uint64_t budget_bytes;
    bool prefetches;      // else what launches name comes by faults,
    uint64_t card_bytes;  // of so much: of more the driver might have to evict
  };

  ManagedPager(const Options& options, CUdevice device);

  Outcome add(uint64_t bytes, CUdeviceptr* address) override;
  void remove(CUdeviceptr address) override;

  void before(const Work& work) override;
  void after() override;
  void await_moves() override {}
  void forget_stream(CUstream stream) override;
  void prepare_capture(CUstream stream) override;
  void make_room(uint64_t bytes) override;

 private:
  struct Part;
  using Parts = std::vector<Part*>;
  using Order = std::list<Part*>;

  enum class Coming { kByFaults, kByPrefetches, kNotAtAll };

  struct Managed {
    uint64_t bytes;
    Coming comes;
    std::vector<Part> parts;  // by address
  };

  // What comes and goes as one.
  struct Part {
    const Managed* managed;
    CUdeviceptr address;
    uint64_t bytes;
    bool is_held;
    uint64_t last_use;  // by name; times are numbers of pieces of work
    bool is_on_gpu;
    Order::iterator place;  // if it is on the GPU
  };

  Coming choose(uint64_t bytes) const;
  void note(const Work& work);
  void want(CUdeviceptr address, uint64_t bytes);
  void bring();
  void find_room(uint64_t bytes);
  void use_in_place(Part& part);
  void come(const Parts& parts);
  void let_go(Part& part);
  void move(Parts parts, Location to);
  void set_on_gpu(Part& part, bool is_on_gpu);
  bool has_room(uint64_t bytes) const;

  const Options options_;
  const CUdevice device_;

  std::mutex mutex_;
  ManagedMoves moves_;
  LivePieces live_;
  StreamLog streams_;
  NamedAddresses named_;
  std::map<CUdeviceptr, Managed> allocations_;
  Order on_gpu_;  // least recently used first
  Parts wanted_;  // by the work at hand
  uint64_t gpu_bytes_ = 0;
  uint64_t faulting_bytes_ = 0;
  uint64_t now_ = 0;
  uint64_t followed_ = 0;  // moves come after the work up to then
};

}  // namespace transit
