// What the GPU did, from CUPTI's activity buffers to the spool.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <unordered_set>

#include "recorder/native/cupti_api.h"
#include "recorder/native/cupti_errors.h"
#include "recorder/native/spool.h"

namespace transit {

// An audit wants faults alone: the driver's queue has room for some thousand records,
// and drops what it has no room for without telling. Migrations would fill it.
enum class UnifiedMemory { kAll, kFaults };

class Activities {
 public:
  Activities(const CuptiApi& cupti, Spool& spool)
      : cupti_(cupti), spool_(spool), errors_(cupti, spool) {}

  // From then on CUPTI fills buffers. Needs a context. Returns what went wrong, empty
  // if nothing.
  std::string enable();
  void disable();

  // Takes what CUPTI has.
  void flush();

  // Migrations and faults come late: the driver queues them, and CUPTI fetches them
  // when it gets to it. Takes them until none has come for a while.
  void settle();

  // The job has managed memory: only then are unified-memory counters on. Without any,
  // CUPTI 13.0 takes two seconds to switch them off.
  void note_managed_memory(UnifiedMemory wanted);

  // The recorder's own memory, copies and sets are not the job's.
  void ignore_memory(uint64_t address);
  void ignore_correlation(uint32_t correlation_id);

  // Records CUPTI lost since the last call.
  uint32_t take_dropped() { return num_dropped_.exchange(0); }

 private:
  void enable_unified_memory_counters();  // once, when enabled and needed
  void decode(CUcontext context, uint32_t stream_id, uint8_t* buffer,
              size_t valid_bytes);
  void decode(const CUpti_Activity* activity);
  bool is_own(const CUpti_Activity* activity);

  static void CUPTIAPI give_buffer(uint8_t** buffer, size_t* bytes,
                                   size_t* max_records);
  static void CUPTIAPI take_buffer(CUcontext context, uint32_t stream_id,
                                   uint8_t* buffer, size_t bytes, size_t valid_bytes);

  const CuptiApi& cupti_;
  Spool& spool_;
  CuptiErrors errors_;
  std::atomic<uint32_t> num_dropped_{0};
  std::atomic<uint64_t> num_unified_memory_records_{0};
  std::atomic<uint32_t> num_refused_{0};    // buffers CUPTI asked for and did not get
  std::atomic<uint32_t> num_abandoned_{0};  // buffers not decoded to their end

  std::mutex mutex_;
  bool is_enabled_ = false;
  bool has_managed_memory_ = false;
  UnifiedMemory wanted_ = UnifiedMemory::kAll;
  bool counts_unified_memory_ = false;

  std::mutex own_mutex_;  // guards these
  std::unordered_set<uint64_t> own_addresses_;
  std::unordered_set<uint32_t> own_correlations_;
};

}  // namespace transit
