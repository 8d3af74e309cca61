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

}  // namespace transit::captures
