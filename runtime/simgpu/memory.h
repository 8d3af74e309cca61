// Every range of addresses the driver knows, and how full the devices are. A device's
// memory is ordinary host memory, counted against the device's size.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "observer.h"

namespace simgpu {

struct Context;
struct Managed;
struct Physical;

constexpr size_t kPageBytes = size_t{2} << 20;

constexpr size_t round_up(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

enum class Kind { kDevice, kPool, kHost, kRegistered, kManaged, kVirtual };

struct Range {
  uintptr_t base = 0;
  size_t bytes = 0;
  Kind kind = Kind::kDevice;
  Context* context = nullptr;
  int device = 0;
  uint64_t buffer_id = 0;
  size_t charged_bytes = 0;            // of the device's memory
  std::shared_ptr<Managed> managed;    // kManaged
  bool on_host = false;                // and stays there
  std::shared_ptr<Physical> physical;  // kVirtual; dropped with the lock held
  int protection = 0;                  // kVirtual: PROT_*, set by cuMemSetAccess

  uintptr_t end() const { return base + bytes; }
};

// A piece of memory that work on a device reads, writes or both.
struct Access {
  uintptr_t address;
  size_t bytes;
  bool reads;
  bool writes;
};

// What accesses did beyond local memory, since the process started.
struct Counters {
  uint64_t link_read_bytes;  // read in place from host memory by kernels, copies, sets
  uint64_t link_written_bytes;  // written in place
  uint64_t fault_count;         // of GPU accesses to managed memory
  uint64_t migrated_in_bytes;   // managed pages that came to a device
  uint64_t migrated_out_bytes;  // and that left it
  uint64_t evicted_bytes;       // part of the above: pushed out by other memory
  uint64_t most_used_bytes;     // of a device, at once
};

// The lock of everything below; the functions say whether the caller holds it.
std::mutex& memory_mutex();

// With the lock held:
std::map<uintptr_t, Range>& ranges();
Range* find_range(uintptr_t address);  // the one that contains it, or null
Range& add_range(Range range);
size_t& used_bytes(int device);
Counters& counters();
// Counts bytes as used, evicting managed pages for them; false if that is not enough.
bool charge(int device, size_t bytes, std::vector<UvmActivity>& happened);

// Taking the lock:
// Throws ILLEGAL_ADDRESS unless the device may access all of it; faults managed pages
// in, and returns when the last of them came, 0 if none had to.
uint64_t touch(int device, const Access& access);
CUdeviceptr allocate_device(Context& context, size_t bytes, Kind kind);
void release(uintptr_t base, uint32_t correlation_id);
void release_memory_of(Context& context);
// A copy, without the physical memory, of the range that contains all the bytes.
Range range_of(CUdeviceptr address, size_t bytes);

void report(const std::vector<UvmActivity>& happened);
void report_memory(const Range& range, bool is_release, uint32_t correlation_id);

// Address space that belongs to nobody else; OUT_OF_MEMORY if there is none.
uintptr_t map_aligned(size_t bytes, size_t alignment, int protection);
size_t host_memory_bytes();

}  // namespace simgpu
