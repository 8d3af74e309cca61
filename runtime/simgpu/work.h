// The kinds of GPU work, as data: a stream runs them, a graph keeps them.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "module.h"
#include "stream.h"

namespace simgpu {

struct KernelWork {
  FunctionRef function;
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  std::vector<uint8_t> arguments;
};

struct CopyWork {
  uintptr_t destination;
  uintptr_t source;
  size_t bytes;
  uint8_t copy_kind, source_kind, destination_kind;  // as CUPTI numbers them
};

struct SetWork {
  uintptr_t destination;
  uint32_t value;
  size_t element_bytes;
  size_t elements;
};

struct HostWork {
  CUhostFn function;
  void* data;
};

class Graph;

// Only in graphs, which launch the nodes of a child in its place.
struct ChildWork {
  std::shared_ptr<Graph> graph;
};

using Work = std::variant<KernelWork, CopyWork, SetWork, HostWork, ChildWork>;

// As CUPTI numbers them; 0: in no graph.
struct GraphPlace {
  uint32_t graph_id = 0;
  uint64_t node_id = 0;
};

struct Submission {
  uint64_t time_ns;
  uint32_t correlation_id;
  GraphPlace place;
};

// On the stream's thread. Does nothing once the context has failed.
void execute(const Work& work, Stream& stream, const Submission& submission);

}  // namespace simgpu
