#include "recorder/native/launches.h"

#include <vector>

#include "recorder/native/clock.h"

namespace transit {
namespace {

constexpr uint32_t kSampledLaunches = 64;  // one in so many is timed

}  // namespace

Launches::Launches(const DriverApi& driver, const Contexts& contexts,
                   const LiveAllocations& live, const TensorMaps& tensor_maps,
                   FunctionLayouts& layouts, Graphs& graphs, Spool& spool)
    : driver_(driver),
      contexts_(contexts),
      live_(live),
      tensor_maps_(tensor_maps),
      layouts_(layouts),
      graphs_(graphs),
      spool_(spool) {
  const ApiCalls calls = submitting_calls();
  for (const ApiCall* call = calls.begin; call != calls.end; ++call) {
    if (call->cbid < calls_.size()) calls_[call->cbid] = call;
  }
}

void Launches::record(const ApiCall& api, const CUpti_CallbackData& call) {
  thread_local uint32_t num_calls = 0;
  if (++num_calls % kSampledLaunches != 0) {
    record_untimed(api, call);
    return;
  }
  const uint64_t begin_ns = clock_ns(CLOCK_MONOTONIC);
  record_untimed(api, call);
  time_ns_.fetch_add((clock_ns(CLOCK_MONOTONIC) - begin_ns) * kSampledLaunches,
                     std::memory_order_relaxed);
}

const Launches::Recorded& Launches::record_untimed(const ApiCall& api,
                                                   const CUpti_CallbackData& call) {
  thread_local Recorded recorded;
  LaunchRecord& launch = recorded.launch = {};
  Launched& launched = recorded.launched = {};
  launch.host_ns = now_ns();
  launch.correlation_id = call.correlationId;
  launch.kind = static_cast<uint32_t>(api.kind);
  launch.device = contexts_.find(call.context).device;
  const LiveAllocations::View live(live_);
  recorded.collector.start(live, tensor_maps_);
  api.read(call.functionParams, launch, launched, recorded.collector);
  if (api.per_thread_stream && launch.stream == 0) {
    launch.stream = reinterpret_cast<uint64_t>(CU_STREAM_PER_THREAD);
  }
  recorded.is_captured = is_captured(launch);
  if (recorded.is_captured) {
    num_captured_.fetch_add(1, std::memory_order_relaxed);
    return recorded;
  }
  if (api.kind == LaunchKind::kKernel) {
    const FunctionLayout& layout = layouts_.get(launched.function, call.symbolName);
    launch.name_id = layout.name_id;
    recorded.accesses = scan(layout, launched, live, recorded.collector);
  } else {
    launch.name_id = spool_.name_id(call.functionName);
    recorded.accesses = recorded.collector.found();
  }
  write(recorded);
  return recorded;
}

Accesses Launches::scan(const FunctionLayout& layout, const Launched& launched,
                        const LiveAllocations::View& live,
                        AccessCollector& collector) const {
  if (launched.kernel_params != nullptr) {
    if (ScanMemo* memo = ScanMemo::of_this_thread()) {
      return memo->scan(layout, launched.kernel_params, live, tensor_maps_, collector);
    }
    collector.scan_parameters(layout, launched.kernel_params);
  } else if (launched.extra != nullptr) {
    collector.scan_buffer(launched.extra);
  }
  return collector.found();
}

void Launches::write(Recorded& recorded) {
  const uint64_t launch_id = spool_.append_launch(recorded.launch);
  const Accesses& accesses = recorded.accesses;
  for (size_t i = 0; i < accesses.count; ++i) accesses.begin[i].launch_id = launch_id;
  if (accesses.count > 0) spool_.accesses.append(accesses.begin, accesses.count);
  const uint32_t num_dropped = recorded.collector.num_dropped();
  if (num_dropped > 0) spool_.accesses.file().count_dropped(num_dropped);
  if (recorded.launch.kind == static_cast<uint32_t>(LaunchKind::kGraph)) {
    graphs_.add_launch(launch_id, recorded.launched.graph);
  }
}

const SubmittedLaunch* Launches::record_for_inspection(const ApiCall& api,
                                                       const CUpti_CallbackData& call) {
  thread_local SubmittedLaunch submitted;
  thread_local std::vector<AccessRecord> of_graph;
  const Recorded& recorded = record_untimed(api, call);
  if (recorded.is_captured) return nullptr;
  submitted = {recorded.launch.launch_id,
               api.kind,
               call.context,
               reinterpret_cast<CUstream>(recorded.launch.stream),
               recorded.accesses.begin,
               recorded.accesses.count};
  if (api.kind == LaunchKind::kGraph) {
    of_graph = graphs_.accesses_of(recorded.launched.graph);
    submitted.accesses = of_graph.data();
    submitted.num_accesses = of_graph.size();
  }
  return &submitted;
}

// A captured call submits nothing; the graph's launch does.
bool Launches::is_captured(const LaunchRecord& launch) const {
  if (!captures_seen_.load(std::memory_order_relaxed)) return false;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const auto stream = reinterpret_cast<CUstream>(launch.stream);
  return driver_.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

}  // namespace transit
