#include "runtime/native/memory/captures.h"

#include <mutex>
#include <set>

#include "runtime/native/interpose/driver.h"

namespace transit::captures {
namespace {

struct Capturing {
  std::mutex mutex;
  std::set<CUstream> streams;
};

Capturing& capturing() {
  static Capturing& instance = *new Capturing;
  return instance;
}

}  // namespace

void begin(CUstream stream) {
  const std::lock_guard<std::mutex> lock(capturing().mutex);
  capturing().streams.insert(stream);
}

void end(CUstream stream) {
  const std::lock_guard<std::mutex> lock(capturing().mutex);
  capturing().streams.erase(stream);
}

bool any() {
  const std::lock_guard<std::mutex> lock(capturing().mutex);
  return !capturing().streams.empty();
}

// Also when it joined a capture that began on another stream.
bool holds(CUstream stream) {
  if (!any()) return false;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return driver().cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

Relaxed::Relaxed() { driver().cuThreadExchangeStreamCaptureMode(&mode_); }

Relaxed::~Relaxed() { driver().cuThreadExchangeStreamCaptureMode(&mode_); }

}  // namespace transit::captures
