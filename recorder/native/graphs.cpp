#include "recorder/native/graphs.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace transit {
namespace {

bool same_work(const GraphNode& a, const GraphNode& b) {
  const size_t num_bytes = a.accesses.size() * sizeof(AccessRecord);
  return memcmp(&a.record, &b.record, sizeof(GraphNodeRecord)) == 0 &&
         a.accesses.size() == b.accesses.size() &&
         (num_bytes == 0 ||
          memcmp(a.accesses.data(), b.accesses.data(), num_bytes) == 0);
}

const auto& parameters_of(const cuGraphExecKernelNodeSetParams_v2_params& p) {
  return *p.nodeParams;
}
const auto& parameters_of(const cuGraphExecMemcpyNodeSetParams_params& p) {
  return *p.copyParams;
}
const auto& parameters_of(const cuGraphExecMemsetNodeSetParams_params& p) {
  return *p.memsetParams;
}
const auto& parameters_of(const cuGraphExecNodeSetParams_params& p) {
  return *p.nodeParams;
}

template <typename P>
void instantiated(Graphs& graphs, const void* params) {
  const auto& p = *static_cast<const P*>(params);
  graphs.instantiate(*p.phGraphExec, p.hGraph);
}

template <typename P>
void updated(Graphs& graphs, const void* params) {
  const auto& p = *static_cast<const P*>(params);
  graphs.update(p.hGraphExec, p.hGraph);
}

template <typename P>
void node_changed(Graphs& graphs, const void* params) {
  const auto& p = *static_cast<const P*>(params);
  graphs.change_node(p.hGraphExec, p.hNode, parameters_of(p));
}

template <typename P>
void destroyed(Graphs& graphs, const void* params) {
  graphs.destroy(static_cast<const P*>(params)->hGraphExec);
}

// A handle that is destroyed may be used again before the call returns.
struct GraphCall {
  CUpti_CallbackId cbid;
  CUpti_ApiCallbackSite site;
  bool instantiates;
  void (*apply)(Graphs& graphs, const void* params);
};

// clang-format off
#define TRANSIT_CALL(site, apply, api) \
  {CUPTI_DRIVER_TRACE_CBID_##api, site, false, &apply<api##_params>}
#define TRANSIT_INSTANTIATION(api) \
  {CUPTI_DRIVER_TRACE_CBID_##api, CUPTI_API_EXIT, true, &instantiated<api##_params>}

constexpr GraphCall kGraphCalls[] = {
    TRANSIT_INSTANTIATION(cuGraphInstantiate),
    TRANSIT_INSTANTIATION(cuGraphInstantiate_v2),
    TRANSIT_INSTANTIATION(cuGraphInstantiateWithFlags),
    TRANSIT_INSTANTIATION(cuGraphInstantiateWithParams),
    TRANSIT_INSTANTIATION(cuGraphInstantiateWithParams_ptsz),
    TRANSIT_CALL(CUPTI_API_EXIT, updated, cuGraphExecUpdate),
    TRANSIT_CALL(CUPTI_API_EXIT, updated, cuGraphExecUpdate_v2),
    TRANSIT_CALL(CUPTI_API_EXIT, node_changed, cuGraphExecKernelNodeSetParams_v2),
    TRANSIT_CALL(CUPTI_API_EXIT, node_changed, cuGraphExecMemcpyNodeSetParams),
    TRANSIT_CALL(CUPTI_API_EXIT, node_changed, cuGraphExecMemsetNodeSetParams),
    TRANSIT_CALL(CUPTI_API_EXIT, node_changed, cuGraphExecNodeSetParams),
    TRANSIT_CALL(CUPTI_API_ENTER, destroyed, cuGraphExecDestroy),
};
// clang-format on

}  // namespace

void Graphs::enable_callbacks(CUpti_SubscriberHandle subscriber) {
  // An older CUPTI does not know the newest calls, and then nor does the driver.
  for (const GraphCall& call : kGraphCalls) {
    cupti_.cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, call.cbid);
  }
  cupti_.cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE,
                             CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED);
}

bool Graphs::on_driver_call(CUpti_CallbackId cbid, const CUpti_CallbackData& call) {
  const auto* found =
      std::find_if(std::begin(kGraphCalls), std::end(kGraphCalls),
                   [=](const GraphCall& known) { return known.cbid == cbid; });
  if (found == std::end(kGraphCalls)) return false;
  const bool enters = call.callbackSite == CUPTI_API_ENTER;
  if (enters && found->instantiates) begin_instantiation();
  const bool succeeded =
      enters || *static_cast<const CUresult*>(call.functionReturnValue) == CUDA_SUCCESS;
  if (found->site == call.callbackSite && succeeded) {
    found->apply(*this, call.functionParams);
  }
  if (!enters && found->instantiates) end_instantiation();
  return true;
}

