// The job's executable graphs, and which of them a launch runs.
#pragma once

#include <cupti.h>

#include <cstdint>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "recorder/native/cupti_api.h"
#include "recorder/native/graph_nodes.h"

namespace transit {

// A graph is read when it is instantiated and when it is changed, also while nothing
// is recorded yet; it is written when it is launched, once for each state it is in.
class Graphs {
 public:
  Graphs(const CuptiApi& cupti, const DriverApi& driver, const LiveAllocations& live,
         const TensorMaps& tensor_maps, FunctionLayouts& layouts, Spool& spool)
      : cupti_(cupti),
        spool_(spool),
        reader_(driver, live, tensor_maps, layouts, spool) {}

  // Asks CUPTI for the callbacks below.
  void enable_callbacks(CUpti_SubscriberHandle subscriber);

  // At both sites of a call. False: the call is not about executable graphs.
  bool on_driver_call(CUpti_CallbackId cbid, const CUpti_CallbackData& call);

  // Instantiating a graph clones its nodes, those of child graphs more than once, and
  // the activity records name the last clones.
  void on_node_cloned(const CUpti_GraphData& clone);

  // The launch runs the graph as it is now.
  void add_launch(uint64_t launch_id, CUgraphExec handle);

  // Those of all its nodes.
  std::vector<AccessRecord> accesses_of(CUgraphExec handle);

  void instantiate(CUgraphExec handle, CUgraph graph);
  void update(CUgraphExec handle, CUgraph graph);
  template <typename Parameters>
  void change_node(CUgraphExec handle, CUgraphNode node, const Parameters& parameters);
  void destroy(CUgraphExec handle);

 private:
  struct Executable {
    uint32_t graph = 0;            // its number in the spool; 0: not written as it is
    std::vector<GraphNode> nodes;  // with the handles of those it is a clone of
  };

  struct Clone {
    CUgraphNode node;
    uint64_t id;
  };
  using Clones = std::unordered_map<CUgraphNode, Clone>;  // by the original

  std::vector<GraphNode> read_nodes(CUgraph graph);
  void begin_instantiation();
  void end_instantiation();
  static uint64_t last_clone_id(const Clones& clones, CUgraphNode original);
  void write(Executable& executable);

  const CuptiApi& cupti_;
  Spool& spool_;

  std::mutex reading_;  // guards the reader
  GraphNodeReader reader_;
  // Guards the rest. Never held while calling the driver, which may hold a lock of its
  // own when it tells of a clone.
  std::mutex mutex_;
  std::unordered_map<CUgraphExec, Executable> executables_;
  std::unordered_map<std::thread::id, Clones> instantiations_;  // in progress
  uint32_t num_written_ = 0;
};

}  // namespace transit
