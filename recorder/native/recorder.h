// Ties the parts together: what is recorded when, and what CUPTI and the shim call.
#pragma once

#include <cupti.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "recorder/native/activities.h"
#include "recorder/native/allocations.h"
#include "recorder/native/api_calls.h"
#include "recorder/native/cupti_api.h"
#include "recorder/native/driver_api.h"
#include "recorder/native/function_layouts.h"
#include "recorder/native/spool.h"
#include "runtime/native/observer.h"

namespace transit {

enum class RecorderState : int { kWaiting = 0, kRecording = 1, kStopped = 2 };

uint64_t now_ns();  // the clock of CUPTI's timestamps

class Recorder {
 public:
  // Never destroyed: the driver, CUPTI and other threads may call until the very end.
  static Recorder& instance();

  void initialize();  // from cuInit

  // From the torch hook.
  void expect_iterations() { expects_iterations_ = true; }
  void end_iteration(uint32_t step);
  void add_block(const BlockRecord& block);
  RecorderState state() const { return state_.load(std::memory_order_acquire); }

  void on_alloc(const TransitAllocation& allocation);
  void on_free(uint64_t address, uint32_t allocation_id);
  void on_callback(CUpti_CallbackDomain domain, CUpti_CallbackId cbid,
                   const void* data);
  void finish();  // at exit

 private:
  struct Context {
    std::atomic<CUcontext> handle{nullptr};
    std::atomic<int32_t> device{0};
  };

  Recorder();
  void open();
  void observe_allocations();
  void enable_waiting_callbacks();
  std::string enable_launch_callbacks();

  void on_context_created(CUcontext context);
  void on_context_destroyed(CUcontext context);
  void describe_process();
  void describe_device(CUdevice device);
  int32_t device_of(CUcontext context) const;

  void on_driver_call(CUpti_CallbackId cbid, const CUpti_CallbackData& call);
  void record_launch(const ApiCall& api, const CUpti_CallbackData& call);
  bool is_captured(const LaunchRecord& launch);

  void start(uint32_t step);
  void stop();
  void synchronize_contexts();
  void add_mark(MarkKind kind, uint32_t value);
  void flush();
  void run_flusher();

  const std::string run_dir_;
  const uint32_t max_iterations_;  // 0: until exit
  const uint32_t num_skipped_iterations_;

  Spool spool_;
  CuptiApi cupti_;
  DriverApi driver_;
  LiveAllocations live_;
  FunctionLayouts layouts_{driver_, spool_};
  Activities activities_{cupti_, spool_};
  CUpti_SubscriberHandle subscriber_ = nullptr;

  std::atomic<RecorderState> state_{RecorderState::kWaiting};
  std::atomic<bool> expects_iterations_{false};
  std::atomic<bool> captures_seen_{false};
  std::atomic<uint64_t> callback_ns_{0};
  std::array<Context, 64> contexts_;
  std::array<const ApiCall*, 1024> calls_{};  // by callback id

  std::mutex transition_;  // guards the start of a change of state, and these
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
