// The spool: what the recorder leaves on disk while the job runs. One folder per
// process, one append-only file per record type: a header, then fixed-size
// little-endian records. The header's count is advanced after a record is complete, so
// a file is valid at every instant, also after kill -9. Mirrored by NumPy dtypes in
// recorder/spool.py.
#pragma once

#include <stdint.h>

namespace transit {

constexpr char kSpoolMagic[8] = {'T', 'R', 'N', 'S', 'P', 'O', 'O', 'L'};
constexpr uint32_t kSpoolVersion = 1;

struct SpoolHeader {
  char magic[8];
  uint32_t version;
  uint32_t header_bytes;  // sizeof(SpoolHeader)
  char record_type[16];   // file name without ".spool"
  uint32_t record_bytes;
  uint32_t pid;
  uint64_t num_records;  // complete records
  uint64_t num_dropped;  // records that could not be kept (disk full)
  uint64_t reserved;
};
static_assert(sizeof(SpoolHeader) == 64);

constexpr uint64_t kUnknownBytes = 0;
constexpr uint32_t kNoName = UINT32_MAX;

// process.spool: one record, at start.
struct ProcessRecord {
  uint32_t rank, local_rank, world_size, cupti_version, driver_version, device_count;
  uint64_t clock_realtime_ns, clock_monotonic_ns, clock_cupti_ns;  // one instant
};
static_assert(sizeof(ProcessRecord) == 48);

// device.spool: one record per device that got a context.
struct DeviceRecord {
  int32_t device;
  uint32_t compute_capability;  // major * 10 + minor
  uint64_t memory_bytes;
  uint32_t name_id, num_multiprocessors;
};
static_assert(sizeof(DeviceRecord) == 24);

enum class LaunchKind : uint32_t { kKernel = 1, kCopy = 2, kSet = 3, kGraph = 4 };

// launch.spool: one piece of GPU work, in the order the host submitted it.
struct LaunchRecord {
  uint64_t launch_id;  // from 0, dense; also the order
  uint64_t host_ns;    // CUPTI's clock, at the call
  uint64_t stream;     // CUstream as a number
  uint32_t correlation_id;
  uint32_t kind;     // LaunchKind
  uint32_t name_id;  // kernel (mangled) or API function
  int32_t device;
  uint32_t grid[3], block[3];
};
static_assert(sizeof(LaunchRecord) == 64);

enum class Direction : uint32_t { kUnknown = 0, kRead = 1, kWrite = 2, kBoth = 3 };
enum class AccessSource : uint32_t {
  kParameter = 1,
  kCopy = 2,
  kSet = 3,
  kTensorMap = 4,
};

// access.spool: launch x place in an allocation.
struct AccessRecord {
  uint64_t launch_id;
  uint64_t address;
  uint64_t bytes;  // kUnknownBytes when only the start is known
  uint32_t allocation_id;
  uint32_t direction;     // Direction
  uint32_t source;        // AccessSource
  uint32_t param_offset;  // byte in the parameter block, for kParameter, kTensorMap
};
static_assert(sizeof(AccessRecord) == 40);

// graph_node.spool: the nodes that touch memory, once for each state an executable
// graph was launched in.
struct GraphNodeRecord {
  uint64_t node_id;      // CUPTI's, as activities name it; 0: not known
  uint32_t graph, node;  // the state, counted from 1; the node's place in the graph
  uint32_t kind;         // LaunchKind
  uint32_t name_id;      // kernel (mangled) or kind of node
  uint32_t grid[3], block[3];
};
static_assert(sizeof(GraphNodeRecord) == 48);

// graph_access.spool: AccessRecords, with the node's key for a launch.
constexpr uint64_t graph_node_key(uint32_t graph, uint32_t node) {
  return uint64_t{graph} << 32u | node;
}

// graph_launch.spool: which graph a launch of kind kGraph runs, in which state.
struct GraphLaunchRecord {
  uint64_t launch_id;
  uint32_t graph, reserved;
};
static_assert(sizeof(GraphLaunchRecord) == 16);

// allocation.spool and free.spool: as runtime/native/observer.h reports them.
struct AllocationRecord {
  uint64_t address, bytes;
  uint64_t host_ns;
  uint64_t launch_id;  // of the next launch
  uint32_t allocation_id;
  int32_t ordinal, device;
  uint32_t api, caller_name_id, reserved;
};
static_assert(sizeof(AllocationRecord) == 56);

struct FreeRecord {
  uint64_t host_ns;
  uint64_t launch_id;  // of the next launch
  uint32_t allocation_id, reserved;
};
static_assert(sizeof(FreeRecord) == 24);

// activity.spool: what the GPU did, from CUPTI's activity records.
struct ActivityRecord {
  uint64_t start_ns, end_ns;  // 0, 0: CUPTI lost the times
  uint64_t bytes;             // copies and sets
  uint64_t graph_node_id;
  uint32_t correlation_id;
  uint32_t kind;  // LaunchKind
  uint32_t name_id;
  uint32_t device, stream_id, graph_id;
  uint32_t copy_kind;  // CUpti_ActivityMemcpyKind, for copies
  uint32_t reserved;
};
static_assert(sizeof(ActivityRecord) == 64);

// uvm.spool: CUpti_ActivityUnifiedMemoryCounter3 as it came.
struct UvmRecord {
  uint64_t start_ns, end_ns, address, value;
  uint32_t counter_kind, flags, src_id, dst_id;
};
static_assert(sizeof(UvmRecord) == 48);

// memory.spool: CUPTI's own view of allocations (MEMORY2), to check the shim's against.
struct MemoryRecord {
  uint64_t time_ns, address, bytes;
  uint32_t operation, memory_kind, device, correlation_id;
};
static_assert(sizeof(MemoryRecord) == 40);

enum class MarkKind : uint32_t {
  kRecordingStarted = 1,
  kIterationEnd = 2,  // an optimizer step returned
  kRecordingStopped = 3,
  kRecordingComplete = 4,  // all of it is in the spool, the framework's history too
  kPurposeChanged = 5,     // what the iterations from here on are recorded for
};

// What an iteration is recorded for. Times count only if it is kTiming: the others are
// slowed down.
enum class Purpose : uint32_t { kTiming = 0, kDirection = 1, kAudit = 2 };

// mark.spool
struct MarkRecord {
  uint64_t host_ns;
  uint64_t launch_id;  // of the next launch
  uint32_t kind;       // MarkKind
  uint32_t value;      // kIterationEnd: how many steps the job has made;
                       // kPurposeChanged: Purpose
};
static_assert(sizeof(MarkRecord) == 24);

enum class BlockAction : uint32_t { kAlloc = 1, kFree = 2, kAlive = 3 };

// block.spool: the framework allocator's history, pushed by the torch hook.
struct BlockRecord {
  uint64_t host_ns;  // CUPTI's clock
  uint64_t address, bytes;
  uint32_t action;  // BlockAction
  int32_t device;
};
static_assert(sizeof(BlockRecord) == 32);

// history.spool: from when to when the allocator's history of a device is whole. What
// block.spool has of other times lacks the rest of its life.
struct HistoryRecord {
  uint64_t begin_ns, end_ns;  // CUPTI's clock
  int32_t device;
  uint32_t reserved;
};
static_assert(sizeof(HistoryRecord) == 24);

// label.spool: what the framework kept at an address at a time.
struct LabelRecord {
  uint64_t host_ns, address;
  uint32_t name_id, reserved;
};
static_assert(sizeof(LabelRecord) == 24);

// framework.spool: what the job trains with, as its hook said.
struct FrameworkRecord {
  uint32_t name_id;     // "torch"
  uint32_t version_id;  // a name, too: "2.9.0+cu130"
};
static_assert(sizeof(FrameworkRecord) == 8);

// overhead.spool: CUPTI's OVERHEAD activities, and ours (kind 0: time in the
// callbacks).
struct OverheadRecord {
  uint64_t start_ns, end_ns;
  uint32_t kind, dropped_records;
};
static_assert(sizeof(OverheadRecord) == 24);

// error.spool: CUPTI calls that failed while recording.
struct ErrorRecord {
  uint64_t host_ns;
  uint64_t count;
  uint32_t what_name_id, reason_name_id;
};
static_assert(sizeof(ErrorRecord) == 24);

// sample.spool: one instant, at the start of the recording, now and then, and at its
// end. The two clocks tell when the first was set; the counts are to agree.
struct SampleRecord {
  uint64_t realtime_ns, monotonic_ns;
  uint64_t hooked_launches;    // seen by the shim, over the life of the process
  uint64_t recorded_launches;  // the next launch id
  uint64_t captured_launches;  // not recorded, since they only went into a graph
};
static_assert(sizeof(SampleRecord) == 40);

// checksum.spool: a piece of what a launch names, hashed right before and right after
// it. Changed by the launch, or by other work at the same time.
struct ChecksumRecord {
  uint64_t launch_id, address, bytes;
  uint32_t is_changed, reserved;
};
static_assert(sizeof(ChecksumRecord) == 32);

// name.spool: text in pieces; a name's pieces are consecutive, its last one is not full
// or is followed by another name.
constexpr uint32_t kNamePieceBytes = 56;
struct NameRecord {
  uint32_t name_id;
  uint16_t piece, length;
  char text[kNamePieceBytes];
};
static_assert(sizeof(NameRecord) == 64);

}  // namespace transit
