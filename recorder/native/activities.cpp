#include "recorder/native/activities.h"

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <thread>
#include <vector>

#include "recorder/native/checksum_kernel.h"

namespace transit {
namespace {

// CUPTI fills the newest struct it knows. The fields read here lie alike in all
// versions from CUDA 12.1 to 13.5: compared in their headers, and here as far as this
// one lets it be checked.
using Kernel = CUpti_ActivityKernel9;
using Copy = CUpti_ActivityMemcpy5;
using PeerCopy = CUpti_ActivityMemcpyPtoP4;
using Set = CUpti_ActivityMemset4;
using Memory = CUpti_ActivityMemory3;
using Uvm = CUpti_ActivityUnifiedMemoryCounter2;
using Overhead = CUpti_ActivityOverhead;

#define TRANSIT_SAME_PLACE(a, b, field) \
  static_assert(offsetof(a, field) == offsetof(b, field), #field " moved")
TRANSIT_SAME_PLACE(Kernel, CUpti_ActivityKernel10, start);
TRANSIT_SAME_PLACE(Kernel, CUpti_ActivityKernel10, correlationId);
TRANSIT_SAME_PLACE(Kernel, CUpti_ActivityKernel10, name);
TRANSIT_SAME_PLACE(Kernel, CUpti_ActivityKernel10, graphNodeId);
TRANSIT_SAME_PLACE(Kernel, CUpti_ActivityKernel10, graphId);
TRANSIT_SAME_PLACE(Copy, CUpti_ActivityMemcpy6, correlationId);
TRANSIT_SAME_PLACE(Copy, CUpti_ActivityMemcpy6, graphId);
TRANSIT_SAME_PLACE(Memory, CUpti_ActivityMemory4, timestamp);
TRANSIT_SAME_PLACE(Memory, CUpti_ActivityMemory4, deviceId);
TRANSIT_SAME_PLACE(Uvm, CUpti_ActivityUnifiedMemoryCounter3, dstId);
TRANSIT_SAME_PLACE(Uvm, CUpti_ActivityUnifiedMemoryCounter3, flags);
TRANSIT_SAME_PLACE(Overhead, CUpti_ActivityOverhead3, end);
#undef TRANSIT_SAME_PLACE

constexpr auto kSettlingPeriod = std::chrono::milliseconds(300);
constexpr auto kLongestSettling = std::chrono::seconds(20);
constexpr size_t kBufferBytes = size_t{4} << 20;
constexpr size_t kSmallestBufferBytes = size_t{64} << 10;
constexpr size_t kBufferAlignment = 64;
constexpr uint32_t kFirstVersionWithOverheadData = 22;  // of CUDA 12.4

// Never KIND_KERNEL: it serialises.
constexpr CUpti_ActivityKind kRequiredKinds[] = {
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
    CUPTI_ACTIVITY_KIND_MEMCPY2,           CUPTI_ACTIVITY_KIND_MEMSET,
    CUPTI_ACTIVITY_KIND_MEMORY2,           CUPTI_ACTIVITY_KIND_OVERHEAD,
};

// CUPTI passes no user data with a buffer.
Activities* g_activities = nullptr;

template <typename Activity>
ActivityRecord timed(const Activity& from, LaunchKind kind) {
  ActivityRecord record{};
  record.start_ns = from.start;
  record.end_ns = from.end;
  record.graph_node_id = from.graphNodeId;
  record.correlation_id = from.correlationId;
  record.kind = static_cast<uint32_t>(kind);
  record.name_id = kNoName;
  record.device = from.deviceId;
  record.stream_id = from.streamId;
  record.graph_id = from.graphId;
  return record;
}

template <typename Activity>
ActivityRecord copy_record(const Activity& from) {
  ActivityRecord record = timed(from, LaunchKind::kCopy);
  record.bytes = from.bytes;
  record.copy_kind = from.copyKind;
  return record;
}

template <typename Activity>
const Activity& as(const CUpti_Activity* activity) {
  return *reinterpret_cast<const Activity*>(activity);
}

}  // namespace

std::string Activities::enable() {
  const std::lock_guard<std::mutex> lock(mutex_);
  g_activities = this;
  CUptiResult result =
      cupti_.cuptiActivityRegisterCallbacks(&give_buffer, &take_buffer);
  for (CUpti_ActivityKind kind : kRequiredKinds) {
    if (result == CUPTI_SUCCESS) result = cupti_.cuptiActivityEnable(kind);
  }
  if (result != CUPTI_SUCCESS) {
    for (CUpti_ActivityKind kind : kRequiredKinds) cupti_.cuptiActivityDisable(kind);
    return "CUPTI cannot trace the GPU: " + cupti_.describe(result);
  }
  is_enabled_ = true;
  enable_unified_memory_counters();
  return {};
}

void Activities::note_managed_memory(UnifiedMemory wanted) {
  const std::lock_guard<std::mutex> lock(mutex_);
  has_managed_memory_ = true;
  wanted_ = wanted;
  enable_unified_memory_counters();
}

void Activities::enable_unified_memory_counters() {
  if (!is_enabled_ || !has_managed_memory_ || counts_unified_memory_) return;
  counts_unified_memory_ = true;
  std::vector<CUpti_ActivityUnifiedMemoryCounterConfig> configs;
  const auto count = [&](CUpti_ActivityUnifiedMemoryCounterKind kind) {
    // The device's number is ignored: every device.
    configs.push_back(
        {CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_SCOPE_PROCESS_SINGLE_DEVICE, kind, 0,
         1});
  };
  if (wanted_ == UnifiedMemory::kFaults) {
    count(CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_GPU_PAGE_FAULT);
  } else {
    for (int kind = 1; kind < CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_COUNT;
         ++kind) {
      count(static_cast<CUpti_ActivityUnifiedMemoryCounterKind>(kind));
    }
  }
  CUptiResult result = cupti_.cuptiActivityConfigureUnifiedMemoryCounter(
      configs.data(), static_cast<uint32_t>(configs.size()));
  if (result == CUPTI_SUCCESS) {
    result = cupti_.cuptiActivityEnable(CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER);
  }
  errors_.check("recording of managed memory's migrations and faults", result);
}

void Activities::ignore_memory(uint64_t address) {
  const std::lock_guard<std::mutex> lock(own_mutex_);
  own_addresses_.insert(address);
}

void Activities::ignore_correlation(uint32_t correlation_id) {
  const std::lock_guard<std::mutex> lock(own_mutex_);
  own_correlations_.insert(correlation_id);
}

void Activities::flush() {
  errors_.check("flush of activity records", cupti_.cuptiActivityFlushAll(0));
  errors_.add("request of a buffer", "out of memory", num_refused_.exchange(0));
  errors_.add("decoding of a buffer", "out of memory", num_abandoned_.exchange(0));
}

void Activities::settle() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!counts_unified_memory_) return;
  }
  const auto deadline = std::chrono::steady_clock::now() + kLongestSettling;
  uint64_t num_before = 0;
  do {
    num_before = num_unified_memory_records_;
    std::this_thread::sleep_for(kSettlingPeriod);
    flush();
  } while (num_unified_memory_records_ != num_before &&
           std::chrono::steady_clock::now() < deadline);
}

