#include "recorder/native/recorder.h"

#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>

#include "recorder/native/clock.h"
#include "recorder/native/description.h"
#include "recorder/native/environment.h"
#include "recorder/native/failure.h"
#include "recorder/native/own_calls.h"

namespace transit {
namespace {

constexpr auto kFlushPeriod = std::chrono::milliseconds(200);
void CUPTIAPI on_cupti_callback(void*, CUpti_CallbackDomain domain,
                                CUpti_CallbackId cbid, const void* data) {
  call_recorder([&](Recorder& r) { r.on_callback(domain, cbid, data); });
}

void on_observed_alloc(const TransitAllocation* allocation) {
  call_recorder([&](Recorder& r) { r.on_alloc(*allocation); });
}

void on_observed_free(uint64_t address, uint32_t allocation_id) {
  call_recorder([&](Recorder& r) { r.on_free(address, allocation_id); });
}

void on_exit() {
  call_recorder([](Recorder& r) { r.finish(); });
}

}  // namespace

std::atomic<bool> g_inert{false};

Recorder& Recorder::instance() {
  static Recorder* recorder = new Recorder;
  return *recorder;
}

Recorder::Recorder()
    : run_dir_(text_from("TRANSIT_RUN_DIR")),
      max_iterations_(number_from({"TRANSIT_ITERATIONS"}, 0)),
      num_skipped_iterations_(number_from({"TRANSIT_SKIP"}, 0)) {}

void Recorder::initialize() {
  if (run_dir_.empty()) {
    say("TRANSIT_RUN_DIR is not set: start the job by `transit record`");
    _exit(1);
  }
  std::string error = cupti_.load();
  if (error.empty()) error = cupti_.subscribe(&on_cupti_callback, &subscriber_);
  if (!error.empty()) refuse(run_dir_, error);
  pthread_atfork(nullptr, nullptr, [] { g_inert.store(true); });
  enable_waiting_callbacks();
  observe_allocations();
}

void Recorder::enable_waiting_callbacks() {
  const auto enable = [this](CUpti_CallbackDomain domain, CUpti_CallbackId cbid) {
    return cupti_.enable_callback(subscriber_, domain, cbid);
  };
  const CUptiResult result =
      enable(CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_CONTEXT_CREATED);
  if (result != CUPTI_SUCCESS) {
    refuse(run_dir_,
           "CUPTI does not report contexts to us: " + cupti_.describe(result));
  }
  enable(CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING);
  enable(CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING);
  enable(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLibraryUnload);
  for (CUpti_CallbackId cbid : kCaptureCalls) {
    enable(CUPTI_CB_DOMAIN_DRIVER_API, cbid);
  }
  graphs_.enable_callbacks(subscriber_);
  tensor_maps_.enable_callbacks(cupti_, subscriber_);
}

void Recorder::observe_allocations() {
  static const TransitObserver observer = {TRANSIT_OBSERVER_VERSION, &on_observed_alloc,
                                           &on_observed_free};
  const auto observe =
      reinterpret_cast<TransitObserveFn>(dlsym(RTLD_DEFAULT, "transit_observe"));
  if (observe == nullptr) {
    refuse(run_dir_,
           "libtransit.so is not in the process, and without it allocations are not "
           "known: something between `transit record` and the job dropped LD_PRELOAD");
  }
  hooked_launches_ = reinterpret_cast<TransitLaunchesSeenFn>(
      dlsym(RTLD_DEFAULT, "transit_launches_seen"));
  if (observe(&observer) != 0) {
    refuse(run_dir_,
           "libtransit.so and libtransit_recorder.so are of different versions: "
           "install transit anew");
  }
}

void Recorder::on_callback(CUpti_CallbackDomain domain, CUpti_CallbackId cbid,
                           const void* data) {
  if (domain == CUPTI_CB_DOMAIN_DRIVER_API) {
    return on_driver_call(cbid, *static_cast<const CUpti_CallbackData*>(data));
  }
  if (domain != CUPTI_CB_DOMAIN_RESOURCE) return;
  const auto& resource = *static_cast<const CUpti_ResourceData*>(data);
  const CUcontext context = resource.context;
  switch (cbid) {
    case CUPTI_CBID_RESOURCE_CONTEXT_CREATED:
      return on_context_created(context);
    case CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING:
      return contexts_.remove(context);
    case CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING:
      return layouts_.forget_all();
    case CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED:
      return graphs_.on_node_cloned(
          *static_cast<const CUpti_GraphData*>(resource.resourceDescriptor));
    default:
      return;
  }
}

// The first context: from here on the process leaves something behind.
void Recorder::open() {
  if (const char* missing = driver_.load()) {
    refuse(run_dir_, std::string("the driver lacks ") + missing +
                         ": recording needs a driver of CUDA 12.4 or newer");
  }
  const std::string error = spool_.create(run_dir_);
  if (!error.empty()) {
    report_failure(run_dir_, error);
    _exit(1);
  }
  spool_.processes.append(describe_process(cupti_, driver_));
  for (const Framework& framework : early_frameworks_) write(framework);
  // After the driver registered its own, therefore run before it.
  atexit(&on_exit);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for the job's threads
  flusher_ = std::thread([this] { run_flusher(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Recorder::on_context_created(CUcontext context) {
  const uint32_t device = cupti_.device_of(context);
  bool starts = false;
  uint32_t step = 0;
  {
    std::lock_guard<std::mutex> lock(transition_);
    if (!has_context_) open();
    has_context_ = true;
    contexts_.add(context, static_cast<int32_t>(device));
    describe_once(static_cast<CUdevice>(device));
    step = num_iterations_;
    starts = state() == RecorderState::kWaiting &&
             (!expects_iterations_ || step >= num_skipped_iterations_);
    if (starts) state_.store(RecorderState::kRecording);
  }
  if (starts) start(step);
}

// One record per device, however many contexts it has.
void Recorder::describe_once(CUdevice device) {
  const uint64_t bit = uint64_t{1} << (static_cast<uint32_t>(device) % 64);
  if ((described_devices_ & bit) != 0) return;
  described_devices_ |= bit;
  spool_.devices.append(describe_device(driver_, device, spool_));
}

void Recorder::on_alloc(const TransitAllocation& allocation) {
  if (state() == RecorderState::kStopped) return;
  live_.insert(allocation.address, allocation.bytes, allocation.allocation_id);
  if (allocation.api == TRANSIT_API_AUDITED) {
    activities_.note_managed_memory(UnifiedMemory::kFaults);
  } else if (allocation.api == TRANSIT_API_MANAGED) {
    activities_.note_managed_memory(UnifiedMemory::kAll);
  }
  inspections_.on_alloc(allocation);
  AllocationRecord record{};
  record.address = allocation.address;
  record.bytes = allocation.bytes;
  record.host_ns = now_ns();
  record.launch_id = spool_.next_launch_id();
  record.allocation_id = allocation.allocation_id;
  record.ordinal = allocation.ordinal;
  record.device = allocation.device;
  record.api = allocation.api;
  record.caller_name_id =
      spool_.name_id(allocation.caller == nullptr ? "" : allocation.caller);
  spool_.allocations.append(record);
}

void Recorder::on_free(uint64_t address, uint32_t allocation_id) {
  if (state() == RecorderState::kStopped) return;
  live_.erase(address, allocation_id);
  inspections_.on_free(address, allocation_id);
  spool_.frees.append({now_ns(), spool_.next_launch_id(), allocation_id, 0});
}

void Recorder::on_driver_call(CUpti_CallbackId cbid, const CUpti_CallbackData& call) {
  const ApiCall* api = launches_.find(cbid);
  if (OwnCalls::in_progress()) {
    const bool is_kernel = api != nullptr && api->kind == LaunchKind::kKernel;
    if (!is_kernel) activities_.ignore_correlation(call.correlationId);
    return;
  }
  if (cbid == CUPTI_DRIVER_TRACE_CBID_cuLibraryUnload) return layouts_.forget_all();
  if (api == nullptr && tensor_maps_.on_driver_call(cbid, call)) return;
  if (api == nullptr && graphs_.on_driver_call(cbid, call)) return;
  if (api == nullptr) {
    if (call.callbackSite == CUPTI_API_ENTER) launches_.expect_captures();
    return;
  }
  switch (state()) {
    case RecorderState::kRecording:
      if (call.callbackSite == CUPTI_API_ENTER) launches_.record(*api, call);
      return;
    case RecorderState::kInspecting:
      return inspections_.on_driver_call(*api, call);
    default:
      return;
  }
}

void Recorder::end_iteration(uint32_t step) {
  bool starts = false, was_last = false;
  {
    std::lock_guard<std::mutex> lock(transition_);
    ++num_iterations_;
    if (is_recording()) {
      was_last = end_recorded_iteration(step);
    } else if (state() == RecorderState::kWaiting && has_context_) {
      starts = num_iterations_ >= num_skipped_iterations_;
      if (starts) state_.store(RecorderState::kRecording);
    }
  }
  if (starts) start(step);
  if (was_last && !inspect_next()) stop();
}

// Returns whether it was the last one recorded for its purpose.
bool Recorder::end_recorded_iteration(uint32_t step) {
  add_mark(MarkKind::kIterationEnd, step);
  if (state() == RecorderState::kInspecting) return true;
  return max_iterations_ > 0 && ++num_recorded_iterations_ >= max_iterations_;
}

void Recorder::add_blocks(const BlockRecord* blocks, size_t count) {
  spool_.blocks.append(blocks, count);
}

void Recorder::add_history(const HistoryRecord& history) {
  spool_.histories.append(history);
}

void Recorder::add_labels(uint64_t host_ns, const uint64_t* addresses,
                          const char* names, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const std::string_view name(names);
    spool_.labels.append({host_ns, addresses[i], spool_.name_id(name), 0});
    names += name.size() + 1;
  }
}

void Recorder::complete() {
  if (state() == RecorderState::kStopped) add_mark(MarkKind::kRecordingComplete, 0);
}

// Imported long before the first context, or long after.
void Recorder::add_framework(const char* name, const char* version) {
  const Framework framework{name, version};
  std::lock_guard<std::mutex> lock(transition_);
  if (has_context_) {
    write(framework);
  } else {
    early_frameworks_.push_back(framework);
  }
}

void Recorder::write(const Framework& framework) {
  spool_.frameworks.append(
      {spool_.name_id(framework.name), spool_.name_id(framework.version)});
}

void Recorder::add_mark(MarkKind kind, uint32_t value) {
  spool_.marks.append(
      {now_ns(), spool_.next_launch_id(), static_cast<uint32_t>(kind), value});
}

void Recorder::start(uint32_t step) {
  std::lock_guard<std::mutex> lock(work_);
  std::string error = activities_.enable();
  if (error.empty()) error = enable_launch_callbacks();
  if (!error.empty()) {
    report_failure(spool_.folder(), error);
    if (step == 0) _exit(1);
    state_.store(RecorderState::kStopped);
    activities_.disable();
    cupti_.cuptiUnsubscribe(subscriber_);
    return;
  }
  interval_begin_ns_ = now_ns();
  add_mark(MarkKind::kRecordingStarted, step);
  sample();
}

std::string Recorder::enable_launch_callbacks() {
  const ApiCalls calls = submitting_calls();
  for (const ApiCall* call = calls.begin; call != calls.end; ++call) {
    const CUptiResult result =
        cupti_.enable_callback(subscriber_, CUPTI_CB_DOMAIN_DRIVER_API, call->cbid);
    // An older CUPTI does not know the newest calls, and then nor does the driver.
    if (result != CUPTI_SUCCESS &&
        call->cbid == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel) {
      return "CUPTI does not report launches to us: " + cupti_.describe(result);
    }
  }
  return {};
}

bool Recorder::is_recording() const {
  return state() == RecorderState::kRecording || state() == RecorderState::kInspecting;
}

// Returns whether an inspector is at work from now on.
bool Recorder::inspect_next() {
  const std::lock_guard<std::mutex> lock(work_);
  inspections_.end();
  if (!is_recording()) return false;
  Inspector* inspector = inspections_.prepare_next();
  if (inspector == nullptr) return false;
  sample();
  add_mark(MarkKind::kPurposeChanged, static_cast<uint32_t>(inspector->purpose()));
  inspections_.begin(*inspector);
  state_.store(RecorderState::kInspecting);
  return true;
}

// Not from a CUPTI callback: synchronising in one can wait for itself.
void Recorder::stop() {
  std::lock_guard<std::mutex> lock(work_);
  if (!is_recording()) return;
  sample();
  state_.store(RecorderState::kStopped);
  add_mark(MarkKind::kRecordingStopped, num_iterations_);
  contexts_.synchronize(driver_);
  flush();
  activities_.settle();
  activities_.disable();
  cupti_.cuptiUnsubscribe(subscriber_);
}

void Recorder::flush() {
  activities_.flush();
  const uint64_t callback_ns = launches_.take_time_ns();
  const uint32_t num_dropped = activities_.take_dropped();
  const uint64_t begin_ns = interval_begin_ns_.exchange(now_ns());
  if (callback_ns == 0 && num_dropped == 0) return;
  spool_.overhead.append({begin_ns, begin_ns + callback_ns, 0, num_dropped});
}

void Recorder::sample() {
  spool_.samples.append({now_ns(), clock_ns(CLOCK_MONOTONIC),
                         hooked_launches_ == nullptr ? 0 : hooked_launches_(),
                         spool_.next_launch_id(), launches_.num_captured()});
}

// Flushes now and then, so that a kill -9 loses little, and gets room ready for what
// the job's threads will append. Flushes at exit for the last time:
// by then the exiting thread's own storage, and what the driver kept in it, is gone.
void Recorder::run_flusher() {
  std::unique_lock<std::mutex> lock(flusher_mutex_);
  while (
      !flusher_wake_.wait_for(lock, kFlushPeriod, [this] { return flusher_stops_; })) {
    lock.unlock();
    {
      std::lock_guard<std::mutex> work(work_);
      if (is_recording()) {
        sample();
        flush();
      }
    }
    spool_.prepare();
    lock.lock();
  }
  lock.unlock();
  stop();
}

void Recorder::finish() {
  {
    std::lock_guard<std::mutex> lock(flusher_mutex_);
    flusher_stops_ = true;
  }
  flusher_wake_.notify_all();
  if (flusher_.joinable()) flusher_.join();
  spool_.close();
}

}  // namespace transit
