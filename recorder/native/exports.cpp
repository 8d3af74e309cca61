// What the driver and the torch hook call.

#include <cstdint>

#include "recorder/native/clock.h"
#include "recorder/native/recorder.h"

using transit::call_recorder;
using transit::Recorder;

#define TRANSIT_EXPORT extern "C" __attribute__((visibility("default")))

// From cuInit, for the library named by CUDA_INJECTION64_PATH. Non-zero: success.
TRANSIT_EXPORT int InitializeInjection() {
  call_recorder([](Recorder& recorder) { recorder.initialize(); });
  return 1;
}

// The job will report the ends of its iterations.
TRANSIT_EXPORT void transit_recorder_expect_iterations() {
  call_recorder([](Recorder& recorder) { recorder.expect_iterations(); });
}

// `step`: how many the job has made.
TRANSIT_EXPORT void transit_recorder_iteration_end(uint32_t step) {
  call_recorder([=](Recorder& recorder) { recorder.end_iteration(step); });
}

// `records`: as in the spool.
TRANSIT_EXPORT void transit_recorder_blocks(const transit::BlockRecord* records,
                                            uint64_t count) {
  call_recorder([=](Recorder& recorder) { recorder.add_blocks(records, count); });
}

// From when to when those of a device are all there.
TRANSIT_EXPORT void transit_recorder_history(int32_t device, uint64_t begin_ns,
                                             uint64_t end_ns) {
  call_recorder(
      [=](Recorder& recorder) { recorder.add_history({begin_ns, end_ns, device, 0}); });
}

// What was at each address then: `names` holds as many texts, each ended by a zero.
TRANSIT_EXPORT void transit_recorder_labels(uint64_t host_ns, const uint64_t* addresses,
                                            const char* names, uint64_t count) {
  call_recorder([=](Recorder& recorder) {
    recorder.add_labels(host_ns, addresses, names, count);
  });
}

// Nothing more will come for a recording that has stopped.
TRANSIT_EXPORT void transit_recorder_complete() {
  call_recorder([](Recorder& recorder) { recorder.complete(); });
}

// What the job trains with: "torch", "2.9.0+cu130".
TRANSIT_EXPORT void transit_recorder_framework(const char* name, const char* version) {
  call_recorder([=](Recorder& recorder) { recorder.add_framework(name, version); });
}

// A RecorderState.
TRANSIT_EXPORT int transit_recorder_state() {
  auto state = transit::RecorderState::kStopped;
  call_recorder([&](const Recorder& recorder) { state = recorder.state(); });
  return static_cast<int>(state);
}

TRANSIT_EXPORT uint64_t transit_recorder_timestamp_ns() { return transit::now_ns(); }