void Activities::disable() {
  const std::lock_guard<std::mutex> lock(mutex_);
  is_enabled_ = false;
  for (CUpti_ActivityKind kind : kRequiredKinds) cupti_.cuptiActivityDisable(kind);
  if (!counts_unified_memory_) return;
  cupti_.cuptiActivityDisable(CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER);
  flush();  // it may have held some until now
}

// Rather a small buffer than none: without one CUPTI drops the record, and before CUDA
// 12.9 it may crash.
void Activities::give_buffer(uint8_t** buffer, size_t* bytes, size_t* max_records) {
  *max_records = 0;  // as many as fit
  *buffer = nullptr;
  for (*bytes = kBufferBytes; *bytes >= kSmallestBufferBytes; *bytes /= 4) {
    *buffer = static_cast<uint8_t*>(std::aligned_alloc(kBufferAlignment, *bytes));
    if (*buffer != nullptr) return;
  }
  *bytes = 0;
  ++g_activities->num_refused_;
}

void Activities::take_buffer(CUcontext context, uint32_t stream_id, uint8_t* buffer,
                             size_t, size_t valid_bytes) {
  try {
    g_activities->decode(context, stream_id, buffer, valid_bytes);
  } catch (...) {  // out of memory, and CUPTI's frames are no place for that
    ++g_activities->num_abandoned_;
  }
  std::free(buffer);
}

