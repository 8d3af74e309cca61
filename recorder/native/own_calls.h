// Tells the recorder's own calls of the driver from the job's.
#pragma once

namespace transit {

// While one lives, what its thread asks of the driver is the recorder's own doing.
class OwnCalls {
 public:
  OwnCalls() { in_progress_ = true; }
  ~OwnCalls() { in_progress_ = false; }
  OwnCalls(const OwnCalls&) = delete;
  OwnCalls& operator=(const OwnCalls&) = delete;
  static bool in_progress() { return in_progress_; }

 private:
  inline static thread_local bool in_progress_ = false;
};

}  // namespace transit
