// Ties the parts together: what is recorded when, and what CUPTI and the shim call.
#pragma once

#include <cupti.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "recorder/native/activities.h"
#include "recorder/native/allocations.h"
#include "recorder/native/contexts.h"
#include "recorder/native/cupti_api.h"
#include "recorder/native/driver_api.h"
#include "recorder/native/function_layouts.h"
#include "recorder/native/graphs.h"
#include "recorder/native/inspections.h"
#include "recorder/native/launches.h"
#include "recorder/native/spool.h"
#include "recorder/native/tensor_maps.h"
#include "runtime/native/observer.h"

namespace transit {

enum class RecorderState : int {
  kWaiting = 0,
  kRecording = 1,
  kStopped = 2,
  kInspecting = 3,  // recording as well, and an inspector looks closer
};

class Recorder {
 public:
  // Never destroyed: the driver, CUPTI and other threads may call until the very end.
  static Recorder& instance();

  void initialize();  // from cuInit

  // From the torch hook.
  void expect_iterations() { expects_iterations_ = true; }
  void end_iteration(uint32_t step);
  void add_blocks(const BlockRecord* blocks, size_t count);
  void add_history(const HistoryRecord& history);
  void add_labels(uint64_t host_ns, const uint64_t* addresses, const char* names,
                  size_t count);
  void complete();  // after the last of these
  void add_framework(const char* name, const char* version);
  RecorderState state() const { return state_.load(std::memory_order_acquire); }

  void on_alloc(const TransitAllocation& allocation);
  void on_free(uint64_t address, uint32_t allocation_id);
  void on_callback(CUpti_CallbackDomain domain, CUpti_CallbackId cbid,
                   const void* data);
  void finish();  // at exit

 private:
  struct Framework {
    std::string name, version;
  };

  Recorder();
  void open();
  void observe_allocations();
  void enable_waiting_callbacks();
  std::string enable_launch_callbacks();

  void write(const Framework& framework);
  void on_context_created(CUcontext context);
  void describe_once(CUdevice device);
  void on_driver_call(CUpti_CallbackId cbid, const CUpti_CallbackData& call);

  bool is_recording() const;
  bool end_recorded_iteration(uint32_t step);
  void start(uint32_t step);
  bool inspect_next();
  void stop();
  void add_mark(MarkKind kind, uint32_t value);
  void flush();
  void sample();
  void run_flusher();

  const std::string run_dir_;
  const uint32_t max_iterations_;  // 0: until exit
  const uint32_t num_skipped_iterations_;

  Spool spool_;
  CuptiApi cupti_;
  DriverApi driver_;
  LiveAllocations live_;
  Contexts contexts_;
  FunctionLayouts layouts_{driver_, spool_};
  TensorMaps tensor_maps_;
  Graphs graphs_{cupti_, driver_, live_, tensor_maps_, layouts_, spool_};
  Launches launches_{driver_,  contexts_, live_, tensor_maps_,
                     layouts_, graphs_,   spool_};
  Activities activities_{cupti_, spool_};
  Inspections inspections_{driver_, contexts_, live_, activities_, launches_, spool_};
  CUpti_SubscriberHandle subscriber_ = nullptr;
  TransitLaunchesSeenFn hooked_launches_ = nullptr;

  std::atomic<RecorderState> state_{RecorderState::kWaiting};
  std::atomic<bool> expects_iterations_{false};

  std::mutex transition_;  // guards the start of a change of state, and these
  std::vector<Framework> early_frameworks_;  // named before there was a spool
  bool has_context_ = false;
  uint64_t described_devices_ = 0;
  uint32_t num_iterations_ = 0;
  uint32_t num_recorded_iterations_ = 0;

  // Held while CUPTI is started, flushed or stopped. Not `transition_`: the driver may
  // hold a lock of its own when it reports a context.
  std::mutex work_;
  std::atomic<uint64_t> interval_begin_ns_{0};

  std::mutex flusher_mutex_;
  std::condition_variable flusher_wake_;
  bool flusher_stops_ = false;
  std::thread flusher_;
};

extern std::atomic<bool> g_inert;  // in the child of a fork, which has no CUDA

// The way in from foreign code: nothing of ours may fly through its frames.
template <typename Action>
void call_recorder(Action&& action) noexcept {
  if (g_inert.load(std::memory_order_relaxed)) return;
  try {
    action(Recorder::instance());
  } catch (...) {  // out of memory: the record is lost, the job goes on
  }
}

}  // namespace transit
