// Graphs: captured, looked into, instantiated and launched. A launch runs the nodes in
// the order of capture, which every dependency agrees with.
#include "graph.h"

#include <mutex>
#include <unordered_map>

#include "call.h"
#include "context.h"
#include "memory.h"

namespace simgpu {
namespace {

using Program = std::vector<Work>;

struct Graphs {
  std::mutex mutex;
  std::unordered_map<CUgraph, std::unique_ptr<Graph>> graphs;
  std::unordered_map<CUgraphExec, std::shared_ptr<const Program>> programs;
};

Graphs& graphs() {
  static auto* instance = new Graphs;
  return *instance;
}

// With the lock held.
Graph& find_graph(CUgraph handle) {
  const auto found = graphs().graphs.find(handle);
  require(found != graphs().graphs.end());
  return *found->second;
}

const Node& find_node(CUgraphNode handle) {
  for (const auto& [graph, owned] : graphs().graphs)
    for (const auto& node : owned->nodes)
      if (reinterpret_cast<CUgraphNode>(node.get()) == handle) return *node;
  fail(CUDA_ERROR_INVALID_VALUE);
}

template <class Kind>
const Kind& find_work(CUgraphNode handle) {
  const Kind* work = std::get_if<Kind>(&find_node(handle).work);
  require(work);
  return *work;
}

void instantiate(CUgraphExec* exec, CUgraph handle) {
  require(exec);
  const std::lock_guard lock(graphs().mutex);
  auto program = std::make_shared<Program>();
  for (const auto& node : find_graph(handle).nodes) program->push_back(node->work);
  *exec = reinterpret_cast<CUgraphExec>(program.get());
  graphs().programs[*exec] = std::move(program);
}

std::shared_ptr<const Program> find_program(CUgraphExec exec) {
  const std::lock_guard lock(graphs().mutex);
  const auto found = graphs().programs.find(exec);
  require(found != graphs().programs.end());
  return found->second;
}

struct NodeType {
  CUgraphNodeType operator()(const KernelWork&) { return CU_GRAPH_NODE_TYPE_KERNEL; }
  CUgraphNodeType operator()(const CopyWork&) { return CU_GRAPH_NODE_TYPE_MEMCPY; }
  CUgraphNodeType operator()(const SetWork&) { return CU_GRAPH_NODE_TYPE_MEMSET; }
  CUgraphNodeType operator()(const HostWork&) { return CU_GRAPH_NODE_TYPE_HOST; }
};

// The parameter pointers of a node live as long as its work.
void** parameter_pointers(const KernelWork& work) {
  thread_local std::vector<void*> pointers;
  pointers.clear();
  for (const Parameter& parameter : work.function->entry.parameters)
    pointers.push_back(const_cast<uint8_t*>(work.arguments.data() + parameter.offset));
  return pointers.data();
}

CUmemorytype memory_type(uint8_t cupti_kind) {
  // CUPTI: 1 pageable, 2 pinned, 3 device, 5 managed.
  return cupti_kind <= 2 ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

}  // namespace

CUgraph publish_graph(std::unique_ptr<Graph> graph) {
  const auto handle = reinterpret_cast<CUgraph>(graph.get());
  const std::lock_guard lock(graphs().mutex);
  graphs().graphs[handle] = std::move(graph);
  return handle;
}

DRIVER_API(cuGraphDestroy, (CUgraph graph), (graph)) {
  const std::lock_guard lock(graphs().mutex);
  require(graphs().graphs.erase(graph) == 1);
}

DRIVER_API(cuGraphGetNodes, (CUgraph graph, CUgraphNode* nodes, size_t* count),
           (graph, nodes, count)) {
  require(count);
  const std::lock_guard lock(graphs().mutex);
  const auto& all = find_graph(graph).nodes;
  for (size_t i = 0; nodes && i < *count; ++i)
    nodes[i] = i < all.size() ? reinterpret_cast<CUgraphNode>(all[i].get()) : nullptr;
  if (!nodes || *count > all.size()) *count = all.size();
}

DRIVER_API(cuGraphNodeGetType, (CUgraphNode node, CUgraphNodeType* type),
           (node, type)) {
  require(type);
  const std::lock_guard lock(graphs().mutex);
  *type = std::visit(NodeType{}, find_node(node).work);
}

DRIVER_API(cuGraphKernelNodeGetParams_v2,
           (CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v2* parameters),
           (node, parameters)) {
  require(parameters);
  const std::lock_guard lock(graphs().mutex);
  const auto& work = find_work<KernelWork>(node);
  *parameters = {};
  parameters->func =
      reinterpret_cast<CUfunction>(const_cast<Function*>(work.function.get()));
  parameters->gridDimX = work.grid[0];
  parameters->gridDimY = work.grid[1];
  parameters->gridDimZ = work.grid[2];
  parameters->blockDimX = work.block[0];
  parameters->blockDimY = work.block[1];
  parameters->blockDimZ = work.block[2];
  parameters->sharedMemBytes = work.shared_bytes;
  parameters->kernelParams = parameter_pointers(work);
}

DRIVER_API(cuGraphMemcpyNodeGetParams, (CUgraphNode node, CUDA_MEMCPY3D* parameters),
           (node, parameters)) {
  require(parameters);
  const std::lock_guard lock(graphs().mutex);
  const auto& work = find_work<CopyWork>(node);
  *parameters = {};
  parameters->srcMemoryType = memory_type(work.source_kind);
  parameters->dstMemoryType = memory_type(work.destination_kind);
  parameters->srcHost = reinterpret_cast<const void*>(work.source);
  parameters->srcDevice = work.source;
  parameters->dstHost = reinterpret_cast<void*>(work.destination);
  parameters->dstDevice = work.destination;
  parameters->WidthInBytes = work.bytes;
  parameters->Height = 1;
  parameters->Depth = 1;
}

DRIVER_API(cuGraphMemsetNodeGetParams,
           (CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* parameters),
           (node, parameters)) {
  require(parameters);
  const std::lock_guard lock(graphs().mutex);
  const auto& work = find_work<SetWork>(node);
  *parameters = {work.destination, 0,
                 work.value,       static_cast<unsigned>(work.element_bytes),
                 work.elements,    1};
}

DRIVER_API(cuGraphInstantiateWithFlags,
           (CUgraphExec * exec, CUgraph graph, unsigned long long flags),
           (exec, graph, flags)) {
  instantiate(exec, graph);
}

STREAM_API(cuGraphInstantiateWithParams, ptsz,
           (CUgraphExec * exec, CUgraph graph,
            CUDA_GRAPH_INSTANTIATE_PARAMS* parameters),
           (exec, graph, parameters)) {
  require(parameters);
  instantiate(exec, graph);
  parameters->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
}

DRIVER_API(cuGraphExecDestroy, (CUgraphExec exec), (exec)) {
  const std::lock_guard lock(graphs().mutex);
  require(graphs().programs.erase(exec) == 1);
}

STREAM_API(cuGraphUpload, ptsz, (CUgraphExec exec, CUstream stream), (exec, stream)) {
  find_stream(stream);
  find_program(exec);
}

STREAM_API(cuGraphLaunch, ptsz, (CUgraphExec exec, CUstream handle), (exec, handle)) {
  const StreamRef stream = find_stream(handle);
  const std::shared_ptr<const Program> program = find_program(exec);
  for (const Work& work : *program) submit(*stream, work);
}

}  // namespace simgpu
