// Activity records on their way to the client: written into buffers it lends, given
// back full from a thread of our own, or as they are by a flush.
#pragma once

#include <cupti.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>

namespace simgpu::cupti {

// Bytes of a record of this kind, 0 for kinds the simulation never records.
size_t record_bytes(CUpti_ActivityKind kind);

class RecordQueue {
 public:
  void register_client(CUpti_BuffersCallbackRequestFunc request,
                       CUpti_BuffersCallbackCompleteFunc complete);

  void enable(CUpti_ActivityKind kind, bool on) { enabled_[kind] = on; }
  bool enabled(CUpti_ActivityKind kind) const { return enabled_[kind]; }
  void disable_all();

  // Copies a record, or drops and counts it when the client lends no buffer.
  template <typename Record>
  void append(const Record& record) {
    append(reinterpret_cast<const uint8_t*>(&record), sizeof record);
  }

  // Gives back every buffer that holds a record, on this thread.
  void flush();

  size_t take_num_dropped() { return num_dropped_.exchange(0); }

 private:
  struct Buffer {
    uint8_t* data = nullptr;
    size_t bytes = 0, used_bytes = 0;
    size_t num_records = 0, max_records = 0;  // max 0: as many as fit
    bool has_room(size_t record_bytes) const;
  };

  void append(const uint8_t* record, size_t bytes);
  void retire_current();
  Buffer request_buffer();
  bool deliver_next(std::unique_lock<std::mutex>& lock);
  void work();

  std::array<std::atomic<bool>, CUPTI_ACTIVITY_KIND_COUNT> enabled_{};
  std::atomic<CUpti_BuffersCallbackRequestFunc> request_{nullptr};
  std::atomic<CUpti_BuffersCallbackCompleteFunc> complete_{nullptr};
  std::atomic<size_t> num_dropped_{0};

  // Held while the client lends a buffer, never while it takes one back: it may do so
  // under a lock of its own.
  std::mutex current_mutex_;
  Buffer current_;

  std::mutex full_mutex_;
  std::condition_variable changed_;
  std::deque<Buffer> full_;
  int num_delivering_ = 0;
  bool worker_started_ = false;
};

// The process's queue; never destroyed, since driver threads may outlive main.
RecordQueue& records();

}  // namespace simgpu::cupti
