#pragma once

#include <cuda.h>

#include <memory>

#include "capture.h"

namespace simgpu {

// Makes a captured graph known to the graph functions, which own it from now on.
CUgraph publish_graph(std::unique_ptr<Graph> graph);

}  // namespace simgpu
