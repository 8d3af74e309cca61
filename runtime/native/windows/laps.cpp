#include "runtime/native/windows/laps.h"

#include "runtime/native/interpose/driver.h"
#include "runtime/native/status/status.h"

namespace transit {
namespace {

// Questions about events break what another thread of the job captures, unless asked
// so.
class RelaxedCapture {
 public:
  RelaxedCapture() { exchange(); }
  ~RelaxedCapture() { exchange(); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  void exchange() { driver().cuThreadExchangeStreamCaptureMode(&mode_); }

  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace

void Laps::begin(CUstream stream) {
  const RelaxedCapture relaxed;
  const CUevent event = take_event();
  if (event == nullptr) return abandon();
  if (driver().cuEventRecord(event, stream) != CUDA_SUCCESS) {
    spare_.push_back(event);
    return abandon();
  }
  begins_.push_back({event, is_followed_});
  is_followed_ = true;
  count_ended();
}

CUevent Laps::take_event() {
  CUevent event = nullptr;
  if (spare_.empty()) {
    driver().cuEventCreate(&event, CU_EVENT_DEFAULT);
  } else {
    event = spare_.back();
    spare_.pop_back();
  }
  return event;
}

void Laps::count_ended() {
  while (begins_.size() > 1 &&
         driver().cuEventQuery(begins_[1].event) == CUDA_SUCCESS) {
    const CUevent begin = begins_[0].event;
    float lap_ms = 0;
    if (begins_[1].ends_lap &&
        driver().cuEventElapsedTime(&lap_ms, begin, begins_[1].event) == CUDA_SUCCESS) {
      status::add_lap(static_cast<uint64_t>(static_cast<double>(lap_ms) * 1e6));
    }
    begins_.pop_front();
    spare_.push_back(begin);
  }
}

}  // namespace transit
