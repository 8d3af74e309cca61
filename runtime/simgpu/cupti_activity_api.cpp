// CUPTI's activity API: which records, into whose buffers; and its small questions.
#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "runtime/simgpu/cupti_driver.h"
#include "runtime/simgpu/cupti_observer.h"
#include "runtime/simgpu/cupti_record_queue.h"
#include "runtime/simgpu/cupti_subscriber.h"

namespace simgpu::cupti {
namespace {

std::array<std::atomic<bool>, CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_COUNT>
    uvm_counters{};

uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<uint64_t>(now.tv_nsec);
}

bool valid_kind(CUpti_ActivityKind kind) {
  return kind > CUPTI_ACTIVITY_KIND_INVALID && kind < CUPTI_ACTIVITY_KIND_COUNT;
}

bool any_counter_enabled() {
  return std::any_of(uvm_counters.begin(), uvm_counters.end(),
                     [](const auto& counter) { return counter.load(); });
}

void record_uvm_start(uint64_t start_ns) {
  if (!records().enabled(CUPTI_ACTIVITY_KIND_OVERHEAD)) return;
  CUpti_ActivityOverhead3 record{};
  record.kind = CUPTI_ACTIVITY_KIND_OVERHEAD;
  record.overheadKind = CUPTI_ACTIVITY_OVERHEAD_UVM_ACTIVITY_INIT;
  record.objectKind = CUPTI_ACTIVITY_OBJECT_PROCESS;
  record.start = start_ns;
  record.end = now_ns();
  records().append(record);
}

// Asks the driver `query` with `context` current (null: the one that is).
template <typename Query>
CUptiResult with_context(CUcontext context, Query query) {
  const DriverApi* driver = connect();
  if (!driver) return CUPTI_ERROR_NOT_INITIALIZED;
  const OwnCalls own_calls;
  if (!context) driver->ctx_get_current(&context);
  if (!context || driver->ctx_push_current(context) != CUDA_SUCCESS)
    return CUPTI_ERROR_INVALID_CONTEXT;
  const CUresult result = query(*driver, context);
  driver->ctx_pop_current(&context);
  return result == CUDA_SUCCESS ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_CONTEXT;
}

template <typename Handle, typename Id>
CUptiResult ask_graph_id(Handle handle, Id* id, Id (*DriverApi::*query)(Handle)) {
  const DriverApi* driver = connect();
  if (!driver) return CUPTI_ERROR_NOT_INITIALIZED;
  if (!handle || !id) return CUPTI_ERROR_INVALID_PARAMETER;
  const Id found = (driver->*query)(handle);
  if (found == 0) return CUPTI_ERROR_INVALID_PARAMETER;
  *id = found;
  return CUPTI_SUCCESS;
}

}  // namespace

bool counter_enabled(uint32_t counter_kind) {
  return counter_kind < uvm_counters.size() && uvm_counters[counter_kind];
}

}  // namespace simgpu::cupti

using namespace simgpu::cupti;

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                           CUpti_BuffersCallbackCompleteFunc complete) {
  if (!request || !complete) return CUPTI_ERROR_INVALID_PARAMETER;
  if (!connect()) return CUPTI_ERROR_NOT_INITIALIZED;
  records().register_client(request, complete);
  return CUPTI_SUCCESS;
}

// Kinds that the simulation has no records of are accepted: a client gets none.
CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  if (const CUptiResult fault = fault_of(__func__)) return fault;
  if (!valid_kind(kind)) return CUPTI_ERROR_NOT_COMPATIBLE;
  if (!connect()) return CUPTI_ERROR_NOT_INITIALIZED;
  if (holder()) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  const bool is_uvm = kind == CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER;
  const uint64_t start_ns = now_ns();
  if (is_uvm && !(context_seen() && any_counter_enabled()))
    return CUPTI_ERROR_NOT_READY;
  records().enable(kind, true);
  if (is_uvm) record_uvm_start(start_ns);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  if (!valid_kind(kind)) return CUPTI_ERROR_NOT_COMPATIBLE;
  records().enable(kind, false);
  return CUPTI_SUCCESS;
}

