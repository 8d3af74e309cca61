// What the GPU did, from CUPTI's activity buffers to the spool.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "recorder/native/cupti_api.h"
#include "recorder/native/cupti_errors.h"
#include "recorder/native/spool.h"

namespace transit {

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

  // The job has managed memory: only then are unified-memory counters on. Without any,
  // CUPTI 13.0 takes two seconds to switch them off.
  void note_managed_memory();

  // Records CUPTI lost since the last call.
  uint32_t take_dropped() { return num_dropped_.exchange(0); }

 private:
  void enable_unified_memory_counters();  // once, when enabled and needed
  void decode(CUcontext context, uint32_t stream_id, uint8_t* buffer,
              size_t valid_bytes);
  void decode(const CUpti_Activity* activity);

  static void CUPTIAPI give_buffer(uint8_t** buffer, size_t* bytes,
                                   size_t* max_records);
  static void CUPTIAPI take_buffer(CUcontext context, uint32_t stream_id,
                                   uint8_t* buffer, size_t bytes, size_t valid_bytes);

  const CuptiApi& cupti_;
  Spool& spool_;
  CuptiErrors errors_;
  std::atomic<uint32_t> num_dropped_{0};
  std::atomic<uint32_t> num_refused_{0};    // buffers CUPTI asked for and did not get
  std::atomic<uint32_t> num_abandoned_{0};  // buffers not decoded to their end

  std::mutex mutex_;
  bool is_enabled_ = false;
  bool has_managed_memory_ = false;
  bool counts_unified_memory_ = false;
};

}  // namespace transit
