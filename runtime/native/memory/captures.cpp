#include "runtime/native/memory/captures.h"

#include <mutex>
#include <set>

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

}  // namespace transit::captures
