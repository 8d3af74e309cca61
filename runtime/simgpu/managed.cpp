#include "managed.h"

#include <cupti_activity.h>

#include <algorithm>

#include "process.h"

namespace simgpu {
namespace {

using Happened = std::vector<UvmActivity>;

constexpr double kLinkBytesPerNs = 55;
constexpr uint32_t kHostId = CUPTI_UNIFIED_MEMORY_CPU_DEVICE_ID;

uint64_t bit(int device) { return uint64_t{1} << static_cast<unsigned>(device); }

// One page of a range, with the bytes of it that the range has.
struct Place {
  Page* page;
  uintptr_t address;
  size_t bytes;
};

// Pages of each device in order of last use, oldest first.
std::map<uint64_t, Place>& pages_on(int device) {
  static auto* devices = new std::map<int, std::map<uint64_t, Place>>;
  return (*devices)[device];
}

template <class Visit>
void each_page(const Range& range, const Access& access, Visit visit) {
  const size_t first = (access.address - range.base) / kPageBytes;
  const size_t last = (access.address + access.bytes - 1 - range.base) / kPageBytes;
  for (size_t i = first; i <= last; ++i) {
    const uintptr_t address = range.base + i * kPageBytes;
    visit(Place{&range.managed->pages[i], address,
                std::min(kPageBytes, range.end() - address)});
  }
}

uint32_t id_of(int location) {
  return location < 0 ? kHostId : static_cast<uint32_t>(location);
}

UvmActivity activity(uint32_t kind, uint64_t address, uint64_t value, int source,
                     int destination, uint32_t flags) {
  const uint64_t start_ns = now_ns();
  return {start_ns,      start_ns,           address, value, kind,
          id_of(source), id_of(destination), flags};
}

void record_migration(const Place& place, int from, int to, uint32_t cause,
                      Happened& happened) {
  const bool in = to >= 0;
  UvmActivity moved =
      activity(in ? CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_BYTES_TRANSFER_HTOD
                  : CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_BYTES_TRANSFER_DTOH,
               place.address, place.bytes, from, to, cause);
  moved.end_ns +=
      static_cast<uint64_t>(static_cast<double>(place.bytes) / kLinkBytesPerNs);
  happened.push_back(moved);
  (in ? counters().migrated_in_bytes : counters().migrated_out_bytes) += place.bytes;
}

void record_fault(int device, const Place& place, const Access& access,
                  Happened& happened) {
  ++counters().fault_count;
  const uintptr_t address = std::max(place.address, access.address) & ~uintptr_t{4095};
  happened.push_back(activity(CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_GPU_PAGE_FAULT,
                              address, 1, device, device,
                              access.reads
                                  ? CUPTI_ACTIVITY_UNIFIED_MEMORY_ACCESS_TYPE_READ
                                  : CUPTI_ACTIVITY_UNIFIED_MEMORY_ACCESS_TYPE_WRITE));
}

void map_remotely(int device, const Place& place, uint32_t cause, Happened& happened) {
  if (place.page->mapped_by & bit(device)) return;
  place.page->mapped_by |= bit(device);
  happened.push_back(activity(CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_REMOTE_MAP,
                              place.address, place.bytes, device, Page::kHost, cause));
}

void map_for_accessors(const Place& place, Happened& happened) {
  for (int device = 0; device < 64; ++device)
    if (place.page->accessed_by & bit(device))
      map_remotely(device, place, CUPTI_ACTIVITY_UNIFIED_MEMORY_REMOTE_MAP_CAUSE_POLICY,
                   happened);
}

void mark_used(const Place& place, int device) {
  static uint64_t clock = 0;
  Page& page = *place.page;
  if (page.last_use) pages_on(device).erase(page.last_use);
  page.last_use = ++clock;
  pages_on(device)[page.last_use] = place;
}

// Takes the page off its device: the copy there is no longer counted.
void leave_device(const Place& place) {
  Page& page = *place.page;
  const int device = page.device();
  if (device < 0) return;
  pages_on(device).erase(page.last_use);
  page.last_use = 0;
  used_bytes(device) -= place.bytes;
  page.duplicate_on = Page::kNowhere;
}

void move_to_host(const Place& place, uint32_t cause, Happened& happened) {
  Page& page = *place.page;
  if (page.residence >= 0)
    record_migration(place, page.residence, Page::kHost, cause, happened);
  leave_device(place);
  page.residence = Page::kHost;
  map_for_accessors(place, happened);
}

// False if the device has no room.
bool move_to_device(int device, const Place& place, bool reads_only, uint32_t cause,
                    Happened& happened) {
  Page& page = *place.page;
  if (page.device() >= 0 && page.device() != device)
    move_to_host(place, cause, happened);
  if (!charge(device, place.bytes, happened)) return false;
  if (page.residence == Page::kHost)
    record_migration(place, Page::kHost, device, cause, happened);
  if (page.residence == Page::kHost && page.read_mostly && reads_only) {
    page.duplicate_on = static_cast<int16_t>(device);
  } else {
    page.residence = static_cast<int16_t>(device);
    page.mapped_by = 0;
  }
  mark_used(place, device);
  return true;
}

// A write ends duplication: the written copy is the page.
void collapse_duplicate(int device, const Place& place) {
  Page& page = *place.page;
  if (page.duplicate_on != device) return;
  page.residence = page.duplicate_on;
  page.duplicate_on = Page::kNowhere;
  page.mapped_by = 0;
}

void use_in_place(const Place& place, const Access& access) {
  const uintptr_t start = std::max(place.address, access.address);
  const uintptr_t end =
      std::min(place.address + place.bytes, access.address + access.bytes);
  if (access.reads) counters().link_read_bytes += end - start;
  if (access.writes) counters().link_written_bytes += end - start;
}

// Where a faulting page goes follows the order of the driver's own policy.
void serve_fault(int device, const Place& place, const Access& access,
                 Happened& happened) {
  Page& page = *place.page;
  record_fault(device, place, access, happened);
  const bool reads_only = !access.writes;
  const bool stays = page.preferred == Page::kHost && !(page.read_mostly && reads_only);
  if (!stays &&
      move_to_device(device, place, reads_only,
                     CUPTI_ACTIVITY_UNIFIED_MEMORY_MIGRATION_CAUSE_COHERENCE, happened))
    return;
  if (page.residence == Page::kNowhere) page.residence = Page::kHost;
  map_remotely(device, place,
               stays ? CUPTI_ACTIVITY_UNIFIED_MEMORY_REMOTE_MAP_CAUSE_POLICY
                     : CUPTI_ACTIVITY_UNIFIED_MEMORY_REMOTE_MAP_CAUSE_OUT_OF_MEMORY,
               happened);
  use_in_place(place, access);
}

void touch_page(int device, const Place& place, const Access& access,
                Happened& happened) {
  Page& page = *place.page;
  if (page.device() == device) {
    if (page.duplicate_on == device && access.writes) {
      record_fault(device, place, access, happened);
      collapse_duplicate(device, place);
    }
    mark_used(place, device);
  } else if (page.residence == Page::kHost && page.mapped_by & bit(device)) {
    use_in_place(place, access);
  } else {
    serve_fault(device, place, access, happened);
  }
}

void set_preferred(const Place& place, int location) {
  Page& page = *place.page;
  page.preferred = static_cast<int16_t>(location);
  if (location >= 0) page.mapped_by &= ~bit(location);
}

void set_accessed_by(const Place& place, int device, Happened& happened) {
  place.page->accessed_by |= bit(device);
  if (place.page->residence == Page::kHost && place.page->duplicate_on != device)
    map_remotely(device, place, CUPTI_ACTIVITY_UNIFIED_MEMORY_REMOTE_MAP_CAUSE_POLICY,
                 happened);
}

// The device's copy is dropped, and with it the device's way to the page.
void unset_read_mostly(const Place& place) {
  Page& page = *place.page;
  page.read_mostly = false;
  if (page.duplicate_on < 0) return;
  page.mapped_by &= ~bit(page.duplicate_on);
  leave_device(place);
}

}  // namespace

void touch_managed(int device, const Range& range, const Access& access,
                   Happened& happened) {
  each_page(range, access,
            [&](const Place& place) { touch_page(device, place, access, happened); });
}

void prefetch_managed(int destination, const Range& range, const Access& where,
                      Happened& happened) {
  constexpr uint32_t kCause = CUPTI_ACTIVITY_UNIFIED_MEMORY_MIGRATION_CAUSE_USER;
  each_page(range, where, [&](const Place& place) {
    place.page->last_prefetch = static_cast<int16_t>(destination);
    if (destination < 0)
      move_to_host(place, kCause, happened);
    else if (place.page->device() != destination)
      move_to_device(destination, place, true, kCause, happened);
  });
}

void advise_managed(const Range& range, const Access& where, CUmem_advise advice,
                    int location, Happened& happened) {
  each_page(range, where, [&](const Place& place) {
    Page& page = *place.page;
    switch (advice) {
      case CU_MEM_ADVISE_SET_READ_MOSTLY:
        page.read_mostly = true;
        break;
      case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        unset_read_mostly(place);
        break;
      case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        set_preferred(place, location);
        break;
      case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        set_preferred(place, Page::kNowhere);
        break;
      case CU_MEM_ADVISE_SET_ACCESSED_BY:
        if (location >= 0) set_accessed_by(place, location, happened);
        break;
      case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
        // The policy goes, the mapping stays: as measured on a real driver.
        if (location >= 0) page.accessed_by &= ~bit(location);
        break;
    }
  });
}

bool evict_page(int device, Happened& happened) {
  if (pages_on(device).empty()) return false;
  const Place place = pages_on(device).begin()->second;
  if (place.page->residence >= 0) counters().evicted_bytes += place.bytes;
  move_to_host(place, CUPTI_ACTIVITY_UNIFIED_MEMORY_MIGRATION_CAUSE_EVICTION, happened);
  return true;
}

void release_managed(const Range& range) {
  each_page(range, {range.base, range.bytes, false, false}, leave_device);
}

}  // namespace simgpu
