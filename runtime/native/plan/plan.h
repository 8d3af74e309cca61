// A flat plan (flat_plan.h), mapped and checked as a whole before anything is believed.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <string>

#include "runtime/native/flat_plan.h"

namespace transit {

constexpr uint64_t kPieceBytes = 2 << 20;

constexpr uint64_t round_up_to_piece(uint64_t bytes) {
  return (bytes + kPieceBytes - 1) & ~(kPieceBytes - 1);
}

inline bool is_windowed(const FlatRange& range) {
  return range.placement == static_cast<uint32_t>(Placement::kWindowed);
}

// From `first` to `last` of the cycle of launches, both inside.
inline bool is_between(uint32_t first, uint32_t position, uint32_t last) {
  return first <= last ? first <= position && position <= last
                       : position >= first || position <= last;
}

// Ranges of one placement each, from 0 to the end of an allocation.
struct Ranges {
  const FlatRange* first;
  uint32_t count;

  const FlatRange* begin() const { return first; }
  const FlatRange* end() const { return first + count; }
  uint64_t bytes(Placement placement) const;

  // That host memory is behind, whether they are used there or not.
  uint64_t host_bytes() const {
    return bytes(Placement::kZeroCopy) + bytes(Placement::kWindowed);
  }
};

template <typename T>
struct Entries {
  const T* first;
  uint32_t count;

  const T* begin() const { return first; }
  const T* end() const { return first + count; }
};

class Plan {
 public:
  // Null if `path` is not a plan for `rank`; then `error` says why. Never unmapped.
  static const Plan* load(const std::string& path, uint32_t rank, std::string* error);

  Entries<FlatAllocation> allocations() const {
    return {allocations_, header_->num_allocations};
  }

  // Null if the plan does not know this allocation.
  const FlatAllocation* find(int32_t device, uint32_t ordinal) const;

  // From the lowest address recorded on `device` to the end of the highest allocation.
  uint64_t address_span_bytes(int32_t device) const;

  Ranges ranges_of(const FlatAllocation& allocation) const {
    return {ranges_ + allocation.first_range, allocation.num_ranges};
  }

  Entries<FlatWindow> windows() const { return {windows_, header_->num_windows}; }

  // Those of a range lie together.
  Entries<FlatWindow> windows_of(const FlatRange& range) const;

  uint32_t num_ranges() const { return header_->num_ranges; }
  const FlatRange& range(uint32_t index) const { return ranges_[index]; }
  uint32_t index_of(const FlatRange& range) const {
    return static_cast<uint32_t>(&range - ranges_);
  }

  // The iteration, as the job submits it.
  Entries<FlatLaunch> launches() const { return {launches_, header_->num_launches}; }

  // How many of the job's steps that is.
  uint32_t num_steps() const { return header_->num_steps; }

  // What a launch names, from the lowest address on, rising.
  Entries<uint64_t> addresses_of(const FlatLaunch& launch) const {
    return {addresses_ + launch.first_address, launch.num_addresses};
  }

  // Where in the parameters of launches with this signature addresses were found. False
  // if that is not known.
  bool find_words(uint64_t signature, Entries<uint32_t>* words) const;

  // What of the budget is left when all that is resident on the device is there.
  uint64_t bytes_for_windows(int32_t device) const;

  uint64_t gpu_memory_bytes() const { return header_->gpu_memory_bytes; }

 private:
  Plan(const char* file);

  // Empty if all is well.
  std::string check() const;
  std::string check_ranges(const FlatAllocation& allocation) const;
  std::string check_windows() const;
  std::string check_launches() const;
  std::string check_kernels() const;

  const FlatPlanHeader* header_;
  const FlatAllocation* allocations_;
  const FlatRange* ranges_;
  const FlatWindow* windows_;
  const FlatLaunch* launches_;
  const uint64_t* addresses_;
  const FlatKernel* kernels_;
  const uint32_t* words_;
};

}  // namespace transit
