// Stream capture: streams that record nodes into a graph instead of running them.
#pragma once

#include <cuda.h>

#include <memory>
#include <vector>

#include "stream.h"
#include "work.h"

namespace simgpu {

// A point in a capture that an event marks.
struct CapturePoint {
  std::shared_ptr<Capture> capture;
  std::vector<Node*> tail;
};

// Runs the work on the stream, or records it if the stream is capturing. Returns
// whether it will run. `place` is where an executable graph has it.
bool submit(Stream& stream, Work work, const GraphPlace& place = {});

// Throws if a call that capture forbids is made while this thread must not make it.
void refuse_during_capture();
// Throws if the stream is capturing: it cannot be waited for or asked.
void refuse_capturing(Stream& stream);
bool is_capturing(Stream& stream);
// What a destroyed stream was capturing is no longer valid.
void abandon_capture(Stream& stream);

// The capture position of the stream; without capture if it is not capturing.
CapturePoint capture_point(Stream& stream);
// Makes the stream, capturing already or from now on, depend on the point.
void join_capture(Stream& stream, const CapturePoint& point);

}  // namespace simgpu
