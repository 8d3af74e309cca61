#include "stream.h"

#include <algorithm>
#include <thread>

#include "call.h"
#include "context.h"

namespace simgpu {

Stream::Stream(Context& owner, uint32_t stream_id, unsigned stream_flags,
               int stream_priority)
    : context(owner), id(stream_id), flags(stream_flags), priority(stream_priority) {}

uint64_t Stream::push(Task task) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  if (!started_) {
    started_ = true;
    // Detached, and holding the stream: the process may end while it waits.
    std::thread([self = shared_from_this()] { self->work(); }).detach();
  }
  changed_.notify_all();
  return ++submitted_;
}

void Stream::wait(uint64_t number) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return completed_ >= number; });
}

void Stream::drain() { wait(submitted()); }

bool Stream::idle() const {
  const std::lock_guard lock(mutex_);
  return completed_ == submitted_;
}

uint64_t Stream::submitted() const {
  const std::lock_guard lock(mutex_);
  return submitted_;
}

void Stream::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

bool Stream::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

Span Stream::occupy(uint64_t submitted_ns, uint64_t duration_ns) {
  const uint64_t start_ns = std::max(submitted_ns, last_end_ns_.load());
  last_end_ns_ = start_ns + duration_ns;
  return {start_ns, start_ns + duration_ns};
}

void Stream::occupied_until(uint64_t end_ns) {
  last_end_ns_ = std::max(end_ns, last_end_ns_.load());
}

void Stream::run(const Task& task) {
  try {
    task(*this);
  } catch (const Error& error) {
    context.error = error.code;
  } catch (...) {
    context.error = CUDA_ERROR_LAUNCH_FAILED;
  }
}

void Stream::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return closed_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    run(task);
    task = nullptr;
    lock.lock();
    ++completed_;
    changed_.notify_all();
  }
}

void Signal::set(uint64_t time_ns) {
  const std::lock_guard lock(mutex_);
  set_ = true;
  time_ns_ = time_ns;
  changed_.notify_all();
}

uint64_t Signal::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return set_; });
  return time_ns_;
}

bool Signal::is_set() const {
  const std::lock_guard lock(mutex_);
  return set_;
}

}  // namespace simgpu
