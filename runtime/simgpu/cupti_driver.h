// The simulated driver as the simulated CUPTI sees it: found in the process, never
// linked.
#pragma once

#include <cuda.h>
#include <cupti_result.h>

#include "runtime/simgpu/faults.h"
#include "runtime/simgpu/observer.h"

namespace simgpu::cupti {

struct DriverApi {
  decltype(&cuCtxGetCurrent) ctx_get_current;
  decltype(&cuCtxPushCurrent) ctx_push_current;
  decltype(&cuCtxPopCurrent) ctx_pop_current;
  decltype(&cuCtxGetDevice) ctx_get_device;
  decltype(&cuCtxGetId) ctx_get_id;
  decltype(&cuFuncGetName) func_get_name;
  decltype(&cuStreamGetId) stream_get_id;
  GraphIdFn graph_id;
  GraphExecIdFn graph_exec_id;
  GraphNodeIdFn graph_node_id;
};

// Loads libcuda.so.1 if nobody has, and starts to observe it, once per process. Null in
// a process whose libcuda.so.1 is missing or not the simulated one, and in a fork
// child.
const DriverApi* connect();

// While one lives, what this thread calls of the driver is CUPTI's own business: the
// client sees none of it.
class OwnCalls {
 public:
  OwnCalls() { ++depth_; }
  ~OwnCalls() { --depth_; }
  OwnCalls(const OwnCalls&) = delete;
  OwnCalls& operator=(const OwnCalls&) = delete;

  static bool in_progress() { return depth_ > 0; }

 private:
  static thread_local int depth_;
};

// The failure that was asked for of this call, or CUPTI_SUCCESS.
inline CUptiResult fault_of(const char* function) {
  return static_cast<CUptiResult>(injected_fault(function));
}

}  // namespace simgpu::cupti
