// Graphs: what capture makes, and what instantiation makes of them.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "work.h"

namespace simgpu {

struct Node {
  CUgraphNode handle() { return reinterpret_cast<CUgraphNode>(this); }

  uint64_t id;  // as CUPTI numbers nodes: the graph's above, the node's place below
  Work work;
  std::vector<Node*> dependencies;
  const Node* original = nullptr;         // what it is a clone of, perhaps gone by now
  std::vector<void*> parameter_pointers;  // into its work, for who asks
};

class Graph {
 public:
  Graph();

  Node& add(Work work, std::vector<Node*> dependencies);
  // The clone's nodes name these as their originals.
  std::unique_ptr<Graph> clone() const;

  CUgraph handle() { return reinterpret_cast<CUgraph>(this); }

  const uint32_t id;
  std::vector<std::unique_ptr<Node>> nodes;  // in order of capture
  std::vector<Node*> steps;  // of an executable graph: what a launch runs, in order
};

// Every node, and after a child graph's node those of the child.
template <class Visit>
void visit_nodes(const Graph& graph, const Visit& visit) {
  for (const auto& node : graph.nodes) {
    visit(*node);
    if (const auto* child = std::get_if<ChildWork>(&node->work))
      visit_nodes(*child->graph, visit);
  }
}

// The graphs and executable graphs of the process. An executable graph is a clone that
// is known by another type of handle.
struct Graphs {
  std::mutex mutex;  // of everything in them too
  std::unordered_map<CUgraph, std::unique_ptr<Graph>> graphs;
  std::unordered_map<CUgraphExec, std::unique_ptr<Graph>> executables;

  // With the lock held. Child graphs are found too.
  Graph& find(CUgraph handle);
  Graph& find(CUgraphExec handle);
  Node& find(CUgraphNode handle);
};

Graphs& graphs();

CUgraphNodeType type_of(const Work& work);

// Makes a graph known to the graph functions, which own it from now on.
CUgraph publish_graph(std::unique_ptr<Graph> graph);

}  // namespace simgpu
