// The flat plan: what `transit replay` lowers one rank of plan.json to, for the shim to
// mmap. Little-endian; mirrored by NumPy dtypes in runtime/flat_plan.py; a change of
// layout is a new version. File: header, allocations (sorted by device, ordinal),
// ranges, windows (sorted by range, first), launches, addresses, kernels (sorted by
// signature), words.
#pragma once

#include <stdint.h>

namespace transit {

constexpr char kFlatPlanMagic[8] = {'T', 'R', 'N', 'S', 'P', 'L', 'A', 'N'};
constexpr uint32_t kFlatPlanVersion = 5;

enum class Placement : uint32_t { kResident = 0, kZeroCopy = 1, kWindowed = 2 };
inline constexpr uint32_t kNumPlacements = 3;

struct FlatPlanHeader {
  char magic[8];
  uint32_t version;
  uint32_t header_bytes;  // sizeof(FlatPlanHeader)
  uint32_t rank;
  uint32_t num_allocations;
  uint32_t num_ranges;
  uint32_t num_windows;
  uint32_t num_launches;
  uint32_t num_addresses;
  uint32_t num_kernels;
  uint32_t num_words;
  uint32_t num_steps;  // of the job, in the iteration
  uint32_t reserved;
  uint64_t gpu_memory_bytes;  // the budget
  uint64_t file_bytes;        // whole file; a shorter file is truncated
};

// For FlatAllocation::address_offset: anywhere will do.
constexpr uint64_t kNoAddress = UINT64_MAX;

struct FlatAllocation {
  int32_t device;
  uint32_t ordinal;
  uint64_t bytes;           // as the job asked for when it was recorded
  uint64_t address_offset;  // where it lay then, from the device's lowest address
  uint32_t first_range;     // index into the ranges
  uint32_t num_ranges;
};

// Ranges of one allocation are sorted, do not overlap, are multiples of 2 MiB, and
// cover bytes rounded up to 2 MiB.
struct FlatRange {
  uint64_t offset;
  uint64_t bytes;
  uint32_t placement;  // Placement
  uint32_t reserved;
};

enum WindowFlags : uint32_t { kLoads = 1, kWritesBack = 2 };

// For FlatWindow::home: it is not used there.
constexpr uint32_t kNever = UINT32_MAX;

// A time on the GPU of a windowed range: from launch `first` to `last` of the
// iteration, which goes around. It is loaded from `issue` on, and what it holds not
// written after `written`. At `home`, before the next window, it is first used in host
// memory.
struct FlatWindow {
  uint32_t range;  // index into the ranges
  uint32_t issue, first, last, written;
  uint32_t flags;  // WindowFlags
  uint32_t home;   // or kNever
  uint32_t reserved;
};

// For FlatLaunch::addresses: whatever it names, as graphs do.
constexpr uint64_t kAnyAddresses = UINT64_MAX;

// A submission of the iteration.
struct FlatLaunch {
  uint64_t signature;  // as traces/FORMAT.md defines it; of a graph without its nodes
  uint64_t addresses;  // hash of the set it names: runtime/native/windows/
  uint32_t first_address;  // which those are: index into the addresses
  uint32_t num_addresses;
};

// Where in the parameters of launches with this signature addresses were found, in
// bytes and rising: 32-bit words of the file.
struct FlatKernel {
  uint64_t signature;
  uint32_t first_word;  // index into the words
  uint32_t num_words;
};

static_assert(sizeof(FlatPlanHeader) == 72);
static_assert(sizeof(FlatAllocation) == 32);
static_assert(sizeof(FlatRange) == 24);
static_assert(sizeof(FlatWindow) == 32);
static_assert(sizeof(FlatLaunch) == 24);
static_assert(sizeof(FlatKernel) == 16);

}  // namespace transit