// A record exists only once its work is done, so a forced flush has nothing more to
// give.
CUptiResult cuptiActivityFlushAll(uint32_t) {
  if (const CUptiResult fault = fault_of(__func__)) return fault;
  if (!connect()) return CUPTI_ERROR_NOT_INITIALIZED;
  records().flush();
  return CUPTI_SUCCESS;
}

// Full buffers are given back at once: there is nothing for a period to do.
CUptiResult cuptiActivityFlushPeriod(uint32_t) {
  return connect() ? CUPTI_SUCCESS : CUPTI_ERROR_NOT_INITIALIZED;
}

CUptiResult cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid_bytes,
                                       CUpti_Activity** record) {
  if (const CUptiResult fault = fault_of(__func__)) return fault;
  if (!buffer || !record) return CUPTI_ERROR_INVALID_PARAMETER;
  size_t offset = 0;
  if (*record)
    offset =
        reinterpret_cast<uint8_t*>(*record) - buffer + record_bytes((*record)->kind);
  if (offset + sizeof(CUpti_ActivityKind) > valid_bytes)
    return CUPTI_ERROR_MAX_LIMIT_REACHED;
  auto* next = reinterpret_cast<CUpti_Activity*>(buffer + offset);
  const size_t bytes = record_bytes(next->kind);
  if (bytes == 0 || offset + bytes > valid_bytes) return CUPTI_ERROR_INVALID_KIND;
  *record = next;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, uint32_t, size_t* dropped) {
  if (!dropped) return CUPTI_ERROR_INVALID_PARAMETER;
  *dropped = records().take_num_dropped();
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityConfigureUnifiedMemoryCounter(
    CUpti_ActivityUnifiedMemoryCounterConfig* configs, uint32_t count) {
  if (const CUptiResult fault = fault_of(__func__)) return fault;
  if (!configs || count == 0) return CUPTI_ERROR_INVALID_PARAMETER;
  if (!connect()) return CUPTI_ERROR_NOT_INITIALIZED;
  for (uint32_t i = 0; i < count; ++i) {
    const auto kind = static_cast<uint32_t>(configs[i].kind);
    if (kind < uvm_counters.size()) uvm_counters[kind] = configs[i].enable != 0;
  }
  return CUPTI_SUCCESS;
}

// Attributes size the pools of a real GPU: remembered, without effect.
namespace {

struct Attribute {
  size_t bytes;  // 0: not supported
  std::atomic<size_t> value;
};

Attribute attributes[] = {
    {8, {3'200'000}},  // DEVICE_BUFFER_SIZE
    {8, {8 << 20}},    // DEVICE_BUFFER_SIZE_CDP
    {8, {250}},        // DEVICE_BUFFER_POOL_LIMIT
    {0, {0}},          // PROFILING_SEMAPHORE_POOL_SIZE
    {0, {0}},          // PROFILING_SEMAPHORE_POOL_LIMIT
    {1, {0}},          // ZEROED_OUT_ACTIVITY_BUFFER
    {8, {3}},          // DEVICE_BUFFER_PRE_ALLOCATE_VALUE
    {0, {0}},          // PROFILING_SEMAPHORE_PRE_ALLOCATE_VALUE
    {1, {0}},          // MEM_ALLOCATION_TYPE_HOST_PINNED
    {1, {1}},          // PER_THREAD_ACTIVITY_BUFFER
    {8, {16 << 20}},   // DEVICE_BUFFER_SIZE_DEVICE_GRAPHS
};

CUptiResult check_attribute(CUpti_ActivityAttribute attribute,
                            const size_t* value_bytes, const void* value) {
  if (!value_bytes || !value || attribute >= std::size(attributes))
    return CUPTI_ERROR_INVALID_PARAMETER;
  if (attributes[attribute].bytes == 0) return CUPTI_ERROR_NOT_SUPPORTED;
  return *value_bytes < attributes[attribute].bytes
             ? CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT
             : CUPTI_SUCCESS;
}

}  // namespace

CUptiResult cuptiActivitySetAttribute(CUpti_ActivityAttribute attribute,
                                      size_t* value_bytes, void* value) {
  const CUptiResult result = check_attribute(attribute, value_bytes, value);
  if (result != CUPTI_SUCCESS) return result;
  size_t number = 0;
  memcpy(&number, value, attributes[attribute].bytes);
  attributes[attribute].value = number;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetAttribute(CUpti_ActivityAttribute attribute,
                                      size_t* value_bytes, void* value) {
  const CUptiResult result = check_attribute(attribute, value_bytes, value);
  if (result != CUPTI_SUCCESS) return result;
  const size_t number = attributes[attribute].value;
  *value_bytes = attributes[attribute].bytes;
  memcpy(value, &number, *value_bytes);
  return CUPTI_SUCCESS;
}

// These choose among records of API calls, of which the simulation has none.
CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId cbid, uint8_t) {
  return cbid < CUPTI_DRIVER_TRACE_CBID_SIZE ? CUPTI_SUCCESS
                                             : CUPTI_ERROR_INVALID_PARAMETER;
}

CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId cbid, uint8_t) {
  return cbid < CUPTI_RUNTIME_TRACE_CBID_SIZE ? CUPTI_SUCCESS
                                              : CUPTI_ERROR_INVALID_PARAMETER;
}

