// Enacts the windows of a plan around the work that the job submits to one device.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/native/plan/plan.h"
#include "runtime/native/windows/aligner.h"
#include "runtime/native/windows/follower.h"
#include "runtime/native/windows/gates.h"
#include "runtime/native/windows/laps.h"
#include "runtime/native/windows/live_pieces.h"
#include "runtime/native/windows/makeshift.h"
#include "runtime/native/windows/named_addresses.h"
#include "runtime/native/windows/place.h"
#include "runtime/native/windows/stream_log.h"
#include "runtime/native/windows/timetable.h"
#include "runtime/native/windows/transfers.h"

namespace transit {

class Executor : public Follower {
 public:
  // The plan's addresses count from `lowest`.
  Executor(const Plan& plan, CUdevice device, CUcontext context, CUdeviceptr lowest);

  CUdevice device() const { return device_; }

  // The allocation is placed, but for its windowed ranges; it lies where it was
  // recorded. After `remove` nothing is under these.
  Outcome add(const FlatAllocation& allocation);
  void remove(const FlatAllocation& allocation);

  void before(const Work& work) override;
  void after() override;
  void await_moves() override;
  void forget_stream(CUstream stream) override;
  void prepare_capture(CUstream stream) override;
  void make_room(uint64_t bytes) override;

 private:
  void follow(const Work& work);
  void begin_planned(const Aligner::Step& step, CUstream stream, bool is_known);
  void begin_iteration_at(uint32_t position, CUstream stream);
  void enter(uint32_t position, CUstream stream, bool is_known);
  void leave(uint32_t position, bool is_known);
  void stop_loading();

  void bring_named(CUstream stream);
  void use_unplanned(CUstream stream, const Entries<uint64_t>& planned, bool is_known,
                     uint64_t doubtful_until);
  void use_unplanned(CUstream stream, Place& place, uint64_t doubtful_until);
  template <typename Visit>
  void visit_places_from(uint64_t offset, const Visit& visit);

  bool names_places() const;
  bool names_all_of(const Entries<uint64_t>& planned) const;
  const FlatAllocation* find_allocation(uint64_t offset) const;

  void gate(const Place& place, CUstream stream);
  void await_named(const Work& work);
  void hold_still(const Work& work);
  template <typename Visit>
  void visit_ranges(const Work& work, const Visit& visit);

  Place* find(const FlatWindow& window) const { return places_[window.range].get(); }
  uint64_t time_of(uint32_t position) const {
    return lap_ * timetable_.num_launches() + position;
  }
  // What the plan does not know of is gone after a turn at the earliest.
  uint64_t doubtful_until() const {
    return now_ + uint64_t{2} * timetable_.num_launches();
  }
  void advance_to(uint32_t position);
  void count_copies(bool was_locked);
  Transfers::Load times_of(const FlatWindow& window, uint32_t position,
                           const Place& place);

  const Plan& plan_;
  const CUdevice device_;
  const CUdeviceptr lowest_;
  const Timetable timetable_;
  Transfers transfers_;

  std::mutex mutex_;
  Gates gates_;
  Aligner aligner_;
  StreamLog streams_;
  NamedAddresses named_;
  LivePieces live_pieces_;
  const AddressFilter filter_;
  std::vector<std::unique_ptr<Place>> places_;             // by range
  std::map<uint64_t, const FlatAllocation*> allocations_;  // with places, by offset
  Makeshift makeshift_;

  uint64_t now_ = 0;  // pieces of work submitted
  uint64_t lap_ = 1;  // around the iteration
  uint32_t position_ = 0;
  uint64_t copied_bytes_ = 0;  // either way, at the last look
  Laps laps_;
};

}  // namespace transit
