// Moments in the job's streams, for others to wait for.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "runtime/native/interpose/driver_api.h"

namespace transit {

class Event {
 public:
  explicit Event(CUevent event) : event_(event) {}
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  // In the stream's order: all that was submitted to it before. Null if that is
  // done: it is waited for if no event can be had.
  static std::shared_ptr<const Event> record(CUstream stream);

  bool has_passed() const;

  // What the stream does from now on comes after it.
  void precede(CUstream stream) const;

 private:
  CUevent event_;
  mutable std::atomic<bool> has_passed_{false};
};

using Events = std::vector<std::shared_ptr<const Event>>;

bool have_passed(const Events& events);

}  // namespace transit
