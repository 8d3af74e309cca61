// One piece of work that the job is about to submit, as its call says it.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/native/interpose/driver_api.h"

namespace transit {

struct Work {
  // As in traces/FORMAT.md.
  enum class Kind : uint32_t { kKernel = 1, kCopy = 2, kSet = 3, kGraph = 4 };

  struct Range {
    CUdeviceptr address;  // of the host's memory, too
    size_t bytes;
  };

  Kind kind;
  const char* symbol = nullptr;  // of the call, as libcuda exports it
  CUstream stream = nullptr;
  bool is_per_thread = false;  // stream 0 is CU_STREAM_PER_THREAD, else the legacy one
  // The host may wait in the call until the work is done. It need not: sets and copies
  // on the device may go on when the call returns.
  bool is_blocking = false;

  // Of kernels.
  CUfunction function = nullptr;
  uint32_t grid[3] = {};
  uint32_t block[3] = {};
  void** params = nullptr;
  void** extra = nullptr;

  // Of copies and sets; arrays have no address. Of boxes from the first byte to the
  // last, the gaps between rows included.
  Range ranges[2] = {};
  uint32_t num_ranges = 0;
  bool has_more_ranges = false;  // of batches none are listed
};

inline CUstream stream_of(const Work& work) {
  return work.stream == nullptr && work.is_per_thread ? CU_STREAM_PER_THREAD
                                                      : work.stream;
}

}  // namespace transit
