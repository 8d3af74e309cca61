// Demand paging in user space. Before each kernel the memory that it names is brought
// to the GPU, as far as there is room within the budget, and in its place goes what was
// used least recently; or, where the job has been at this kernel before, what it then
// used last. What has no room is used in place, in host memory.
//
// A move begins when the work is done that was submitted since the last one, and what
// is submitted after waits for it, whatever it names: kernels may use memory that no
// launch names, through pointers in memory. If the job is known not to, moves may go on
// beside other work, and what was used next the last time is brought ahead.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/native/paging/address_space.h"
#include "runtime/native/paging/paged.h"
#include "runtime/native/paging/paging.h"
#include "runtime/native/paging/past.h"
#include "runtime/native/windows/follower.h"
#include "runtime/native/windows/gates.h"
#include "runtime/native/windows/named_addresses.h"
#include "runtime/native/windows/stream_log.h"
#include "runtime/native/windows/transfers.h"

namespace transit {

class Pager : public Follower, public paging::MemoryOwner {
 public:
  struct Options {
    uint64_t budget_bytes;
    bool moves_ahead;  // kernels use only what their launches name
  };

  Pager(const Options& options, CUdevice device, CUcontext context,
        CUdeviceptr lowest_address, uint64_t span_bytes);

  // On the GPU at once, if there is room.
  Outcome add(uint64_t bytes, CUdeviceptr* address) override;
  void remove(CUdeviceptr address) override;

  void before(const Work& work) override;
  void after() override;
  void await_moves() override;
  void forget_stream(CUstream stream) override;
  void prepare_capture(CUstream stream) override;
  void make_room(uint64_t bytes) override;

 private:
  void note(const Work& work);
  void want(CUdeviceptr address, uint64_t bytes);
  void bring();
  void bring_ahead();
  bool bring_ahead(uint64_t time);
  void gate(CUstream stream);
  void await(const Work& work);

  void load(Page& page, uint64_t due, bool copies, Events after);
  void release(Page& page);
  void hasten(Page& page);
  bool take_back(Page& page);
  void set_moving(Page& page);
  Events users_of(const Page& page);

  bool find_room(uint64_t bytes, uint64_t least_time_to_use);
  bool has_room(uint64_t bytes) const;
  bool fits(const Page& page) const;
  Page* choose_victim(uint64_t least_time_to_use);
  Paged* find(CUdeviceptr address);

  const Options options_;
  const CUdevice device_;
  Transfers transfers_;

  std::mutex mutex_;
  AddressSpace space_;
  Gates gates_;
  StreamLog streams_;
  NamedAddresses named_;
  Past past_;  // its numbers of pieces of work are the time
  std::map<CUdeviceptr, std::unique_ptr<Paged>> allocations_;
  std::vector<Page*> moving_;     // or have just arrived
  uint64_t asked_bytes_ = 0;      // that are to be on the GPU, or are
  uint64_t last_unknown_ = 0;     // piece of work that may have used anything
  uint64_t looked_ahead_to_ = 0;  // in the past

  // Of the work at hand.
  std::vector<Page*> wanted_;
  std::vector<Paged*> touched_;  // it may use more of them than it wants
  uint64_t wanted_bytes_ = 0;    // of `asked_bytes_`
};

}  // namespace transit
