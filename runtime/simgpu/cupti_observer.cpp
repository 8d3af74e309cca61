#include "runtime/simgpu/cupti_observer.h"

#include <cupti.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "runtime/simgpu/cupti_driver.h"
#include "runtime/simgpu/cupti_record_queue.h"
#include "runtime/simgpu/cupti_subscriber.h"
#include "runtime/simgpu/faults.h"

namespace simgpu::cupti {
namespace {

std::atomic<bool> seen_context{false};

// ---- callbacks
// -------------------------------------------------------------------------

void resource_callback(CUpti_CallbackIdResource cbid, CUcontext context) {
  CUpti_ResourceData data{};
  data.context = context;
  deliver_callback(CUPTI_CB_DOMAIN_RESOURCE, cbid, &data);
}

void on_initialized() {
  resource_callback(CUPTI_CBID_RESOURCE_CU_INIT_FINISHED, nullptr);
}

void on_context_created(CUcontext context, uint32_t, CUdevice) {
  seen_context = true;
  resource_callback(CUPTI_CBID_RESOURCE_CONTEXT_CREATED, context);
}

void on_context_destroyed(CUcontext context) {
  resource_callback(CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING, context);
}

void on_module_unloaded() {
  resource_callback(CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING, nullptr);
}

void on_graph_node_cloned(const GraphNodeClone& clone) {
  CUpti_GraphData graph{};
  graph.graph = clone.graph;
  graph.originalGraph = clone.original_graph;
  graph.node = clone.node;
  graph.originalNode = clone.original;
  graph.nodeType = clone.type;
  CUpti_ResourceData data{};
  data.resourceDescriptor = &graph;
  deliver_callback(CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED,
                   &data);
}

// The function a launch call launches, null for other calls.
CUfunction launched_function(const ApiCall& call) {
  switch (call.cbid) {
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel:
      return static_cast<const cuLaunchKernel_params*>(call.params)->f;
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz:
      return static_cast<const cuLaunchKernel_ptsz_params*>(call.params)->f;
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx:
      return static_cast<const cuLaunchKernelEx_params*>(call.params)->f;
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz:
      return static_cast<const cuLaunchKernelEx_ptsz_params*>(call.params)->f;
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel:
      return static_cast<const cuLaunchCooperativeKernel_params*>(call.params)->f;
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz:
      return static_cast<const cuLaunchCooperativeKernel_ptsz_params*>(call.params)->f;
    default:
      return nullptr;
  }
}

const char* symbol_name(const DriverApi& driver, const ApiCall& call) {
  const CUfunction function = launched_function(call);
  const char* name = nullptr;
  if (!function || driver.func_get_name(&name, function) != CUDA_SUCCESS)
    return nullptr;
  return name;
}

// Words that the enter callback of a call leaves to its exit callback; calls nest when
// a callback calls the driver.
class CorrelationStack {
 public:
  uint64_t* push() { return &(words_[depth_++ % kMaxDepth] = 0); }
  uint64_t* pop() { return depth_ > 0 ? &words_[--depth_ % kMaxDepth] : &words_[0]; }

