// Executable graphs: instantiated, changed and launched. A launch runs the nodes in the
// order of capture, which every dependency agrees with.
#include <mutex>

#include "call.h"
#include "capture.h"
#include "context.h"
#include "graph.h"
#include "launch.h"
#include "process.h"

namespace simgpu {
namespace {

// Tools learn of the clones; they may ask for their ids, so without the lock.
void notify_clones(CUgraph original, Graph& executable) {
  visit_nodes(executable, [&](Node& node) {
    auto* from = const_cast<Node*>(node.original);
    notify(&Observer::graph_node_cloned,
           GraphNodeClone{original, from->handle(), executable.handle(), node.handle(),
                          type_of(node.work)});
  });
}

// Child graphs are taken apart as seen on an H200: their nodes, cloned once with them,
// are cloned into the executable graph, and numbered after its own.
void add_steps(Graph& executable, const Graph& graph) {
  const size_t num_nodes = graph.nodes.size();  // more come
  for (size_t i = 0; i < num_nodes; ++i) {
    Node* node = graph.nodes[i].get();
    if (const auto* child = std::get_if<ChildWork>(&node->work)) {
      add_steps(executable, *child->graph);
      continue;
    }
    if (&graph != &executable) {
      Node& clone = executable.add(node->work, {});
      clone.original = node;
      node = &clone;
    }
    executable.steps.push_back(node);
  }
}

void instantiate(CUgraphExec* exec, CUgraph handle) {
  require(exec);
  Graph* executable = nullptr;
  {
    const std::lock_guard lock(graphs().mutex);
    std::unique_ptr<Graph> clone = graphs().find(handle).clone();
    executable = clone.get();
    add_steps(*executable, *executable);
    *exec = reinterpret_cast<CUgraphExec>(executable);
    graphs().executables[*exec] = std::move(clone);
  }
  notify_clones(handle, *executable);
}

struct Step {
  Work work;
  GraphPlace place;
};

// As they are now: the graph may change or go while they run.
std::vector<Step> steps_of(CUgraphExec exec) {
  const std::lock_guard lock(graphs().mutex);
  const Graph& executable = graphs().find(exec);
  std::vector<Step> steps;
  steps.reserve(executable.steps.size());
  for (const Node* node : executable.steps)
    steps.push_back({node->work, {executable.id, node->id}});
  return steps;
}

Node& clone_of(CUgraphNode handle, Graph& executable) {
  const Node& original = graphs().find(handle);
  Node* found = nullptr;
  visit_nodes(executable, [&](Node& node) {
    if (node.original == &original) found = &node;
  });
  require(found);
  return *found;
}

// What keeps an executable graph from taking over another graph's parameters.
CUgraphExecUpdateResult difference(const Graph& executable, const Graph& graph,
                                   Node** place) {
  if (executable.nodes.size() != graph.nodes.size())
    return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& old = *executable.nodes[i];
    *place = graph.nodes[i].get();
    if (old.work.index() != (*place)->work.index())
      return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    if (old.dependencies.size() != (*place)->dependencies.size())
      return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  }
  *place = nullptr;
  return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

}  // namespace

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
  require(graphs().executables.erase(exec) == 1);
}

DRIVER_API(cuGraphExecKernelNodeSetParams_v2,
           (CUgraphExec exec, CUgraphNode node,
            const CUDA_KERNEL_NODE_PARAMS_v2* parameters),
           (exec, node, parameters)) {
  require(parameters);
  const auto& p = *parameters;
  KernelWork work =
      kernel_work(p.func ? p.func : reinterpret_cast<CUfunction>(p.kern),
                  {p.gridDimX, p.gridDimY, p.gridDimZ, p.blockDimX, p.blockDimY,
                   p.blockDimZ, p.sharedMemBytes, nullptr, nullptr, 0},
                  p.kernelParams, p.extra);
  const std::lock_guard lock(graphs().mutex);
  Node& target = clone_of(node, graphs().find(exec));
  require(std::holds_alternative<KernelWork>(target.work));
  target.work = std::move(work);
}

DRIVER_API(cuGraphExecUpdate_v2,
           (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* info),
           (exec, graph, info)) {
  require(info);
  *info = {};
  const std::lock_guard lock(graphs().mutex);
  Graph& executable = graphs().find(exec);
  const Graph& replacement = graphs().find(graph);
  Node* place = nullptr;
  info->result = difference(executable, replacement, &place);
  if (place) info->errorNode = place->handle();
  require(info->result == CU_GRAPH_EXEC_UPDATE_SUCCESS,
          CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  for (size_t i = 0; i < replacement.nodes.size(); ++i)
    executable.nodes[i]->work = replacement.nodes[i]->work;
}

STREAM_API(cuGraphUpload, ptsz, (CUgraphExec exec, CUstream stream), (exec, stream)) {
  find_stream(stream);
  const std::lock_guard lock(graphs().mutex);
  graphs().find(exec);
}

STREAM_API(cuGraphLaunch, ptsz, (CUgraphExec exec, CUstream handle), (exec, handle)) {
  const StreamRef stream = find_stream(handle);
  for (Step& step : steps_of(exec)) submit(*stream, std::move(step.work), step.place);
}

}  // namespace simgpu
