#include "runtime/native/windows/events.h"

#include <algorithm>
#include <mutex>

#include "runtime/native/interpose/driver.h"

namespace transit {
namespace {

// Making one takes longer than recording it.
struct Spare {
  std::mutex mutex;
  std::vector<CUevent> events;
};

Spare& spare() {
  static Spare& instance = *new Spare;
  return instance;
}

CUevent take_event() {
  {
    const std::lock_guard<std::mutex> lock(spare().mutex);
    if (!spare().events.empty()) {
      CUevent event = spare().events.back();
      spare().events.pop_back();
      return event;
    }
  }
  CUevent event = nullptr;
  driver().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
  return event;
}

}  // namespace

Event::~Event() {
  const std::lock_guard<std::mutex> lock(spare().mutex);
  spare().events.push_back(event_);
}

std::shared_ptr<const Event> Event::record(CUstream stream) {
  const CUevent event = take_event();
  if (event != nullptr) {
    auto recorded = std::make_shared<const Event>(event);
    if (driver().cuEventRecord(event, stream) == CUDA_SUCCESS) return recorded;
  }
  driver().cuStreamSynchronize(stream);
  return nullptr;
}

// An error is the job's own: waiting would not mend it.
bool Event::has_passed() const {
  if (has_passed_.load(std::memory_order_acquire)) return true;
  const bool has = driver().cuEventQuery(event_) != CUDA_ERROR_NOT_READY;
  if (has) has_passed_.store(true, std::memory_order_release);
  return has;
}

void Event::precede(CUstream stream) const {
  if (driver().cuStreamWaitEvent(stream, event_, 0) == CUDA_SUCCESS) return;
  driver().cuEventSynchronize(event_);
}

bool have_passed(const Events& events) {
  return std::all_of(events.begin(), events.end(),
                     [](const auto& event) { return event->has_passed(); });
}

}  // namespace transit
