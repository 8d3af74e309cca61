#include "recorder/native/graph_nodes.h"

#include <algorithm>
#include <iterator>

#include "recorder/native/api_calls.h"

namespace transit {

std::vector<GraphNode> GraphNodeReader::read(CUgraph graph) {
  std::vector<GraphNode> nodes;
  append(graph, nodes);
  return nodes;
}

void GraphNodeReader::append(CUgraph graph, std::vector<GraphNode>& nodes) {
  size_t count = 0;
  if (driver_.cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS) return;
  std::vector<CUgraphNode> handles(count);
  if (driver_.cuGraphGetNodes(graph, handles.data(), &count) != CUDA_SUCCESS) return;
  for (CUgraphNode handle : handles) append(handle, nodes);
}

void GraphNodeReader::append(CUgraphNode handle, std::vector<GraphNode>& nodes) {
  GraphNode node{};
  node.handle = handle;
  const auto append_if_read = [&](CUresult result, const auto& parameters) {
    if (result == CUDA_SUCCESS && read(parameters, node)) nodes.push_back(node);
  };
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  driver_.cuGraphNodeGetType(handle, &type);
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      CUDA_KERNEL_NODE_PARAMS kernel{};
      return append_if_read(driver_.cuGraphKernelNodeGetParams_v2(handle, &kernel),
                            kernel);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY: {
      CUDA_MEMCPY3D copy{};
      return append_if_read(driver_.cuGraphMemcpyNodeGetParams(handle, &copy), copy);
    }
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      CUDA_MEMSET_NODE_PARAMS set{};
      return append_if_read(driver_.cuGraphMemsetNodeGetParams(handle, &set), set);
    }
    case CU_GRAPH_NODE_TYPE_GRAPH: {
      CUgraph child = nullptr;
      if (driver_.cuGraphChildGraphNodeGetGraph(handle, &child) == CUDA_SUCCESS) {
        append(child, nodes);
      }
      return;
    }
    default:
      return;
  }
}

std::vector<AccessRecord> GraphNodeReader::take_accesses() {
  const Accesses found = accesses_.found();
  return {found.begin, found.begin + found.count};
}

bool GraphNodeReader::read(const CUDA_KERNEL_NODE_PARAMS_v2& parameters,
                           GraphNode& node) {
  return read_kernel(parameters, node);
}

bool GraphNodeReader::read(const CUDA_KERNEL_NODE_PARAMS_v3& parameters,
                           GraphNode& node) {
  return read_kernel(parameters, node);
}

template <typename Parameters>
bool GraphNodeReader::read_kernel(const Parameters& parameters, GraphNode& node) {
  const auto& p = parameters;
  const CUfunction function =
      p.func != nullptr ? p.func : reinterpret_cast<CUfunction>(p.kern);
  const FunctionLayout& layout = layouts_.get(function, nullptr);
  const uint32_t grid[] = {p.gridDimX, p.gridDimY, p.gridDimZ};
  const uint32_t block[] = {p.blockDimX, p.blockDimY, p.blockDimZ};
  std::copy(std::begin(grid), std::end(grid), node.record.grid);
  std::copy(std::begin(block), std::end(block), node.record.block);
  node.record.kind = static_cast<uint32_t>(LaunchKind::kKernel);
  node.record.name_id = layout.name_id;
  const LiveAllocations::View live(live_);
  accesses_.start(live, tensor_maps_);
  if (p.kernelParams != nullptr) {
    accesses_.scan_parameters(layout, p.kernelParams);
  } else if (p.extra != nullptr) {
    accesses_.scan_buffer(p.extra);
  }
  node.accesses = take_accesses();
  return true;
}

bool GraphNodeReader::read(const CUDA_MEMCPY3D& parameters, GraphNode& node) {
  node.record.kind = static_cast<uint32_t>(LaunchKind::kCopy);
  node.record.name_id = spool_.name_id("memcpy node");
  const LiveAllocations::View live(live_);
  accesses_.start(live, tensor_maps_);
  add_copy(accesses_, parameters);
  node.accesses = take_accesses();
  return true;
}

bool GraphNodeReader::read(const CUDA_MEMSET_NODE_PARAMS_v1& parameters,
                           GraphNode& node) {
  return read_set(parameters, node);
}

bool GraphNodeReader::read(const CUDA_MEMSET_NODE_PARAMS_v2& parameters,
                           GraphNode& node) {
  return read_set(parameters, node);
}

template <typename Parameters>
bool GraphNodeReader::read_set(const Parameters& parameters, GraphNode& node) {
  node.record.kind = static_cast<uint32_t>(LaunchKind::kSet);
  node.record.name_id = spool_.name_id("memset node");
  const LiveAllocations::View live(live_);
  accesses_.start(live, tensor_maps_);
  add_set(accesses_, parameters.dst, parameters.pitch,
          parameters.width * parameters.elementSize, parameters.height);
  node.accesses = take_accesses();
  return true;
}

bool GraphNodeReader::read(const CUgraphNodeParams& parameters, GraphNode& node) {
  switch (parameters.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return read(parameters.kernel, node);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return read(parameters.memcpy.copyParams, node);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return read(parameters.memset, node);
    default:
      return false;
  }
}

}  // namespace transit
