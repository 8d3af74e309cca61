// Told of the work that the job submits, while windows::is_on().
#pragma once

#include "runtime/native/windows/work.h"

namespace transit {

class Follower {
 public:
  virtual ~Follower() = default;

  // Around the driver's call, on one thread. Between them no other thread's work is
  // submitted, unless the call may wait for it.
  virtual void before(const Work& work) = 0;
  virtual void after() = 0;

  // Waits for all that streams wait for: the driver is about to load code. It waits for
  // the streams then, and lets nobody open a gate meanwhile.
  virtual void await_moves() = 0;

  // The stream is about to be destroyed, or captured: nothing can be recorded in it
  // then.
  virtual void forget_stream(CUstream stream) = 0;
  virtual void prepare_capture(CUstream stream) = 0;

  // The driver is about to be asked for so much memory of the GPU: returns when there
  // is room, as far as it can be made.
  virtual void make_room(uint64_t bytes) = 0;
};

}  // namespace transit
