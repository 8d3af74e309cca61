// Collects what one launch touches.
#pragma once

#include <cstddef>
#include <cstdint>

#include "recorder/native/allocations.h"
#include "recorder/native/function_layouts.h"
#include "recorder/native/spool_format.h"
#include "recorder/native/tensor_maps.h"

namespace transit {

struct Accesses {
  AccessRecord* begin = nullptr;
  size_t count = 0;
};

// One per thread, used for one launch after the other: no memory is taken per launch.
class AccessCollector {
 public:
  // Both must outlive the collecting.
  void start(const LiveAllocations::View& live, const TensorMaps& tensor_maps);

  // A range that is known exactly. Nothing when it is in no live allocation.
  void add_range(uint64_t address, uint64_t bytes, Direction direction,
                 AccessSource source);

  // The tensor maps in a parameter block, and the words that point into live
  // allocations. All words, every time: one that never was a pointer may become one.
  // Each word for itself: replay believes those that were one.
  void scan_parameters(const FunctionLayout& layout, void** kernel_params);
  void scan_buffer(void** extra);

  // Valid until the next start().
  Accesses found() { return {accesses_, num_accesses_}; }
  uint32_t num_dropped() const { return num_dropped_; }

 private:
  // A parameter block has at most 32764 bytes; longer batches of copies are counted as
  // dropped.
  static constexpr uint32_t kMaxAccesses = 4096;

  void scan_words(const void* bytes, uint32_t num_bytes, uint32_t param_offset);
  void add_parameter(uint64_t address, uint64_t bytes, AccessSource source,
                     uint32_t param_offset);
  AccessRecord* append();

  const LiveAllocations::View* live_;
  const TensorMaps* tensor_maps_;
  uint32_t num_accesses_;
  uint32_t num_dropped_;
  AccessRecord accesses_[kMaxAccesses];
};

}  // namespace transit
