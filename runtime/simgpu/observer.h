// What the simulated driver (libcuda.so.1) tells the simulated CUPTI (libcupti.so.13).
// CUPTI's library looks up simgpu_set_observer in the loaded libcuda and hands over one
// of these; every member may be null. Times are CLOCK_REALTIME nanoseconds.
#pragma once

#include <cuda.h>
#include <stdint.h>

namespace simgpu {

// A driver API call that CUPTI has a callback id for (launches, copies, sets, memory).
struct ApiCall {
  const char* name;    // as exported, for instance "cuLaunchKernel_ptsz"
  uint32_t cbid;       // CUPTI_DRIVER_TRACE_CBID_*
  const void* params;  // the *_params struct of generated_cuda_meta.h
  uint32_t correlation_id;
  CUcontext context;
  CUresult* result;  // null on enter
};

struct KernelActivity {
  uint64_t start_ns, end_ns;
  uint32_t correlation_id, device, context_id, stream_id;
  uint32_t grid[3], block[3];
  const char* name;   // lives as long as the module
  uint32_t graph_id;  // 0: in no graph; so for copies and sets
  uint64_t graph_node_id;
};

struct CopyActivity {
  uint64_t start_ns, end_ns, bytes;
  uint32_t correlation_id, device, context_id, stream_id;
  uint8_t copy_kind, src_kind, dst_kind;  // CUpti_ActivityMemcpyKind, MemoryKind
  uint32_t graph_id;
  uint64_t graph_node_id;
};

struct SetActivity {
  uint64_t start_ns, end_ns, bytes;
  uint32_t correlation_id, device, context_id, stream_id, value;
  uint32_t graph_id;
  uint64_t graph_node_id;
};

struct MemoryActivity {
  uint64_t time_ns, address, bytes;
  uint32_t correlation_id, device, context_id;
  bool is_release;
  uint8_t memory_kind;  // CUpti_ActivityMemoryKind
};

struct UvmActivity {
  uint64_t start_ns, end_ns, address, value;
  uint32_t counter_kind;  // CUpti_ActivityUnifiedMemoryCounterKind
  uint32_t src_id, dst_id, flags;
};

// Instantiating a graph makes an executable graph of clones.
struct GraphNodeClone {
  CUgraph original_graph;
  CUgraphNode original;
  CUgraph graph;
  CUgraphNode node;
  CUgraphNodeType type;
};

struct Observer {
  void (*initialized)();  // end of cuInit
  void (*context_created)(CUcontext context, uint32_t context_id, CUdevice device);
  void (*api_enter)(const ApiCall&);
  void (*api_exit)(const ApiCall&);
  void (*kernel)(const KernelActivity&);
  void (*copy)(const CopyActivity&);
  void (*set)(const SetActivity&);
  void (*memory)(const MemoryActivity&);
  void (*uvm)(const UvmActivity&);
  void (*graph_node_cloned)(const GraphNodeClone&);
  // Before it is, with a lock of the driver's held that entering any context takes.
  void (*context_destroyed)(CUcontext context);
  void (*module_unloaded)();  // before it is; not told of libraries
};

// What libcuda.so.1 exports for CUPTI and tests: simgpu_set_observer,
// simgpu_synchronize (waits until every stream of the process is idle), and
// simgpu_graph_id, simgpu_graph_exec_id and simgpu_graph_node_id (0: there is none).
using SetObserverFn = void (*)(const Observer*);
using SynchronizeFn = void (*)();
using GraphIdFn = uint32_t (*)(CUgraph);
using GraphExecIdFn = uint32_t (*)(CUgraphExec);
using GraphNodeIdFn = uint64_t (*)(CUgraphNode);

}  // namespace simgpu
