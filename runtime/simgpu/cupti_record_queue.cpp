#include "runtime/simgpu/cupti_record_queue.h"

#include <cstring>
#include <thread>

#include "runtime/simgpu/faults.h"

namespace simgpu::cupti {
namespace {

thread_local bool in_delivery = false;  // a client that flushes when given a buffer

}  // namespace

size_t record_bytes(CUpti_ActivityKind kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return sizeof(CUpti_ActivityKernel10);
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return sizeof(CUpti_ActivityMemcpy6);
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return sizeof(CUpti_ActivityMemset4);
    case CUPTI_ACTIVITY_KIND_MEMORY2:
      return sizeof(CUpti_ActivityMemory4);
    case CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER:
      return sizeof(CUpti_ActivityUnifiedMemoryCounter3);
    case CUPTI_ACTIVITY_KIND_OVERHEAD:
      return sizeof(CUpti_ActivityOverhead3);
    default:
      return 0;
  }
}

RecordQueue& records() {
  static RecordQueue* const queue = new RecordQueue;
  return *queue;
}

void RecordQueue::register_client(CUpti_BuffersCallbackRequestFunc request,
                                  CUpti_BuffersCallbackCompleteFunc complete) {
  complete_ = complete;
  request_ = request;
  const std::lock_guard lock(full_mutex_);
  if (worker_started_) return;
  worker_started_ = true;
  std::thread(&RecordQueue::work, this).detach();
}

void RecordQueue::disable_all() {
  for (auto& kind : enabled_) kind = false;
}

bool RecordQueue::Buffer::has_room(size_t record_bytes) const {
  return data && bytes - used_bytes >= record_bytes &&
         (max_records == 0 || num_records < max_records);
}

void RecordQueue::append(const uint8_t* record, size_t bytes) {
  if (cupti_loses("records")) return;  // as an old CUPTI does on a newer GPU
  const std::lock_guard lock(current_mutex_);
  if (!current_.has_room(bytes)) {
    retire_current();
    current_ = request_buffer();
  }
  if (!current_.has_room(bytes)) {
    ++num_dropped_;
    return;
  }
  std::memcpy(current_.data + current_.used_bytes, record, bytes);
  current_.used_bytes += bytes;
  ++current_.num_records;
}

// Puts the current buffer into the line of full ones. Holds current_mutex_.
void RecordQueue::retire_current() {
  if (!current_.data) return;
  const std::lock_guard lock(full_mutex_);
  full_.push_back(current_);
  current_ = {};
  changed_.notify_all();
}

RecordQueue::Buffer RecordQueue::request_buffer() {
  Buffer buffer;
  if (const auto request = request_.load())
    request(&buffer.data, &buffer.bytes, &buffer.max_records);
  return buffer;
}

// Gives the oldest full buffer back to the client, without the lock. False: there is
// none.
bool RecordQueue::deliver_next(std::unique_lock<std::mutex>& lock) {
  if (full_.empty()) return false;
  const Buffer buffer = full_.front();
  full_.pop_front();
  ++num_delivering_;
  lock.unlock();
  in_delivery = true;
  complete_.load()(nullptr, 0, buffer.data, buffer.bytes, buffer.used_bytes);
  in_delivery = false;
  lock.lock();
  --num_delivering_;
  changed_.notify_all();
  return true;
}

void RecordQueue::flush() {
  if (!complete_ || in_delivery) return;
  {
    const std::lock_guard lock(current_mutex_);
    if (current_.num_records > 0) retire_current();
  }
  std::unique_lock lock(full_mutex_);
  while (deliver_next(lock)) {
  }
  changed_.wait(lock, [this] { return num_delivering_ == 0; });
}

void RecordQueue::work() {
  std::unique_lock lock(full_mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !full_.empty(); });
    deliver_next(lock);
  }
}

}  // namespace simgpu::cupti
