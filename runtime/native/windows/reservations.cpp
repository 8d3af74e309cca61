#include "runtime/native/windows/reservations.h"

namespace transit {
namespace {

// From one time to before another.
template <typename Visit>
void around(size_t count, uint64_t from, uint64_t until, Visit visit) {
  if (count == 0) return;
  size_t position = from % count;
  for (uint64_t time = from; time < until; ++time) {
    visit(position);
    if (++position == count) position = 0;
  }
}

}  // namespace

Reservations::Reservations(const Plan& plan) : taken_(plan.launches().count) {
  const uint64_t count = taken_.size();
  for (const FlatWindow& window : plan.windows()) {
    const uint64_t turn = window.last < window.first ? count : 0;
    add(plan.range(window.range).bytes, window.first, window.last + turn + 1);
  }
}

bool Reservations::is_free(uint64_t bytes, uint64_t from, uint64_t until,
                           uint64_t all_bytes) const {
  bool is_free = true;
  around(taken_.size(), from, until,
         [&](size_t position) { is_free &= taken_[position] + bytes <= all_bytes; });
  return is_free;
}

void Reservations::add(uint64_t bytes, uint64_t from, uint64_t until) {
  around(taken_.size(), from, until,
         [&](size_t position) { taken_[position] += bytes; });
}

void Reservations::remove(uint64_t bytes, uint64_t from, uint64_t until) {
  around(taken_.size(), from, until,
         [&](size_t position) { taken_[position] -= bytes; });
}

}  // namespace transit
