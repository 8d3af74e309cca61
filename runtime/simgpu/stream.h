// A stream is a queue and a thread that works it off, started at its first task.
#pragma once

#include <cuda.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace simgpu {

struct Capture;
struct Context;
struct Node;
class Stream;

using StreamRef = std::shared_ptr<Stream>;
using Task = std::function<void(Stream&)>;

struct Span {
  uint64_t start_ns, end_ns;
};

class Stream : public std::enable_shared_from_this<Stream> {
 public:
  Stream(Context& context, uint32_t id, unsigned flags, int priority);

  // Appends a task; returns its number, for wait(). Only Context::submit calls it,
  // which knows what the default stream orders.
  uint64_t push(Task task);
  void wait(uint64_t number);
  void drain();
  bool idle() const;
  uint64_t submitted() const;
  // No more tasks; the thread ends with the last one.
  void close();
  bool closed() const;

  // The modelled time of something on this stream; only its own thread calls these.
  Span occupy(uint64_t submitted_ns, uint64_t duration_ns);
  void occupied_until(uint64_t end_ns);
  uint64_t last_end_ns() const { return last_end_ns_; }

  CUstream handle() { return reinterpret_cast<CUstream>(this); }
  bool blocking() const { return !(flags & CU_STREAM_NON_BLOCKING); }

  Context& context;
  const uint32_t id;
  const unsigned flags;
  const int priority;

  // While the stream records instead of running; guarded by the capture lock.
  std::shared_ptr<Capture> capture;
  std::vector<Node*> capture_tail;

 private:
  void work();
  void run(const Task& task);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  uint64_t submitted_ = 0;
  uint64_t completed_ = 0;
  bool started_ = false;
  bool closed_ = false;
  std::atomic<uint64_t> last_end_ns_{0};
};

// Set once, with a time.
class Signal {
 public:
  void set(uint64_t time_ns);
  uint64_t wait();
  bool is_set() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool set_ = false;
  uint64_t time_ns_ = 0;
};

// The stream a handle means to the call in progress.
StreamRef find_stream(CUstream handle);

}  // namespace simgpu