void Graphs::begin_instantiation() {
  const std::lock_guard<std::mutex> lock(mutex_);
  instantiations_[std::this_thread::get_id()].clear();
}

void Graphs::end_instantiation() {
  const std::lock_guard<std::mutex> lock(mutex_);
  instantiations_.erase(std::this_thread::get_id());
}

void Graphs::on_node_cloned(const CUpti_GraphData& clone) {
  uint64_t id = 0;
  if (cupti_.cuptiGetGraphNodeId(clone.node, &id) != CUPTI_SUCCESS) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto mine = instantiations_.find(std::this_thread::get_id());
  if (mine == instantiations_.end()) return;
  mine->second[clone.originalNode] = {clone.node, id};
}

uint64_t Graphs::last_clone_id(const Clones& clones, CUgraphNode original) {
  uint64_t id = 0;
  // No more turns than clones: an address may have been a node's before.
  for (size_t turn = 0; turn < clones.size(); ++turn) {
    const auto clone = clones.find(original);
    if (clone == clones.end()) break;
    original = clone->second.node;
    id = clone->second.id;
  }
  return id;
}

std::vector<GraphNode> Graphs::read_nodes(CUgraph graph) {
  const std::lock_guard<std::mutex> lock(reading_);
  return reader_.read(graph);
}

void Graphs::instantiate(CUgraphExec handle, CUgraph graph) {
  Executable executable;
  executable.nodes = read_nodes(graph);
  const std::lock_guard<std::mutex> lock(mutex_);
  const Clones& clones = instantiations_[std::this_thread::get_id()];
  for (GraphNode& node : executable.nodes) {
    node.record.node_id = last_clone_id(clones, node.handle);
  }
  executables_[handle] = std::move(executable);
}

// Works only if the other graph has the same nodes in the same order.
void Graphs::update(CUgraphExec handle, CUgraph graph) {
  std::vector<GraphNode> nodes = read_nodes(graph);
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = executables_.find(handle);
  if (found == executables_.end()) return;
  Executable& executable = found->second;
  if (nodes.size() != executable.nodes.size()) return;
  for (size_t i = 0; i < nodes.size(); ++i) {
    nodes[i].handle = executable.nodes[i].handle;
    nodes[i].record.node_id = executable.nodes[i].record.node_id;
    if (!same_work(nodes[i], executable.nodes[i])) executable.graph = 0;
  }
  executable.nodes = std::move(nodes);
}

template <typename Parameters>
void Graphs::change_node(CUgraphExec handle, CUgraphNode node,
                         const Parameters& parameters) {
  GraphNode changed{node, {}, {}};
  {
    const std::lock_guard<std::mutex> lock(reading_);
    if (!reader_.read(parameters, changed)) return;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = executables_.find(handle);
  if (found == executables_.end()) return;
  for (GraphNode& known : found->second.nodes) {
    if (known.handle != node) continue;
    changed.record.node_id = known.record.node_id;
    if (same_work(changed, known)) return;
    known = std::move(changed);
    found->second.graph = 0;
    return;
  }
}

void Graphs::destroy(CUgraphExec handle) {
  const std::lock_guard<std::mutex> lock(mutex_);
  executables_.erase(handle);
}

void Graphs::add_launch(uint64_t launch_id, CUgraphExec handle) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = executables_.find(handle);
  if (found == executables_.end()) return;
  Executable& executable = found->second;
  if (executable.graph == 0) write(executable);
  spool_.graph_launches.append({launch_id, executable.graph, 0});
}

std::vector<AccessRecord> Graphs::accesses_of(CUgraphExec handle) {
  std::vector<AccessRecord> accesses;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = executables_.find(handle);
  if (found == executables_.end()) return accesses;
  for (const GraphNode& node : found->second.nodes) {
    accesses.insert(accesses.end(), node.accesses.begin(), node.accesses.end());
  }
  return accesses;
}

void Graphs::write(Executable& executable) {
  executable.graph = ++num_written_;
  uint32_t place = 0;
  for (GraphNode& node : executable.nodes) {
    GraphNodeRecord record = node.record;
    record.graph = executable.graph;
    record.node = place++;
    spool_.graph_nodes.append(record);
    std::vector<AccessRecord> accesses = node.accesses;
    for (AccessRecord& access : accesses) {
      access.launch_id = graph_node_key(record.graph, record.node);
    }
    if (!accesses.empty()) {
      spool_.graph_accesses.append(accesses.data(), accesses.size());
    }
  }
}

}  // namespace transit
