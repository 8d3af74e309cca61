// What the nodes of a graph are, and what they touch.
#pragma once

#include <cuda.h>

#include <vector>

#include "recorder/native/allocations.h"
#include "recorder/native/driver_api.h"
#include "recorder/native/function_layouts.h"
#include "recorder/native/parameter_scan.h"
#include "recorder/native/spool.h"
#include "recorder/native/tensor_maps.h"

namespace transit {

struct GraphNode {
  CUgraphNode handle;
  GraphNodeRecord record;
  std::vector<AccessRecord> accesses;
};

// One thread at a time.
class GraphNodeReader {
 public:
  GraphNodeReader(const DriverApi& driver, const LiveAllocations& live,
                  const TensorMaps& tensor_maps, FunctionLayouts& layouts, Spool& spool)
      : driver_(driver),
        live_(live),
        tensor_maps_(tensor_maps),
        layouts_(layouts),
        spool_(spool) {}

  // The nodes that touch memory, those of child graphs included, in the driver's order.
  std::vector<GraphNode> read(CUgraph graph);

  // What a node does with these parameters, but for its handle and id. False, and
  // nothing read, for parameters of a node that touches no memory.
  bool read(const CUDA_KERNEL_NODE_PARAMS_v2& parameters, GraphNode& node);
  bool read(const CUDA_KERNEL_NODE_PARAMS_v3& parameters, GraphNode& node);
  bool read(const CUDA_MEMCPY3D& parameters, GraphNode& node);
  bool read(const CUDA_MEMSET_NODE_PARAMS_v1& parameters, GraphNode& node);
  bool read(const CUDA_MEMSET_NODE_PARAMS_v2& parameters, GraphNode& node);
  bool read(const CUgraphNodeParams& parameters, GraphNode& node);

 private:
  void append(CUgraph graph, std::vector<GraphNode>& nodes);
  void append(CUgraphNode handle, std::vector<GraphNode>& nodes);
  std::vector<AccessRecord> take_accesses();
  template <typename Parameters>
  bool read_kernel(const Parameters& parameters, GraphNode& node);
  template <typename Parameters>
  bool read_set(const Parameters& parameters, GraphNode& node);

  const DriverApi& driver_;
  const LiveAllocations& live_;
  const TensorMaps& tensor_maps_;
  FunctionLayouts& layouts_;
  Spool& spool_;
  AccessCollector accesses_;
};

}  // namespace transit
