// Managed memory: where each 2 MiB page is, and what moves it. Only the books are kept
// here; the bytes themselves never move.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

#include "memory.h"

namespace simgpu {

struct Page {
  static constexpr int16_t kHost = -1;
  static constexpr int16_t kNowhere = -2;  // never touched

  int16_t residence = kNowhere;     // kHost or a device
  int16_t duplicate_on = kNowhere;  // of a read-mostly host page
  bool read_mostly = false;
  int16_t preferred = kNowhere;  // kHost, a device, or no preference
  int16_t last_prefetch = kNowhere;
  uint64_t accessed_by = 0;  // a bit for each device
  uint64_t mapped_by = 0;    // devices that reach the host page without a fault
  uint64_t last_use = 0;     // key in the device's order of use; 0: not on a device

  int16_t device() const { return residence >= 0 ? residence : duplicate_on; }
};

struct Managed {
  std::vector<Page> pages;
};

// All with the memory lock held. What happened is appended, to be reported without it.
void touch_managed(int device, const Range& range, const Access& access,
                   std::vector<UvmActivity>& happened);
// Moves pages to a device or to kHost.
void prefetch_managed(int destination, const Range& range, const Access& where,
                      std::vector<UvmActivity>& happened);
void advise_managed(const Range& range, const Access& where, CUmem_advise advice,
                    int location, std::vector<UvmActivity>& happened);
// Pushes out the page of the device that was used longest ago; false if there is none.
bool evict_page(int device, std::vector<UvmActivity>& happened);
void release_managed(const Range& range);

}  // namespace simgpu