void Activities::decode(CUcontext context, uint32_t stream_id, uint8_t* buffer,
                        size_t valid_bytes) {
  CUpti_Activity* activity = nullptr;
  CUptiResult result = CUPTI_ERROR_MAX_LIMIT_REACHED;
  while (valid_bytes > 0 && (result = cupti_.cuptiActivityGetNextRecord(
                                 buffer, valid_bytes, &activity)) == CUPTI_SUCCESS) {
    decode(activity);
  }
  if (result != CUPTI_ERROR_MAX_LIMIT_REACHED) {  // the end of the buffer
    errors_.check("decoding of a buffer", result);
  }
  size_t num_dropped = 0;
  if (cupti_.cuptiActivityGetNumDroppedRecords(context, stream_id, &num_dropped) ==
      CUPTI_SUCCESS) {
    num_dropped_.fetch_add(static_cast<uint32_t>(num_dropped));
  }
}

// Our kernels by name: CUPTI does not report calls that are made in its callbacks.
bool Activities::is_own(const CUpti_Activity* activity) {
  const std::lock_guard<std::mutex> lock(own_mutex_);
  switch (activity->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const char* name = as<Kernel>(activity).name;
      return name != nullptr && std::strcmp(name, kChecksumKernel) == 0;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return own_correlations_.count(as<Copy>(activity).correlationId) != 0;
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return own_correlations_.count(as<Set>(activity).correlationId) != 0;
    case CUPTI_ACTIVITY_KIND_MEMORY2:
      return own_addresses_.count(as<Memory>(activity).address) != 0;
    default:
      return false;
  }
}

void Activities::decode(const CUpti_Activity* activity) {
  if (is_own(activity)) return;
  switch (activity->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const auto& kernel = as<Kernel>(activity);
      ActivityRecord record = timed(kernel, LaunchKind::kKernel);
      if (kernel.name != nullptr) record.name_id = spool_.name_id(kernel.name);
      return spool_.activities.append(record);
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return spool_.activities.append(copy_record(as<Copy>(activity)));
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
      return spool_.activities.append(copy_record(as<PeerCopy>(activity)));
    case CUPTI_ACTIVITY_KIND_MEMSET: {
      ActivityRecord record = timed(as<Set>(activity), LaunchKind::kSet);
      record.bytes = as<Set>(activity).bytes;
      return spool_.activities.append(record);
    }
    case CUPTI_ACTIVITY_KIND_MEMORY2: {
      const auto& m = as<Memory>(activity);
      return spool_.memory.append({m.timestamp, m.address, m.bytes,
                                   static_cast<uint32_t>(m.memoryOperationType),
                                   static_cast<uint32_t>(m.memoryKind), m.deviceId,
                                   m.correlationId});
    }
    case CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER: {
      ++num_unified_memory_records_;
      const auto& u = as<Uvm>(activity);
      return spool_.uvm.append({u.start, u.end, u.address, u.value,
                                static_cast<uint32_t>(u.counterKind), u.flags, u.srcId,
                                u.dstId});
    }
    case CUPTI_ACTIVITY_KIND_OVERHEAD: {
      const auto& o = as<Overhead>(activity);
      if (cupti_.version >= kFirstVersionWithOverheadData) {
        std::free(as<CUpti_ActivityOverhead3>(activity).overheadData);
      }
      return spool_.overhead.append(
          {o.start, o.end, static_cast<uint32_t>(o.overheadKind), 0});
    }
    default:
      return;
  }
}

}  // namespace transit