CUptiResult cuptiGetVersion(uint32_t* version) {
  if (!version) return CUPTI_ERROR_INVALID_PARAMETER;
  *version = CUPTI_API_VERSION;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetTimestamp(uint64_t* timestamp) {
  if (!timestamp) return CUPTI_ERROR_INVALID_PARAMETER;
  *timestamp = now_ns();
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetDeviceId(CUcontext context, uint32_t* device) {
  if (!device) return CUPTI_ERROR_INVALID_PARAMETER;
  return with_context(context, [&](const DriverApi& driver, CUcontext) {
    CUdevice current = 0;
    const CUresult result = driver.ctx_get_device(&current);
    *device = static_cast<uint32_t>(current);
    return result;
  });
}

CUptiResult cuptiGetContextId(CUcontext context, uint32_t* id) {
  if (!id) return CUPTI_ERROR_INVALID_PARAMETER;
  return with_context(context, [&](const DriverApi& driver, CUcontext current) {
    unsigned long long number = 0;
    const CUresult result = driver.ctx_get_id(current, &number);
    *id = static_cast<uint32_t>(number);
    return result;
  });
}

CUptiResult cuptiGetStreamIdEx(CUcontext context, CUstream stream, uint8_t per_thread,
                               uint32_t* id) {
  if (!id) return CUPTI_ERROR_INVALID_PARAMETER;
  if (!stream && per_thread) stream = CU_STREAM_PER_THREAD;
  return with_context(context, [&](const DriverApi& driver, CUcontext) {
    unsigned long long number = 0;
    const CUresult result = driver.stream_get_id(stream, &number);
    *id = static_cast<uint32_t>(number);
    return result;
  });
}

CUptiResult cuptiGetGraphId(CUgraph graph, uint32_t* id) {
  return ask_graph_id(graph, id, &DriverApi::graph_id);
}

CUptiResult cuptiGetGraphExecId(CUgraphExec exec, uint32_t* id) {
  return ask_graph_id(exec, id, &DriverApi::graph_exec_id);
}

CUptiResult cuptiGetGraphNodeId(CUgraphNode node, uint64_t* id) {
  return ask_graph_id(node, id, &DriverApi::graph_node_id);
}

CUptiResult cuptiDeviceVirtualizationMode(CUdevice,
                                          CUpti_DeviceVirtualizationMode* mode) {
  if (!mode) return CUPTI_ERROR_INVALID_PARAMETER;
  *mode = CUPTI_DEVICE_VIRTUALIZATION_MODE_NONE;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiFinalize() {
  records().disable_all();
  records().flush();
  unsubscribe_all();
  return CUPTI_SUCCESS;
}
