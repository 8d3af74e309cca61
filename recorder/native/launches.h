// What the job submits to the GPU, and what each of it touches.
#pragma once

#include <cupti.h>

#include <array>
#include <atomic>
#include <cstdint>

#include "recorder/native/allocations.h"
#include "recorder/native/api_calls.h"
#include "recorder/native/contexts.h"
#include "recorder/native/driver_api.h"
#include "recorder/native/function_layouts.h"
#include "recorder/native/graphs.h"
#include "recorder/native/inspector.h"
#include "recorder/native/scan_memo.h"
#include "recorder/native/spool.h"
#include "recorder/native/tensor_maps.h"

namespace transit {

class Launches {
 public:
  Launches(const DriverApi& driver, const Contexts& contexts,
           const LiveAllocations& live, const TensorMaps& tensor_maps,
           FunctionLayouts& layouts, Graphs& graphs, Spool& spool);

  // The call that is being made, null if it submits nothing.
  const ApiCall* find(CUpti_CallbackId cbid) const {
    return cbid < calls_.size() ? calls_[cbid] : nullptr;
  }

  void record(const ApiCall& api, const CUpti_CallbackData& call);

  // Records a launch, and returns it unless it is only captured. Valid until the
  // thread's next.
  const SubmittedLaunch* record_for_inspection(const ApiCall& api,
                                               const CUpti_CallbackData& call);

  // From now on a launch may be recorded in a graph instead of run.
  void expect_captures() { captures_seen_.store(true, std::memory_order_relaxed); }

  // Calls that went into a graph and were not recorded.
  uint64_t num_captured() const {
    return num_captured_.load(std::memory_order_relaxed);
  }

  // An estimate of the time spent in record() since the last call.
  uint64_t take_time_ns() { return time_ns_.exchange(0, std::memory_order_relaxed); }

 private:
  struct Recorded {
    LaunchRecord launch;
    Launched launched;
    AccessCollector collector;
    Accesses accesses;
    bool is_captured;
  };

  const Recorded& record_untimed(const ApiCall& api, const CUpti_CallbackData& call);
  Accesses scan(const FunctionLayout& layout, const Launched& launched,
                const LiveAllocations::View& live, AccessCollector& collector) const;
  void write(Recorded& recorded);
  bool is_captured(const LaunchRecord& launch) const;

  const DriverApi& driver_;
  const Contexts& contexts_;
  const LiveAllocations& live_;
  const TensorMaps& tensor_maps_;
  FunctionLayouts& layouts_;
  Graphs& graphs_;
  Spool& spool_;
  std::atomic<bool> captures_seen_{false};
  std::atomic<uint64_t> num_captured_{0};
  std::atomic<uint64_t> time_ns_{0};
  std::array<const ApiCall*, 1024> calls_{};  // by callback id
};

}  // namespace transit