 private:
  static constexpr size_t kMaxDepth = 16;
  uint64_t words_[kMaxDepth] = {};
  size_t depth_ = 0;
};

thread_local CorrelationStack correlations;

CUpti_CallbackData describe(const DriverApi& driver, const ApiCall& call) {
  const OwnCalls own_calls;
  unsigned long long context_id = 0;
  if (call.context) driver.ctx_get_id(call.context, &context_id);
  CUpti_CallbackData data{};
  data.functionName = call.name;
  data.functionParams = call.params;
  data.functionReturnValue = call.result;
  data.symbolName = symbol_name(driver, call);
  data.context = call.context;
  data.contextUid = static_cast<uint32_t>(context_id);
  data.correlationId = call.correlation_id;
  return data;
}

void api_callback(const ApiCall& call, CUpti_ApiCallbackSite site, uint64_t* word) {
  if (!callback_enabled(CUPTI_CB_DOMAIN_DRIVER_API, call.cbid)) return;
  const DriverApi* driver = connect();
  if (!driver) return;
  CUpti_CallbackData data = describe(*driver, call);
  data.callbackSite = site;
  data.correlationData = word;
  deliver_callback(CUPTI_CB_DOMAIN_DRIVER_API, call.cbid, &data);
}

void on_api_enter(const ApiCall& call) {
  if (OwnCalls::in_progress()) return;
  api_callback(call, CUPTI_API_ENTER, correlations.push());
}

void on_api_exit(const ApiCall& call) {
  if (OwnCalls::in_progress()) return;
  api_callback(call, CUPTI_API_EXIT, correlations.pop());
}

// ---- records
// ---------------------------------------------------------------------------

// The members every record of work on a stream has.
template <typename Record, typename Activity>
Record stream_record(CUpti_ActivityKind kind, const Activity& activity) {
  Record record{};
  record.kind = kind;
  if (!cupti_loses("times")) {
    record.start = activity.start_ns;
    record.end = activity.end_ns;
  }
  record.deviceId = activity.device;
  record.contextId = activity.context_id;
  record.streamId = activity.stream_id;
  record.correlationId = activity.correlation_id;
  record.graphId = activity.graph_id;
  record.graphNodeId = activity.graph_node_id;
  record.channelType = CUPTI_CHANNEL_TYPE_COMPUTE;
  return record;
}

void on_kernel(const KernelActivity& kernel) {
  const auto kind = records().enabled(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)
                        ? CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL
                        : CUPTI_ACTIVITY_KIND_KERNEL;
  if (!records().enabled(kind)) return;
  auto record = stream_record<CUpti_ActivityKernel10>(kind, kernel);
  record.completed = kernel.end_ns;
  record.gridX = static_cast<int32_t>(kernel.grid[0]);
  record.gridY = static_cast<int32_t>(kernel.grid[1]);
  record.gridZ = static_cast<int32_t>(kernel.grid[2]);
  record.blockX = static_cast<int32_t>(kernel.block[0]);
  record.blockY = static_cast<int32_t>(kernel.block[1]);
  record.blockZ = static_cast<int32_t>(kernel.block[2]);
  record.name = kernel.name;
  records().append(record);
}

void on_copy(const CopyActivity& copy) {
  if (!records().enabled(CUPTI_ACTIVITY_KIND_MEMCPY)) return;
  auto record = stream_record<CUpti_ActivityMemcpy6>(CUPTI_ACTIVITY_KIND_MEMCPY, copy);
  record.bytes = copy.bytes;
  record.copyKind = copy.copy_kind;
  record.srcKind = copy.src_kind;
  record.dstKind = copy.dst_kind;
  record.channelType = CUPTI_CHANNEL_TYPE_ASYNC_MEMCPY;
  record.copyCount = 1;
  records().append(record);
}

void on_set(const SetActivity& set) {
  if (!records().enabled(CUPTI_ACTIVITY_KIND_MEMSET)) return;
  auto record = stream_record<CUpti_ActivityMemset4>(CUPTI_ACTIVITY_KIND_MEMSET, set);
  record.bytes = set.bytes;
  record.value = set.value;
  record.memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  records().append(record);
}

void on_memory(const MemoryActivity& memory) {
  if (!records().enabled(CUPTI_ACTIVITY_KIND_MEMORY2)) return;
  CUpti_ActivityMemory4 record{};
  record.kind = CUPTI_ACTIVITY_KIND_MEMORY2;
  record.memoryOperationType = memory.is_release
                                   ? CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE
                                   : CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION;
  record.memoryKind = static_cast<CUpti_ActivityMemoryKind>(memory.memory_kind);
  record.correlationId = memory.correlation_id;
  record.address = memory.address;
  record.bytes = memory.bytes;
  record.timestamp = memory.time_ns;
  record.processId = static_cast<uint32_t>(getpid());
  record.deviceId = memory.device;
  record.contextId = memory.context_id;
  record.streamId = CUPTI_INVALID_STREAM_ID;
  records().append(record);
}

bool is_transfer(uint32_t counter_kind) {
  return counter_kind ==
             CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_BYTES_TRANSFER_HTOD ||
         counter_kind ==
             CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_BYTES_TRANSFER_DTOH ||
         counter_kind == CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_BYTES_TRANSFER_DTOD;
}

void append_uvm(const UvmActivity& uvm) {
  CUpti_ActivityUnifiedMemoryCounter3 record{};
  record.kind = CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER;
  record.counterKind =
      static_cast<CUpti_ActivityUnifiedMemoryCounterKind>(uvm.counter_kind);
  record.value = uvm.value;
  record.start = uvm.start_ns;
  record.end = uvm.end_ns;
  record.address = uvm.address;
  record.srcId = uvm.src_id;
  record.dstId = uvm.dst_id;
  record.processId = static_cast<uint32_t>(getpid());
  record.flags = uvm.flags;
  records().append(record);
}

// The driver moves memory by blocks of 2 MiB: no record of a transfer spans two.
void append_transfer(const UvmActivity& transfer) {
  constexpr uint64_t kBlockBytes = 2 << 20;
  const auto duration_ns = static_cast<double>(transfer.end_ns - transfer.start_ns);
  const double ns_per_byte = duration_ns / static_cast<double>(transfer.value);
  const auto time_at = [&](uint64_t bytes) {
    const double offset_ns = ns_per_byte * static_cast<double>(bytes);
    return transfer.start_ns + static_cast<uint64_t>(offset_ns);
  };
  uint64_t done_bytes = 0;
  while (done_bytes < transfer.value) {
    UvmActivity piece = transfer;
    piece.address += done_bytes;
    piece.value = std::min(transfer.value - done_bytes,
                           kBlockBytes - piece.address % kBlockBytes);
    piece.start_ns = time_at(done_bytes);
    done_bytes += piece.value;
    piece.end_ns = time_at(done_bytes);
    append_uvm(piece);
  }
}

void on_uvm(const UvmActivity& uvm) {
  if (!records().enabled(CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER) ||
      !counter_enabled(uvm.counter_kind) || cupti_loses("migrations"))
    return;
  if (is_transfer(uvm.counter_kind))
    append_transfer(uvm);
  else
    append_uvm(uvm);
}

}  // namespace

const Observer* observer() {
  static const Observer callbacks = {on_initialized,
                                     on_context_created,
                                     on_api_enter,
                                     on_api_exit,
                                     on_kernel,
                                     on_copy,
                                     on_set,
                                     on_memory,
                                     on_uvm,
                                     on_graph_node_cloned,
                                     on_context_destroyed,
                                     on_module_unloaded};
  return &callbacks;
}

bool context_seen() {
  if (seen_context) return true;
  const DriverApi* driver = connect();
  const OwnCalls own_calls;
  CUcontext context = nullptr;
  return driver && driver->ctx_get_current(&context) == CUDA_SUCCESS && context;
}

}  // namespace simgpu::cupti
