#include "runtime/native/memory/audited.h"

#include <inttypes.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "runtime/native/interpose/driver.h"
#include "runtime/native/lifecycle/log.h"
#include "runtime/native/lifecycle/process.h"
#include "runtime/native/lifecycle/settings.h"
#include "runtime/native/plan/plan.h"

namespace transit::audited {
namespace {

// The card may be somebody else's as well, and the driver's eviction can hang it.
constexpr uint64_t kShareOfFreeMemory = 4;

struct Card {
  uint64_t limit_bytes = 0;    // of managed memory; 0: none at all
  uint64_t free_bytes = 0;     // of the card, before the job allocated
  uint64_t managed_bytes = 0;  // now
  uint64_t driver_bytes = 0;   // now
};

std::mutex& mutex() {
  static std::mutex& instance = *new std::mutex;
  return instance;
}

// Without concurrent access every launch would move all managed memory to the device.
bool can_audit(CUdevice device) {
  int concurrent = 0;
  driver().cuDeviceGetAttribute(&concurrent,
                                CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, device);
  if (concurrent != 0) return true;
  log::failure(
      "device %d cannot be audited: it has no concurrent access to managed memory, and "
      "reports no touch of a page; its allocations are left to the driver",
      device);
  return false;
}

Card measure(CUdevice device) {
  Card card;
  size_t free_bytes = 0, total_bytes = 0;
  if (driver().cuMemGetInfo_v2(&free_bytes, &total_bytes) != CUDA_SUCCESS) return card;
  card.free_bytes = free_bytes;
  if (!can_audit(device)) return card;
  const uint64_t asked_bytes = settings().audit_bytes;
  card.limit_bytes = asked_bytes != 0 ? asked_bytes : free_bytes / kShareOfFreeMemory;
  log::info("auditing up to %" PRIu64 " bytes of device %d", card.limit_bytes, device);
  return card;
}

Card& card_of(CUdevice device) {
  static auto& cards = *new std::map<CUdevice, Card>;
  const auto position = cards.find(device);
  if (position != cards.end()) return position->second;
  return cards[device] = measure(device);
}

// Where the job would run out of memory by itself it does so here: beyond that the
// driver would evict managed pages to make room.
Served allocate_by_driver(Card& card, uint64_t bytes) {
  const uint64_t taken_bytes = card.managed_bytes + card.driver_bytes;
  if (bytes > card.free_bytes || taken_bytes > card.free_bytes - bytes) {
    return {CUDA_ERROR_OUT_OF_MEMORY, 0, false};
  }
  CUdeviceptr address = 0;
  const CUresult result = driver().cuMemAlloc_v2(&address, bytes);
  if (result == CUDA_SUCCESS) card.driver_bytes += bytes;
  return {result, address, false};
}

}  // namespace

bool is_on() { return settings().audit && replay() == nullptr; }

// No two share a page: each takes whole pieces, which the driver aligns.
Served allocate(CUdevice device, uint64_t bytes) {
  const uint64_t managed_bytes = round_up_to_piece(bytes);
  const std::lock_guard<std::mutex> lock(mutex());
  Card& card = card_of(device);
  const uint64_t room_bytes =
      card.limit_bytes - std::min(card.limit_bytes, card.managed_bytes);
  CUdeviceptr address = 0;
  if (managed_bytes >= bytes && managed_bytes <= room_bytes &&
      driver().cuMemAllocManaged(&address, managed_bytes, CU_MEM_ATTACH_GLOBAL) ==
          CUDA_SUCCESS) {
    card.managed_bytes += managed_bytes;
    return {CUDA_SUCCESS, address, true};
  }
  log::info("%" PRIu64 " bytes on device %d are not audited", bytes, device);
  return allocate_by_driver(card, bytes);
}

void count_free(CUdevice device, uint64_t bytes, bool is_managed) {
  const std::lock_guard<std::mutex> lock(mutex());
  Card& card = card_of(device);
  if (is_managed) {
    card.managed_bytes -= round_up_to_piece(bytes);
  } else {
    card.driver_bytes -= bytes;
  }
}

}  // namespace transit::audited
