// The status file: one per process, mapped shared, so that the launcher can read it
// live and after a kill -9. Counters are written with relaxed atomics. Mirrored by a
// NumPy dtype in runtime/status.py. Created at the process's first use of CUDA: a
// process without CUDA leaves nothing.
#pragma once

#include <stdint.h>

namespace transit {

constexpr char kStatusMagic[8] = {'T', 'R', 'N', 'S', 'S', 'T', 'A', 'T'};
constexpr uint32_t kStatusVersion = 7;
constexpr uint32_t kNumLapTimes = 32;

enum class ShimState : uint32_t {
  kStarting = 0,
  kObserving = 1,    // no plan: allocations pass through and are counted
  kReplaying = 2,    // the plan is on
  kPassThrough = 3,  // something failed; `message` says what
  kPaging = 4,       // no plan: memory comes and goes on demand, within a budget
};

enum class BackendKind : uint32_t { kNone = 0, kVmm = 1, kUvm = 2 };

struct StatusFile {
  char magic[8];
  uint32_t version;
  uint32_t file_bytes;  // sizeof(StatusFile)
  uint32_t pid;
  uint32_t rank;
  uint32_t state;    // ShimState
  uint32_t backend;  // BackendKind

  // Movable allocations of the application.
  uint64_t allocations_seen;
  uint64_t allocations_matched;    // ordinal and size as planned
  uint64_t allocations_unmatched;  // not as planned: placed resident
  uint64_t allocations_passed;     // by libraries or other APIs: left to the driver
  uint64_t frees_seen;

  // Placed now, and the most there ever was: rounded up to 2 MiB, as both backends
  // place; passed as asked for, since the driver packs small allocations into one such
  // piece.
  uint64_t resident_bytes;
  uint64_t resident_peak_bytes;
  uint64_t zero_copy_bytes;
  uint64_t zero_copy_peak_bytes;
  uint64_t passed_bytes;
  uint64_t passed_peak_bytes;
  uint64_t spare_bytes;  // of the GPU, that windows or paging keep for what comes next
  uint64_t gpu_bytes;    // resident, passed and spare, on all GPUs of the process
  uint64_t gpu_peak_bytes;

  // What one GPU may have of these (0: as much as there is), how often more was added
  // than that, and the most that was too much.
  uint64_t budget_bytes;
  uint64_t budget_excesses;
  uint64_t budget_excess_peak_bytes;

  // Host memory behind zero-copy and windowed memory, what the job's processes on this
  // machine may have of it together (0: as much as there is), and how many allocations
  // were refused for it.
  uint64_t host_bytes;
  uint64_t host_peak_bytes;
  uint64_t host_limit_bytes;
  uint64_t host_refusals;

  // The GPU of the first allocation, just before it: what it has, and what was taken by
  // contexts, their code, and other processes.
  uint64_t card_bytes;
  uint64_t card_taken_bytes;

  // Work submitted, as the hooks saw it.
  uint64_t kernel_launches;
  uint64_t graph_launches;
  uint64_t copies;
  uint64_t sets;

  // Windows: memory that comes to the GPU and goes (windows/transfers.h).
  uint64_t windowed_bytes;  // at home in host memory; on the GPU they are resident too
  uint64_t windowed_peak_bytes;
  uint64_t h2d_bytes;
  uint64_t d2h_bytes;
  uint64_t gates;               // times that a stream was told to wait for a chunk
  uint64_t loads_without_room;  // chunks that stayed at home when they were needed
  uint64_t transfer_failures;

  // Where the job is in the plan's iteration (windows/aligner.h).
  uint64_t launches_planned;
  uint64_t launches_inserted;
  uint64_t launches_skipped;
  uint64_t launches_elsewhere;  // planned, on other addresses
  uint64_t launches_unlocked;   // submitted while the job was not in the iteration
  uint64_t locks;
  uint64_t unlocked_copied_bytes;  // either way, of h2d and d2h, at such times

  // Laps around it on the GPU, each from before the first launch to before the next
  // first one. What was not followed all the way does not count.
  uint64_t steps_per_lap;
  uint64_t laps;
  uint64_t held_back_ns;          // that the job's threads waited for chunks
  uint64_t lap_ns[kNumLapTimes];  // of the last ones, the n-th at n modulo their number

  uint64_t placement_failures;  // a placement that could not be enacted
  char message[256];            // first failure, in words; empty if none
};

static_assert(sizeof(StatusFile) == 32 + (45 + kNumLapTimes) * 8 + 256);

}  // namespace transit
