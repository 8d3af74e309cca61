// What the shim tells a recorder in the same process. C ABI, resolved by dlsym, so that
// the recorder and replay count allocations with the same code: an ordinal means the
// same allocation in both.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TRANSIT_OBSERVER_VERSION = 2 };

// Not the application's own allocation (a library keeps it): known, never moved.
enum { TRANSIT_NO_ORDINAL = -1 };

enum TransitAllocationApi {
  TRANSIT_API_MEM_ALLOC = 1,  // cuMemAlloc: the one the shim may move
  TRANSIT_API_MANAGED = 2,    // cuMemAllocManaged
  TRANSIT_API_ASYNC = 3,      // cuMemAllocAsync, cuMemAllocFromPoolAsync
  TRANSIT_API_PITCH = 4,      // cuMemAllocPitch
  TRANSIT_API_VMM = 5,        // cuMemMap by the job itself
  TRANSIT_API_HOST = 6,       // cuMemHostAlloc and friends: pinned host memory
  TRANSIT_API_AUDITED = 7,    // cuMemAlloc, served with managed memory for an audit
};

struct TransitAllocation {
  uint64_t address;
  uint64_t bytes;          // as asked for; what it occupies is this rounded up to 2 MiB
  uint32_t allocation_id;  // n-th allocation of this process, of any kind
  int32_t ordinal;     // n-th movable allocation on its device, or TRANSIT_NO_ORDINAL
  int32_t device;      // CUdevice
  uint32_t api;        // TransitAllocationApi
  const char* caller;  // file name of the calling module, valid during the call
};

struct TransitObserver {
  uint32_t version;  // TRANSIT_OBSERVER_VERSION
  // Called after the allocation succeeded and before its address is returned, and
  // before the memory is really freed. Never both at once for one address.
  void (*on_alloc)(const struct TransitAllocation*);
  void (*on_free)(uint64_t address, uint32_t allocation_id);
};

// Registers the one observer; allocations alive now are reported first. `observer` must
// live as long as the process. Returns 0, or -1 for another version.
typedef int (*TransitObserveFn)(const struct TransitObserver* observer);
// extern "C" int transit_observe(const struct TransitObserver*);

// Kernel launches, copies, sets and graph launches the hooks have seen, for a
// cross-check.
typedef uint64_t (*TransitLaunchesSeenFn)(void);
// extern "C" uint64_t transit_launches_seen(void);

// The driver's own function of that name, below the hooks, or null: what the recorder
// calls through it is no work of the job.
typedef void* (*TransitDriverFunctionFn)(const char* symbol);
// extern "C" void* transit_driver_function(const char* symbol);

#ifdef __cplusplus
}
#endif
