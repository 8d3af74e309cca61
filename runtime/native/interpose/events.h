// What interception offers. hooks_*.cpp call these and know no policy; memory/ and
// status/ do what has to be done.
#pragma once

#include <stddef.h>

#include <optional>

#include "runtime/native/interpose/driver_api.h"
#include "runtime/native/observer.h"
#include "runtime/native/status/status.h"

namespace transit::events {

// cuMemAlloc and cuMemFree are ours to answer; `caller` is code of who called.
CUresult on_mem_alloc(CUdeviceptr* address, size_t bytes, const void* caller);
CUresult on_mem_free(CUdeviceptr address);

// What the job may still allocate, of what it may have.
CUresult on_mem_get_info(size_t* free_bytes, size_t* total_bytes);

// The driver does the rest. This comes before it allocates memory of the GPU,
void before_alloc(size_t bytes);

// and these follow it: after an allocation that succeeded,
// before a free.
void on_alloc(TransitAllocationApi api, CUdeviceptr address, size_t bytes,
              const void* caller);
void on_free(CUdeviceptr address);
void on_map(CUdeviceptr address, size_t bytes, CUmemGenericAllocationHandle handle,
            const void* caller);
void on_unmap(CUdeviceptr address, size_t bytes);

// Bounds of the allocation at `address`, if it is one that a backend placed.
struct Extent {
  CUdeviceptr address;
  size_t bytes;
  CUdevice device;
};
std::optional<Extent> find_placed(CUdeviceptr address);

// One piece of work is about to be submitted.
inline void on_kernel_launch() { status::add(&StatusFile::kernel_launches); }
inline void on_graph_launch() { status::add(&StatusFile::graph_launches); }
inline void on_copy() { status::add(&StatusFile::copies); }
inline void on_set() { status::add(&StatusFile::sets); }

}  // namespace transit::events
