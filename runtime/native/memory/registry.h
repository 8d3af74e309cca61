// Every live allocation of the process, by address; and the one observer of them.
#pragma once

#include <stdint.h>

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/native/interpose/driver_api.h"
#include "runtime/native/observer.h"
#include "runtime/native/plan/plan.h"

namespace transit {

struct Allocation {
  uint64_t address = 0;
  uint64_t bytes = 0;  // as asked for
  int32_t device = 0;
  TransitAllocationApi api = TRANSIT_API_MEM_ALLOC;
  bool is_movable = false;
  bool is_on_device = true;
  std::string caller;

  bool is_placed() const {
    return placed != nullptr || is_paged || api == TRANSIT_API_AUDITED;
  }
  const FlatAllocation* placed = nullptr;  // by a backend, as this says
  bool is_at_recorded_address = false;     // see recorded_addresses.h
  bool is_paged = false;                   // by paging/
  uint64_t host_bytes = 0;                 // of host memory behind it
  CUcontext context = nullptr;             // it was placed in

  uint32_t id = 0;                       // set by the registry
  int32_t ordinal = TRANSIT_NO_ORDINAL;  // set by the registry, if movable
};

class Registry {
 public:
  // Never destroyed: other libraries free memory while the process exits.
  static Registry& instance();

  // The ordinal of the next movable allocation on `device`.
  uint32_t next_ordinal(int32_t device);

  // Tells the observer. Returns the allocation that was at this address, if any: its
  // context was destroyed and with it the memory.
  std::optional<Allocation> add(Allocation allocation);

  // Tells the observer; to be called before the memory is really freed.
  std::optional<Allocation> take(uint64_t address);
  std::vector<Allocation> take_within(uint64_t address, uint64_t bytes);

  // The allocation that holds `address`, if not the driver made it as asked for.
  std::optional<Allocation> find_placed(uint64_t address);

  void observe(const TransitObserver* observer);

 private:
  void report(const Allocation& allocation) const;
  Allocation remove(std::map<uint64_t, Allocation>::iterator position);

  std::mutex mutex_;
  std::map<uint64_t, Allocation> live_;
  std::map<int32_t, uint32_t> num_movable_;  // ever, by device
  uint32_t num_allocations_ = 0;             // ever
  const TransitObserver* observer_ = nullptr;
};

}  // namespace transit
