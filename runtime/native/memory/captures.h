// Which streams are being captured into a graph now.
#pragma once

#include "runtime/native/interpose/driver_api.h"

namespace transit::captures {

void begin(CUstream stream);

// A capture also ends when it failed, or when its stream is destroyed.
void end(CUstream stream);

bool any();

// The stream's work goes into a graph.
bool holds(CUstream stream);

// Lets this thread do meanwhile what a capture of the job's would forbid it.
class Relaxed {
 public:
  Relaxed();
  ~Relaxed();
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace transit::captures
