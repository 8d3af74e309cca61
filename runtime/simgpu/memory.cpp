#include "memory.h"

#include <cupti_activity.h>
#include <sys/mman.h>

#include "call.h"
#include "context.h"
#include "managed.h"
#include "process.h"
#include "vmm.h"

namespace simgpu {
namespace {

struct Memory {
  std::mutex mutex;
  std::map<uintptr_t, Range> ranges;
  std::map<int, size_t> used_bytes;
  Counters counters = {};
  uint64_t next_buffer_id = 1;
};

Memory& memory() {
  static auto* instance = new Memory;
  return *instance;
}

bool accessible(const Range& range, const Access& access) {
  if (range.kind != Kind::kVirtual) return true;
  const bool writable = range.protection == (PROT_READ | PROT_WRITE);
  return access.writes ? writable : range.protection != PROT_NONE;
}

void touch_part(int device, Range& range, const Access& part,
                std::vector<UvmActivity>& happened) {
  if (range.managed) {
    touch_managed(device, range, part, happened);
  } else if (range.on_host) {
    if (part.reads) counters().link_read_bytes += part.bytes;
    if (part.writes) counters().link_written_bytes += part.bytes;
  }
}

uint8_t memory_kind(const Range& range) {
  if (range.managed) return CUPTI_ACTIVITY_MEMORY_KIND_MANAGED;
  return range.on_host ? CUPTI_ACTIVITY_MEMORY_KIND_PINNED
                       : CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
}

// With the lock held: gives a range's memory back to the device and the system.
void forget(const Range& range) {
  if (range.managed) release_managed(range);
  used_bytes(range.device) -= range.charged_bytes;
  if (range.kind != Kind::kRegistered)
    munmap(reinterpret_cast<void*>(range.base), round_up(range.bytes, 4096));
}

}  // namespace

std::mutex& memory_mutex() { return memory().mutex; }
std::map<uintptr_t, Range>& ranges() { return memory().ranges; }
size_t& used_bytes(int device) { return memory().used_bytes[device]; }
Counters& counters() { return memory().counters; }

Range* find_range(uintptr_t address) {
  auto next = ranges().upper_bound(address);
  if (next == ranges().begin()) return nullptr;
  Range& range = std::prev(next)->second;
  return address < range.end() ? &range : nullptr;
}

Range& add_range(Range range) {
  range.buffer_id = memory().next_buffer_id++;
  const uintptr_t base = range.base;
  return ranges()[base] = std::move(range);
}

bool charge(int device, size_t bytes, std::vector<UvmActivity>& happened) {
  const size_t capacity = find_device(device).memory_bytes;
  if (bytes > capacity) return false;
  while (used_bytes(device) > capacity - bytes)
    if (!evict_page(device, happened)) return false;
  used_bytes(device) += bytes;
  uint64_t& most = counters().most_used_bytes;
  most = std::max<uint64_t>(most, used_bytes(device));
  return true;
}

uint64_t touch(int device, const Access& access) {
  if (access.bytes == 0) return 0;
  std::vector<UvmActivity> happened;
  {
    const std::lock_guard lock(memory_mutex());
    const uintptr_t end = access.address + access.bytes;
    for (uintptr_t at = access.address; at < end;) {
      Range* range = find_range(at);
      require(range && accessible(*range, access), CUDA_ERROR_ILLEGAL_ADDRESS);
      const size_t bytes = std::min(end, range->end()) - at;
      touch_part(device, *range, {at, bytes, access.reads, access.writes}, happened);
      at += bytes;
    }
  }
  report(happened);
  return happened.empty() ? 0 : happened.back().start_ns;
}

CUdeviceptr allocate_device(Context& context, size_t bytes, Kind kind) {
  require(bytes > 0);
  require(bytes <= context.device.memory_bytes, CUDA_ERROR_OUT_OF_MEMORY);
  // Small allocations share the driver's 2 MiB blocks; large ones have their own.
  const size_t unit = bytes >= kPageBytes / 2 ? kPageBytes : 4096;
  Range range;
  range.bytes = bytes;
  range.kind = kind;
  range.context = &context;
  range.device = context.device.ordinal;
  range.charged_bytes = round_up(bytes, unit);
  std::vector<UvmActivity> happened;
  {
    const std::lock_guard lock(memory_mutex());
    require(charge(range.device, range.charged_bytes, happened),
            CUDA_ERROR_OUT_OF_MEMORY);
    try {
      range.base = map_aligned(bytes, unit, PROT_READ | PROT_WRITE);
    } catch (const Error&) {
      used_bytes(range.device) -= range.charged_bytes;
      throw;
    }
    range = add_range(std::move(range));
  }
  report(happened);
  report_memory(range, false, Call::current().correlation_id);
  return range.base;
}

void release(uintptr_t base, uint32_t correlation_id) {
  Range range;
  {
    const std::lock_guard lock(memory_mutex());
    const auto found = ranges().find(base);
    require(found != ranges().end());
    range = std::move(found->second);
    ranges().erase(found);
    forget(range);
  }
  report_memory(range, true, correlation_id);
}

void release_memory_of(Context& context) {
  const std::lock_guard lock(memory_mutex());
  for (auto at = ranges().begin(); at != ranges().end();) {
    const Range& range = at->second;
    const bool owned = range.context == &context && range.kind != Kind::kVirtual;
    if (owned) forget(range);
    at = owned ? ranges().erase(at) : std::next(at);
  }
}

Range range_of(CUdeviceptr address, size_t bytes) {
  const std::lock_guard lock(memory_mutex());
  const Range* range = find_range(address);
  require(range && bytes <= range->end() - address);
  Range copy = *range;
  copy.physical.reset();
  return copy;
}

void report(const std::vector<UvmActivity>& happened) {
  for (const UvmActivity& activity : happened) notify(&Observer::uvm, activity);
}

void report_memory(const Range& range, bool is_release, uint32_t correlation_id) {
  notify(&Observer::memory,
         MemoryActivity{now_ns(), range.base, range.bytes, correlation_id,
                        static_cast<uint32_t>(range.device),
                        range.context ? range.context->id : 0, is_release,
                        memory_kind(range)});
}

uintptr_t map_aligned(size_t bytes, size_t alignment, int protection) {
  bytes = round_up(bytes, 4096);
  const size_t reserved = bytes + alignment;
  require(bytes > 0 && reserved > bytes, CUDA_ERROR_OUT_OF_MEMORY);
  void* mapped = mmap(nullptr, reserved, protection,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  require(mapped != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
  const auto start = reinterpret_cast<uintptr_t>(mapped);
  const uintptr_t base = round_up(start, alignment);
  if (base > start) munmap(mapped, base - start);
  const uintptr_t tail = base + bytes;
  if (start + reserved > tail)
    munmap(reinterpret_cast<void*>(tail), start + reserved - tail);
  return base;
}

}  // namespace simgpu

SIMGPU_EXPORT void simgpu_get_counters(simgpu::Counters* counters) {
  const std::lock_guard lock(simgpu::memory_mutex());
  *counters = simgpu::counters();
}
