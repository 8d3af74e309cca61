#include "recorder/native/recorder.h"

#include <dlfcn.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <initializer_list>

#include "recorder/native/failure.h"

namespace transit {
namespace {

constexpr auto kFlushPeriod = std::chrono::milliseconds(200);
constexpr uint32_t kSampledLaunches = 64;  // one in so many is timed

uint64_t clock_ns(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1000000000u +
         static_cast<uint64_t>(time.tv_nsec);
}

// The first of the variables that is set and is a number.
uint32_t number_from(std::initializer_list<const char*> variables, uint32_t otherwise) {
  for (const char* variable : variables) {
    const char* text = getenv(variable);
    if (text == nullptr || *text == '\0') continue;
    char* end = nullptr;
    const unsigned long value = strtoul(text, &end, 10);
    if (*end == '\0' && value <= UINT32_MAX) return static_cast<uint32_t>(value);
  }
  return otherwise;
}

std::string text_from(const char* variable) {
  const char* text = getenv(variable);
  return text == nullptr ? "" : text;
}

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

uint64_t now_ns() { return clock_ns(CLOCK_REALTIME); }

Recorder& Recorder::instance() {
  static Recorder* recorder = new Recorder;
  return *recorder;
}

Recorder::Recorder()
    : run_dir_(text_from("TRANSIT_RUN_DIR")),
      max_iterations_(number_from({"TRANSIT_ITERATIONS"}, 0)),
      num_skipped_iterations_(number_from({"TRANSIT_SKIP"}, 0)) {
  const ApiCalls calls = submitting_calls();
  for (const ApiCall* call = calls.begin; call != calls.end; ++call) {
    if (call->cbid < calls_.size()) calls_[call->cbid] = call;
  }
}

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
    return cupti_.cuptiEnableCallback(1, subscriber_, domain, cbid);
  };
  const CUptiResult result =
      enable(CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_CONTEXT_CREATED);
  if (result != CUPTI_SUCCESS) {
    refuse(run_dir_,
           "CUPTI does not report contexts to us: " + cupti_.describe(result));
  }
  enable(CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING);
  enable(CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING);
  for (CUpti_CallbackId cbid : kCaptureCalls) {
    enable(CUPTI_CB_DOMAIN_DRIVER_API, cbid);
  }
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
  const CUcontext context = static_cast<const CUpti_ResourceData*>(data)->context;
  switch (cbid) {
    case CUPTI_CBID_RESOURCE_CONTEXT_CREATED:
      return on_context_created(context);
    case CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING:
      return on_context_destroyed(context);
    case CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING:
      return layouts_.forget_all();
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
  describe_process();
  // After the driver registered its own, therefore run before it.
  atexit(&on_exit);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for the job's threads
  flusher_ = std::thread([this] { run_flusher(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Recorder::on_context_created(CUcontext context) {
  uint32_t device = 0;
  cupti_.cuptiGetDeviceId(context, &device);
  bool starts = false;
  {
    std::lock_guard<std::mutex> lock(transition_);
    if (!has_context_) open();
    has_context_ = true;
    for (Context& slot : contexts_) {
      if (slot.handle.load() != nullptr) continue;
      slot.device.store(static_cast<int32_t>(device));
      slot.handle.store(context);
      break;
    }
    describe_device(static_cast<CUdevice>(device));
    starts = state() == RecorderState::kWaiting &&
             (!expects_iterations_ || num_iterations_ >= num_skipped_iterations_);
    if (starts) state_.store(RecorderState::kRecording);
  }
  if (starts) start(num_iterations_);
}

void Recorder::on_context_destroyed(CUcontext context) {
  for (Context& slot : contexts_) {
    CUcontext expected = context;
    slot.handle.compare_exchange_strong(expected, nullptr);
  }
}

int32_t Recorder::device_of(CUcontext context) const {
  for (const Context& slot : contexts_) {
    if (slot.handle.load(std::memory_order_relaxed) == context) {
      return slot.device.load(std::memory_order_relaxed);
    }
  }
  return 0;
}

void Recorder::describe_process() {
  ProcessRecord process{};
  process.rank =
      number_from({"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"}, 0);
  process.local_rank =
      number_from({"LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"}, 0);
  process.world_size = number_from(
      {"WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}, 1);
  process.cupti_version = cupti_.version;
  int driver_version = 0, device_count = 0;
  driver_.cuDriverGetVersion(&driver_version);
  driver_.cuDeviceGetCount(&device_count);
  process.driver_version = static_cast<uint32_t>(driver_version);
  process.device_count = static_cast<uint32_t>(device_count);
  process.clock_realtime_ns = now_ns();
  process.clock_monotonic_ns = clock_ns(CLOCK_MONOTONIC);
  cupti_.cuptiGetTimestamp(&process.clock_cupti_ns);
  spool_.processes.append(process);
}

void Recorder::describe_device(CUdevice device) {
  const auto attribute = [&](CUdevice_attribute which) {
    int value = 0;
    driver_.cuDeviceGetAttribute(&value, which, device);
    return static_cast<uint32_t>(value);
  };
  // One record per device, however many contexts it has.
  const uint64_t bit = uint64_t{1} << (static_cast<uint32_t>(device) % 64);
  if ((described_devices_ & bit) != 0) return;
  described_devices_ |= bit;
  char name[256] = "";
  size_t memory_bytes = 0;
  driver_.cuDeviceGetName(name, sizeof(name), device);
  driver_.cuDeviceTotalMem_v2(&memory_bytes, device);
  DeviceRecord record{};
  record.device = device;
  record.compute_capability =
      attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
      attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  record.memory_bytes = memory_bytes;
  record.name_id = spool_.name_id(name);
  record.num_multiprocessors = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  spool_.devices.append(record);
}

void Recorder::on_alloc(const TransitAllocation& allocation) {
  if (state() == RecorderState::kStopped) return;
  live_.insert(allocation.address, allocation.bytes, allocation.allocation_id);
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
  spool_.frees.append({now_ns(), spool_.next_launch_id(), allocation_id, 0});
}

void Recorder::on_driver_call(CUpti_CallbackId cbid, const CUpti_CallbackData& call) {
  if (call.callbackSite != CUPTI_API_ENTER || cbid >= calls_.size()) return;
  const ApiCall* api = calls_[cbid];
  if (api == nullptr) return captures_seen_.store(true, std::memory_order_relaxed);
  if (state() != RecorderState::kRecording) return;
  thread_local uint32_t num_calls = 0;
  if (++num_calls % kSampledLaunches != 0) return record_launch(*api, call);
  const uint64_t begin_ns = clock_ns(CLOCK_MONOTONIC);
  record_launch(*api, call);
  callback_ns_.fetch_add((clock_ns(CLOCK_MONOTONIC) - begin_ns) * kSampledLaunches,
                         std::memory_order_relaxed);
}

void Recorder::record_launch(const ApiCall& api, const CUpti_CallbackData& call) {
  thread_local AccessCollector accesses;
  LaunchRecord launch{};
  launch.host_ns = now_ns();
  launch.correlation_id = call.correlationId;
  launch.kind = static_cast<uint32_t>(api.kind);
  launch.device = device_of(call.context);
  KernelCall kernel;
  const LiveAllocations::View live(live_);
  accesses.begin(live);
  api.read(call.functionParams, launch, kernel, accesses);
  if (api.per_thread_stream && launch.stream == 0) {
    launch.stream = reinterpret_cast<uint64_t>(CU_STREAM_PER_THREAD);
  }
  if (is_captured(launch)) return;
  if (api.kind == LaunchKind::kKernel) {
    const FunctionLayout& layout = layouts_.get(kernel.function, call.symbolName);
    launch.name_id = layout.name_id;
    if (kernel.kernel_params != nullptr) {
      accesses.scan_parameters(layout, kernel.kernel_params);
    } else if (kernel.extra != nullptr) {
      accesses.scan_buffer(kernel.extra);
    }
  } else {
    launch.name_id = spool_.name_id(call.functionName);
  }
  accesses.write(spool_.append_launch(launch), spool_.accesses);
}

// A captured call submits nothing; the graph's launch does.
bool Recorder::is_captured(const LaunchRecord& launch) {
  if (!captures_seen_.load(std::memory_order_relaxed)) return false;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const auto stream = reinterpret_cast<CUstream>(launch.stream);
  return driver_.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

void Recorder::end_iteration(uint32_t step) {
  bool starts = false, stops = false;
  {
    std::lock_guard<std::mutex> lock(transition_);
    ++num_iterations_;
    if (state() == RecorderState::kRecording) {
      add_mark(MarkKind::kIterationEnd, step);
      stops = max_iterations_ > 0 && ++num_recorded_iterations_ >= max_iterations_;
    } else if (state() == RecorderState::kWaiting && has_context_) {
      starts = num_iterations_ >= num_skipped_iterations_;
      if (starts) state_.store(RecorderState::kRecording);
    }
  }
  if (starts) start(step);
  if (stops) stop();
}

void Recorder::add_block(const BlockRecord& block) { spool_.blocks.append(block); }

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
    return;
  }
  interval_begin_ns_ = now_ns();
  add_mark(MarkKind::kRecordingStarted, step);
}

std::string Recorder::enable_launch_callbacks() {
  const ApiCalls calls = submitting_calls();
  for (const ApiCall* call = calls.begin; call != calls.end; ++call) {
    const CUptiResult result = cupti_.cuptiEnableCallback(
        1, subscriber_, CUPTI_CB_DOMAIN_DRIVER_API, call->cbid);
    // An older CUPTI does not know the newest calls, and then nor does the driver.
    if (result != CUPTI_SUCCESS &&
        call->cbid == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel) {
      return "CUPTI does not report launches to us: " + cupti_.describe(result);
    }
  }
  return {};
}

// Not from a CUPTI callback: synchronising in one can wait for itself.
void Recorder::stop() {
  std::lock_guard<std::mutex> lock(work_);
  if (state_.exchange(RecorderState::kStopped) != RecorderState::kRecording) return;
  add_mark(MarkKind::kRecordingStopped, num_iterations_);
  synchronize_contexts();
  flush();
  activities_.disable();
  cupti_.cuptiUnsubscribe(subscriber_);
}

void Recorder::synchronize_contexts() {
  for (const Context& slot : contexts_) {
    const CUcontext context = slot.handle.load();
    if (context == nullptr || driver_.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS) {
      continue;
    }
    driver_.cuCtxSynchronize();
    CUcontext popped = nullptr;
    driver_.cuCtxPopCurrent_v2(&popped);
  }
}

void Recorder::flush() {
  cupti_.cuptiActivityFlushAll(0);
  const uint64_t callback_ns = callback_ns_.exchange(0, std::memory_order_relaxed);
  const uint32_t num_dropped = activities_.take_dropped();
  const uint64_t begin_ns = interval_begin_ns_.exchange(now_ns());
  if (callback_ns == 0 && num_dropped == 0) return;
  spool_.overhead.append({begin_ns, begin_ns + callback_ns, 0, num_dropped});
}

// Flushes now and then, so that a kill -9 loses little, and at exit for the last time:
// by then the exiting thread's own storage, and what the driver kept in it, is gone.
void Recorder::run_flusher() {
  std::unique_lock<std::mutex> lock(flusher_mutex_);
  while (
      !flusher_wake_.wait_for(lock, kFlushPeriod, [this] { return flusher_stops_; })) {
    lock.unlock();
    {
      std::lock_guard<std::mutex> work(work_);
      if (state() == RecorderState::kRecording) flush();
    }
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
