#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "call.h"
#include "capture.h"
#include "context.h"
#include "process.h"

namespace simgpu {
namespace {

struct Event {
  unsigned flags;
  std::shared_ptr<Signal> signal;  // of the last record; null before the first
  CapturePoint point;              // if the last record was captured
};

struct Events {
  std::mutex mutex;
  std::unordered_map<CUevent, std::unique_ptr<Event>> by_handle;
};

Events& events() {
  static auto* instance = new Events;
  return *instance;
}

// With the lock held.
Event& find_event(CUevent handle) {
  const auto found = events().by_handle.find(handle);
  require(found != events().by_handle.end(), CUDA_ERROR_INVALID_HANDLE);
  return *found->second;
}

Event copy_event(CUevent handle) {
  const std::lock_guard lock(events().mutex);
  return find_event(handle);
}

void record(CUevent handle, CUstream stream_handle) {
  const StreamRef stream = find_stream(stream_handle);
  const CapturePoint point = capture_point(*stream);
  const std::lock_guard lock(events().mutex);
  Event& event = find_event(handle);
  event.point = point;
  if (point.capture) return;
  event.signal = std::make_shared<Signal>();
  stream->context.submit(
      *stream, [signal = event.signal, submitted_ns = now_ns()](Stream& self) {
        signal->set(std::max(submitted_ns, self.last_end_ns()));
      });
}

}  // namespace

DRIVER_API(cuEventCreate, (CUevent * handle, unsigned flags), (handle, flags)) {
  require(handle);
  current_context();
  auto event = std::make_unique<Event>(Event{flags, nullptr, {}});
  *handle = reinterpret_cast<CUevent>(event.get());
  const std::lock_guard lock(events().mutex);
  events().by_handle[*handle] = std::move(event);
}

DRIVER_API(cuEventDestroy_v2, (CUevent handle), (handle)) {
  const std::lock_guard lock(events().mutex);
  find_event(handle);
  events().by_handle.erase(handle);
}

STREAM_API(cuEventRecord, ptsz, (CUevent event, CUstream stream), (event, stream)) {
  record(event, stream);
}

STREAM_API(cuEventRecordWithFlags, ptsz,
           (CUevent event, CUstream stream, unsigned flags), (event, stream, flags)) {
  record(event, stream);
}

STREAM_API(cuStreamWaitEvent, ptsz,
           (CUstream stream_handle, CUevent handle, unsigned flags),
           (stream_handle, handle, flags)) {
  const StreamRef stream = find_stream(stream_handle);
  const Event event = copy_event(handle);
  if (event.point.capture) return join_capture(*stream, event.point);
  if (!event.signal) return;
  require(!is_capturing(*stream), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  stream->context.submit(*stream, [signal = event.signal](Stream& self) {
    self.occupied_until(signal->wait());
  });
}

DRIVER_API(cuEventQuery, (CUevent handle), (handle)) {
  const Event event = copy_event(handle);
  require(!event.point.capture, CUDA_ERROR_CAPTURED_EVENT);
  refuse_during_capture();
  require(!event.signal || event.signal->is_set(), CUDA_ERROR_NOT_READY);
  current_context();
}

DRIVER_API(cuEventSynchronize, (CUevent handle), (handle)) {
  const Event event = copy_event(handle);
  require(!event.point.capture, CUDA_ERROR_CAPTURED_EVENT);
  refuse_during_capture();
  if (event.signal) event.signal->wait();
  current_context();
}

static void elapsed_time(float* milliseconds, CUevent start_handle,
                         CUevent end_handle) {
  require(milliseconds);
  const Event start = copy_event(start_handle);
  const Event end = copy_event(end_handle);
  const bool timed = !((start.flags | end.flags) & CU_EVENT_DISABLE_TIMING);
  require(timed && start.signal && end.signal, CUDA_ERROR_INVALID_HANDLE);
  require(start.signal->is_set() && end.signal->is_set(), CUDA_ERROR_NOT_READY);
  const auto elapsed_ns =
      static_cast<int64_t>(end.signal->wait() - start.signal->wait());
  *milliseconds = static_cast<float>(static_cast<double>(elapsed_ns) / 1e6);
}

DRIVER_API(cuEventElapsedTime, (float* milliseconds, CUevent start, CUevent end),
           (milliseconds, start, end)) {
  elapsed_time(milliseconds, start, end);
}

DRIVER_API(cuEventElapsedTime_v2, (float* milliseconds, CUevent start, CUevent end),
           (milliseconds, start, end)) {
  elapsed_time(milliseconds, start, end);
}

}  // namespace simgpu
