// Graphs: captured or cloned, and looked into.
#include "graph.h"

#include <atomic>

#include "call.h"
#include "memory.h"

namespace simgpu {
namespace {

std::atomic<uint32_t> next_graph_id{1};

template <class Map>
Node* find_node_in(const Map& map, CUgraphNode handle) {
  Node* found = nullptr;
  for (const auto& [key, graph] : map)
    visit_nodes(*graph, [&](Node& node) {
      if (node.handle() == handle) found = &node;
    });
  return found;
}

Graph* find_child(const Graph& graph, CUgraph handle) {
  Graph* found = nullptr;
  visit_nodes(graph, [&](const Node& node) {
    const auto* child = std::get_if<ChildWork>(&node.work);
    if (child && child->graph->handle() == handle) found = child->graph.get();
  });
  return found;
}

Work clone_of(const Work& work) {
  const auto* child = std::get_if<ChildWork>(&work);
  return child ? Work(ChildWork{child->graph->clone()}) : work;
}

struct NodeType {
  CUgraphNodeType operator()(const KernelWork&) { return CU_GRAPH_NODE_TYPE_KERNEL; }
  CUgraphNodeType operator()(const CopyWork&) { return CU_GRAPH_NODE_TYPE_MEMCPY; }
  CUgraphNodeType operator()(const SetWork&) { return CU_GRAPH_NODE_TYPE_MEMSET; }
  CUgraphNodeType operator()(const HostWork&) { return CU_GRAPH_NODE_TYPE_HOST; }
  CUgraphNodeType operator()(const ChildWork&) { return CU_GRAPH_NODE_TYPE_GRAPH; }
};

template <class Kind>
Kind& find_work(CUgraphNode handle) {
  Kind* work = std::get_if<Kind>(&graphs().find(handle).work);
  require(work);
  return *work;
}

// They live as long as the node.
void** parameter_pointers(Node& node, KernelWork& work) {
  node.parameter_pointers.clear();
  for (const Parameter& parameter : work.function->entry.parameters)
    node.parameter_pointers.push_back(work.arguments.data() + parameter.offset);
  return node.parameter_pointers.data();
}

CUmemorytype memory_type(uint8_t cupti_kind) {
  // CUPTI: 1 pageable, 2 pinned, 3 device, 5 managed.
  return cupti_kind <= 2 ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

}  // namespace

Graph::Graph() : id(next_graph_id.fetch_add(1)) {}

Node& Graph::add(Work work, std::vector<Node*> dependencies) {
  const uint64_t node_id = uint64_t{id} << 32 | nodes.size();
  nodes.push_back(std::make_unique<Node>(
      Node{node_id, std::move(work), std::move(dependencies), nullptr, {}}));
  return *nodes.back();
}

std::unique_ptr<Graph> Graph::clone() const {
  auto copy = std::make_unique<Graph>();
  std::unordered_map<const Node*, Node*> clones;
  for (const auto& node : nodes) {
    std::vector<Node*> dependencies;
    for (const Node* dependency : node->dependencies)
      dependencies.push_back(clones.at(dependency));
    Node& added = copy->add(clone_of(node->work), std::move(dependencies));
    added.original = node.get();
    clones[node.get()] = &added;
  }
  return copy;
}

Graph& Graphs::find(CUgraph handle) {
  for (const auto& [key, graph] : graphs) {
    if (key == handle) return *graph;
    if (Graph* child = find_child(*graph, handle)) return *child;
  }
  fail(CUDA_ERROR_INVALID_VALUE);
}

Graph& Graphs::find(CUgraphExec handle) {
  const auto found = executables.find(handle);
  require(found != executables.end());
  return *found->second;
}

Node& Graphs::find(CUgraphNode handle) {
  Node* node = find_node_in(graphs, handle);
  if (!node) node = find_node_in(executables, handle);
  require(node);
  return *node;
}

Graphs& graphs() {
  static auto* instance = new Graphs;
  return *instance;
}

CUgraphNodeType type_of(const Work& work) { return std::visit(NodeType{}, work); }

CUgraph publish_graph(std::unique_ptr<Graph> graph) {
  const CUgraph handle = graph->handle();
  const std::lock_guard lock(graphs().mutex);
  graphs().graphs[handle] = std::move(graph);
  return handle;
}

DRIVER_API(cuGraphCreate, (CUgraph * graph, unsigned flags), (graph, flags)) {
  require(graph && flags == 0);
  *graph = publish_graph(std::make_unique<Graph>());
}

DRIVER_API(cuGraphAddChildGraphNode,
           (CUgraphNode * node, CUgraph handle, const CUgraphNode* dependencies,
            size_t num_dependencies, CUgraph child),
           (node, handle, dependencies, num_dependencies, child)) {
  require(node && (dependencies || num_dependencies == 0));
  const std::lock_guard lock(graphs().mutex);
  std::vector<Node*> before;
  before.reserve(num_dependencies);
  for (size_t i = 0; i < num_dependencies; ++i)
    before.push_back(&graphs().find(dependencies[i]));
  ChildWork work = {graphs().find(child).clone()};
  *node = graphs().find(handle).add(std::move(work), std::move(before)).handle();
}

DRIVER_API(cuGraphChildGraphNodeGetGraph, (CUgraphNode node, CUgraph* child),
           (node, child)) {
  require(child);
  const std::lock_guard lock(graphs().mutex);
  *child = find_work<ChildWork>(node).graph->handle();
}

DRIVER_API(cuGraphClone, (CUgraph * clone, CUgraph original), (clone, original)) {
  require(clone);
  std::unique_ptr<Graph> copy;
  {
    const std::lock_guard lock(graphs().mutex);
    copy = graphs().find(original).clone();
  }
  *clone = publish_graph(std::move(copy));
}

DRIVER_API(cuGraphDestroy, (CUgraph graph), (graph)) {
  const std::lock_guard lock(graphs().mutex);
  require(graphs().graphs.erase(graph) == 1);
}

DRIVER_API(cuGraphGetNodes, (CUgraph graph, CUgraphNode* nodes, size_t* count),
           (graph, nodes, count)) {
  require(count);
  const std::lock_guard lock(graphs().mutex);
  const auto& all = graphs().find(graph).nodes;
  for (size_t i = 0; nodes && i < *count; ++i)
    nodes[i] = i < all.size() ? all[i]->handle() : nullptr;
  if (!nodes || *count > all.size()) *count = all.size();
}

DRIVER_API(cuGraphNodeGetType, (CUgraphNode node, CUgraphNodeType* type),
           (node, type)) {
  require(type);
  const std::lock_guard lock(graphs().mutex);
  *type = type_of(graphs().find(node).work);
}

DRIVER_API(cuGraphKernelNodeGetParams_v2,
           (CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v2* parameters),
           (node, parameters)) {
  require(parameters);
  const std::lock_guard lock(graphs().mutex);
  auto& work = find_work<KernelWork>(node);
  *parameters = {};
  parameters->func = work.function->handle;
  parameters->gridDimX = work.grid[0];
  parameters->gridDimY = work.grid[1];
  parameters->gridDimZ = work.grid[2];
  parameters->blockDimX = work.block[0];
  parameters->blockDimY = work.block[1];
  parameters->blockDimZ = work.block[2];
  parameters->sharedMemBytes = work.shared_bytes;
  parameters->kernelParams = parameter_pointers(graphs().find(node), work);
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

}  // namespace simgpu

// What CUPTI asks of graphs; 0: there is no such graph or node.
SIMGPU_EXPORT uint32_t simgpu_graph_id(CUgraph graph) {
  const std::lock_guard lock(simgpu::graphs().mutex);
  const auto& all = simgpu::graphs().graphs;
  const auto found = all.find(graph);
  return found == all.end() ? 0 : found->second->id;
}

SIMGPU_EXPORT uint32_t simgpu_graph_exec_id(CUgraphExec exec) {
  const std::lock_guard lock(simgpu::graphs().mutex);
  const auto& all = simgpu::graphs().executables;
  const auto found = all.find(exec);
  return found == all.end() ? 0 : found->second->id;
}

SIMGPU_EXPORT uint64_t simgpu_graph_node_id(CUgraphNode node) {
  const std::lock_guard lock(simgpu::graphs().mutex);
  try {
    return simgpu::graphs().find(node).id;
  } catch (const simgpu::Error&) {
    return 0;
  }
}
