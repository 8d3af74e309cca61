#include "runtime/native/windows/stream_log.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "runtime/native/interpose/driver.h"

namespace transit {

void StreamLog::note(CUstream stream, uint64_t now) {
  const bool is_of_thread = stream == CU_STREAM_PER_THREAD;
  const pid_t thread = is_of_thread ? static_cast<pid_t>(syscall(SYS_gettid)) : 0;
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
        return entry.stream == stream && entry.thread == thread;
      });
  Entry& entry =
      found != entries_.end()
          ? *found
          : entries_.emplace_back(Entry{stream, thread, now, UINT64_MAX, nullptr});
  entry.last_use = now;
  // Only the thread itself can name this stream.
  if (is_of_thread) mark(entry);
}

void StreamLog::mark(CUstream stream) {
  for (Entry& entry : entries_) {
    if (entry.stream == stream) mark(entry);
  }
}

void StreamLog::mark(Entry& entry) {
  if (entry.marked_use == entry.last_use) return;
  entry.mark = Event::record(entry.stream);
  entry.marked_use = entry.last_use;
}

Events StreamLog::marks_since(uint64_t since) {
  Events marks;
  for (Entry& entry : entries_) {
    if (entry.last_use < since) continue;
    mark(entry);
    if (entry.mark != nullptr) marks.push_back(entry.mark);
  }
  return marks;
}

void StreamLog::forget(CUstream stream) {
  const auto gone =
      std::remove_if(entries_.begin(), entries_.end(),
                     [&](const Entry& entry) { return entry.stream == stream; });
  if (gone == entries_.end()) return;
  driver().cuStreamSynchronize(stream);
  entries_.erase(gone, entries_.end());
}

}  // namespace transit
