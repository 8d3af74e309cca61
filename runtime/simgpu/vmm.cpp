#include "vmm.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <unordered_map>

#include "call.h"
#include "context.h"
#include "memory.h"

namespace simgpu {
namespace {

constexpr int kReadWrite = PROT_READ | PROT_WRITE;

struct Handle {
  std::shared_ptr<Physical> physical;
  int references = 1;
};

// Guarded by the memory lock.
struct Vmm {
  int memfd = -1;
  off_t end = 0;
  std::multimap<size_t, off_t> holes;  // of released pieces, by size
  std::unordered_map<CUmemGenericAllocationHandle, Handle> handles;
  std::map<uintptr_t, size_t> reservations;
  size_t host_bytes = 0;
};

Vmm& vmm() {
  static auto* instance = new Vmm;
  return *instance;
}

off_t take_piece(size_t bytes) {
  const auto hole = vmm().holes.find(bytes);
  if (hole != vmm().holes.end()) {
    const off_t offset = hole->second;
    vmm().holes.erase(hole);
    return offset;
  }
  if (vmm().memfd < 0) vmm().memfd = memfd_create("transit-simgpu", MFD_CLOEXEC);
  const off_t offset = vmm().end;
  const off_t end = offset + static_cast<off_t>(bytes);
  require(vmm().memfd >= 0 && ftruncate(vmm().memfd, end) == 0,
          CUDA_ERROR_OUT_OF_MEMORY);
  vmm().end = end;
  return offset;
}

bool location_on_host(const CUmemLocation& location) {
  switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      find_device(location.id);
      return false;
    case CU_MEM_LOCATION_TYPE_HOST:
      return true;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      require(location.id == 0);
      return true;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
      return true;
    default:
      fail(CUDA_ERROR_INVALID_VALUE);
  }
}

Handle& find_handle(CUmemGenericAllocationHandle handle) {
  const auto found = vmm().handles.find(handle);
  require(found != vmm().handles.end());
  return found->second;
}

bool reserved(uintptr_t address, size_t bytes) {
  auto next = vmm().reservations.upper_bound(address);
  if (next == vmm().reservations.begin()) return false;
  const auto& [base, reserved_bytes] = *std::prev(next);
  return address - base < reserved_bytes && bytes <= reserved_bytes - (address - base);
}

bool mapped_anywhere(uintptr_t address, size_t bytes) {
  const auto next = ranges().lower_bound(address);
  if (next != ranges().end() && next->first < address + bytes) return true;
  return find_range(address) != nullptr;
}

// The mappings that make up exactly these bytes.
std::vector<Range*> mappings_of(uintptr_t address, size_t bytes) {
  std::vector<Range*> found;
  require(bytes > 0 && address + bytes > address);
  for (uintptr_t at = address; at < address + bytes; at = found.back()->end()) {
    const auto range = ranges().find(at);
    require(range != ranges().end() && range->second.kind == Kind::kVirtual &&
            range->second.end() <= address + bytes);
    found.push_back(&range->second);
  }
  return found;
}

void place(const Range& range, int protection, bool physical) {
  const int flags = physical ? MAP_FIXED | MAP_SHARED
                             : MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  const void* mapped =
      mmap(reinterpret_cast<void*>(range.base), range.bytes, protection, flags,
           physical ? vmm().memfd : -1, physical ? range.physical->offset : 0);
  require(mapped != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
}

int protection_of(CUmemAccess_flags flags) {
  switch (flags) {
    case CU_MEM_ACCESS_FLAGS_PROT_NONE:
      return PROT_NONE;
    case CU_MEM_ACCESS_FLAGS_PROT_READ:
      return PROT_READ;
    case CU_MEM_ACCESS_FLAGS_PROT_READWRITE:
      return kReadWrite;
    default:
      fail(CUDA_ERROR_INVALID_VALUE);
  }
}

CUmemAccess_flags flags_of(int protection) {
  return protection == kReadWrite  ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
         : protection == PROT_READ ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                   : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

}  // namespace

// With the memory lock held, as the destructor.
Physical::Physical(const CUmemAllocationProp& wanted, size_t wanted_bytes,
                   std::vector<UvmActivity>& evicted)
    : properties(wanted),
      bytes(wanted_bytes),
      on_host(location_on_host(wanted.location)),
      device(on_host ? 0 : wanted.location.id) {
  const bool fits = on_host ? bytes <= host_memory_bytes() &&
                                  vmm().host_bytes <= host_memory_bytes() - bytes
                            : charge(device, bytes, evicted);
  require(fits, CUDA_ERROR_OUT_OF_MEMORY);
  if (on_host) vmm().host_bytes += bytes;
  try {
    offset = take_piece(bytes);
  } catch (const Error&) {
    uncount();
    throw;
  }
}

void Physical::uncount() const {
  (on_host ? vmm().host_bytes : used_bytes(device)) -= bytes;
}

Physical::~Physical() {
  uncount();
  fallocate(vmm().memfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset,
            static_cast<off_t>(bytes));
  vmm().holes.emplace(bytes, offset);
}

DRIVER_API(cuMemGetAllocationGranularity,
           (size_t* bytes, const CUmemAllocationProp* properties,
            CUmemAllocationGranularity_flags option),
           (bytes, properties, option)) {
  require(bytes && properties);
  location_on_host(properties->location);
  *bytes = kPageBytes;
}

DRIVER_API(cuMemCreate,
           (CUmemGenericAllocationHandle * handle, size_t bytes,
            const CUmemAllocationProp* properties, unsigned long long flags),
           (handle, bytes, properties, flags)) {
  require(handle && properties && flags == 0);
  require(bytes > 0 && bytes % kPageBytes == 0);
  require(properties->type == CU_MEM_ALLOCATION_TYPE_PINNED);
  std::vector<UvmActivity> evicted;
  {
    const std::lock_guard lock(memory_mutex());
    auto physical = std::make_shared<Physical>(*properties, bytes, evicted);
    *handle = reinterpret_cast<CUmemGenericAllocationHandle>(physical.get());
    vmm().handles[*handle] = {std::move(physical), 1};
  }
  report(evicted);
}

DRIVER_API(cuMemRelease, (CUmemGenericAllocationHandle handle), (handle)) {
  const std::lock_guard lock(memory_mutex());
  if (--find_handle(handle).references == 0) vmm().handles.erase(handle);
}

DRIVER_API(cuMemAddressReserve,
           (CUdeviceptr * address, size_t bytes, size_t alignment, CUdeviceptr hint,
            unsigned long long flags),
           (address, bytes, alignment, hint, flags)) {
  require(address && bytes > 0 && bytes % kPageBytes == 0 && flags == 0);
  require((alignment & (alignment - 1)) == 0);
  const size_t aligned_to = std::max(alignment, kPageBytes);
  const std::lock_guard lock(memory_mutex());
  *address = map_aligned(bytes, aligned_to, PROT_NONE);
  vmm().reservations[*address] = bytes;
}

DRIVER_API(cuMemAddressFree, (CUdeviceptr address, size_t bytes), (address, bytes)) {
  const std::lock_guard lock(memory_mutex());
  const auto found = vmm().reservations.find(address);
  require(found != vmm().reservations.end() && found->second == bytes);
  require(!mapped_anywhere(address, bytes));
  vmm().reservations.erase(found);
  munmap(reinterpret_cast<void*>(address), bytes);
}

DRIVER_API(cuMemMap,
           (CUdeviceptr address, size_t bytes, size_t offset,
            CUmemGenericAllocationHandle handle, unsigned long long flags),
           (address, bytes, offset, handle, flags)) {
  require(bytes > 0 && bytes % kPageBytes == 0 && address % kPageBytes == 0);
  require(flags == 0);
  const std::lock_guard lock(memory_mutex());
  const std::shared_ptr<Physical> physical = find_handle(handle).physical;
  // As measured: one handle for each chunk.
  require(offset == 0, CUDA_ERROR_NOT_SUPPORTED);
  require(bytes <= physical->bytes);
  require(reserved(address, bytes) && !mapped_anywhere(address, bytes));
  Range range;
  range.base = address;
  range.bytes = bytes;
  range.kind = Kind::kVirtual;
  range.device = physical->device;
  range.on_host = physical->on_host;
  range.physical = physical;
  add_range(std::move(range));
}

DRIVER_API(cuMemUnmap, (CUdeviceptr address, size_t bytes), (address, bytes)) {
  const std::lock_guard lock(memory_mutex());
  for (const Range* range : mappings_of(address, bytes)) {
    place(*range, PROT_NONE, false);
    ranges().erase(range->base);
  }
}

DRIVER_API(cuMemSetAccess,
           (CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access,
            size_t count),
           (address, bytes, access, count)) {
  require(access && count > 0);
  const std::lock_guard lock(memory_mutex());
  const std::vector<Range*> mappings = mappings_of(address, bytes);
  for (size_t i = 0; i < count; ++i) {
    const int protection = protection_of(access[i].flags);
    const bool for_host = location_on_host(access[i].location);
    for (Range* range : mappings) {
      require(!for_host || range->physical->on_host);
      place(*range, protection, true);
      range->protection = protection;
    }
  }
}

DRIVER_API(cuMemGetAccess,
           (unsigned long long* flags, const CUmemLocation* location,
            CUdeviceptr address),
           (flags, location, address)) {
  require(flags && location);
  location_on_host(*location);
  const Range range = range_of(address, 1);
  require(range.kind == Kind::kVirtual);
  *flags = flags_of(range.protection);
}

DRIVER_API(cuMemRetainAllocationHandle,
           (CUmemGenericAllocationHandle * handle, void* address), (handle, address)) {
  require(handle);
  const std::lock_guard lock(memory_mutex());
  const Range* range = find_range(reinterpret_cast<uintptr_t>(address));
  require(range && range->kind == Kind::kVirtual);
  *handle = reinterpret_cast<CUmemGenericAllocationHandle>(range->physical.get());
  Handle& entry =
      vmm().handles.try_emplace(*handle, Handle{range->physical, 0}).first->second;
  ++entry.references;
}

DRIVER_API(cuMemGetAllocationPropertiesFromHandle,
           (CUmemAllocationProp * properties, CUmemGenericAllocationHandle handle),
           (properties, handle)) {
  require(properties);
  const std::lock_guard lock(memory_mutex());
  *properties = find_handle(handle).physical->properties;
}

}  // namespace simgpu
