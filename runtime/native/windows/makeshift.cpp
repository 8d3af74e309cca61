#include "runtime/native/windows/makeshift.h"

#include "runtime/native/status/status.h"

namespace transit {

void Makeshift::welcome(Place& place, uint64_t now, uint64_t time) {
  if (!has_room(place.range().bytes)) return;
  place.come({nullptr, time, time, false, false, true, {}}, now);
}

void Makeshift::bring(Place& place, uint64_t now, uint64_t time) {
  const uint64_t missing_bytes = place.range().bytes - place.bytes_on_gpu();
  if (missing_bytes == 0 || !find_room(missing_bytes, now, time)) return;
  const Events after = streams_.marks_since(place.since());
  place.come({nullptr, time, time, true, false, true, after}, now);
}

bool Makeshift::find_room(uint64_t bytes, uint64_t now, uint64_t time) {
  while (!has_room(bytes)) {
    Place* victim = choose_victim(now);
    if (victim == nullptr) return false;
    victim->go(streams_.marks_since(victim->since()), now, time);
  }
  return true;
}

bool Makeshift::has_room(uint64_t bytes) const {
  uint64_t taken = driver_bytes() + bytes;
  for (const auto& place : places_) {
    if (place != nullptr) taken += place->bytes_on_gpu();
  }
  return taken <= bytes_;
}

Place* Makeshift::choose_victim(uint64_t now) const {
  Place* victim = nullptr;
  for (const auto& place : places_) {
    if (place == nullptr || place->bytes_on_gpu() == 0) continue;
    if (place->last_use() == now) continue;
    if (victim == nullptr || place->last_use() < victim->last_use()) {
      victim = place.get();
    }
  }
  return victim;
}

}  // namespace transit
