#include "runtime/native/windows/timetable.h"

#include <algorithm>

namespace transit {
namespace {

uint32_t position_of(Timetable::Moment moment, const FlatWindow& window) {
  switch (moment) {
    case Timetable::kIssue:
      return window.issue;
    case Timetable::kFirst:
      return window.first;
    case Timetable::kWritten:
      return window.written;
    case Timetable::kLast:
      return window.last;
    default:
      return window.home;
  }
}

}  // namespace

Timetable::Timetable(const Plan& plan) : num_launches_(plan.launches().count) {
  for (const Moment moment : {kIssue, kFirst, kWritten, kLast, kHome}) {
    auto& [windows, starts] = columns_[moment];
    for (const FlatWindow& window : plan.windows()) {
      if (position_of(moment, window) != kNever) windows.push_back(&window);
    }
    const auto is_before = [&](const FlatWindow* a, const FlatWindow* b) {
      return position_of(moment, *a) < position_of(moment, *b);
    };
    std::stable_sort(windows.begin(), windows.end(), is_before);
    starts.assign(num_launches_ + 1, 0);
    for (const FlatWindow* window : windows) ++starts[position_of(moment, *window) + 1];
    for (uint32_t i = 0; i < num_launches_; ++i) starts[i + 1] += starts[i];
  }
}

Entries<const FlatWindow*> Timetable::at(Moment moment, uint32_t position) const {
  const auto& [windows, starts] = columns_[moment];
  return {windows.data() + starts[position], starts[position + 1] - starts[position]};
}

}  // namespace transit
