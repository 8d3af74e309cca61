// Which streams the job used, and when last.
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include <memory>
#include <vector>

#include "runtime/native/windows/events.h"

namespace transit {

class StreamLog {
 public:
  // Work number `now` was submitted, by this thread.
  void note(CUstream stream, uint64_t now);

  // What ends once all work that was submitted from number `since` on has.
  Events marks_since(uint64_t since);

  // Marks what was submitted to the stream: later it cannot be for a while.
  void mark(CUstream stream);

  // It is about to be destroyed: what it has to do still is waited for.
  void forget(CUstream stream);

 private:
  struct Entry {
    CUstream stream;
    pid_t thread;  // whose per-thread stream it is; 0 for others
    uint64_t last_use;
    uint64_t marked_use;
    std::shared_ptr<const Event> mark;  // after the work `marked_use`
  };

  static void mark(Entry& entry);

  std::vector<Entry> entries_;
};

}  // namespace transit
