// cuInit and what a device says about itself.
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>

#include "call.h"
#include "context.h"
#include "memory.h"
#include "process.h"

namespace simgpu {
namespace {

constexpr char kDeviceName[] = "transit simulated GPU";
constexpr size_t kDefaultMemoryBytes = size_t{4} << 30;
constexpr int kMaxDevices = 64;

// "1073741824", "512MiB", "2GiB"; 0 for anything else.
size_t parse_bytes(const char* text) {
  char* unit = nullptr;
  const size_t number = std::strtoull(text, &unit, 10);
  const std::string_view suffix = unit;
  const unsigned shift = suffix == "KiB"   ? 10
                         : suffix == "MiB" ? 20
                         : suffix == "GiB" ? 30
                                           : 0;
  const bool known = suffix.empty() || shift > 0;
  const bool fits = number <= (SIZE_MAX >> shift);
  return known && fits && *text != '-' ? number << shift : 0;
}

size_t bytes_of(const char* name, size_t otherwise) {
  const char* variable = std::getenv(name);
  if (!variable || !*variable) return otherwise;
  const size_t bytes = parse_bytes(variable);
  if (bytes == 0)
    std::fprintf(
        stderr,
        "transit simulated GPU: %s: '%s' is not a size such as 512MiB or 2GiB; "
        "using %zu bytes\n",
        name, variable, otherwise);
  return bytes ? bytes : otherwise;
}

size_t memory_bytes() {
  return bytes_of("TRANSIT_SIM_GPU_MEMORY", kDefaultMemoryBytes);
}

// What a driver keeps for a context's own ends.
size_t context_bytes() {
  static const size_t bytes = bytes_of("TRANSIT_SIM_CONTEXT_MEMORY", 0);
  return bytes;
}

int device_count() {
  const char* variable = std::getenv("TRANSIT_SIM_GPU_COUNT");
  if (!variable) return 1;
  return static_cast<int>(
      std::clamp<long>(std::strtol(variable, nullptr, 10), 0, kMaxDevices));
}

// As the driver does, at the end of the first cuInit and before contexts exist.
void load_injection() {
  const char* path = std::getenv("CUDA_INJECTION64_PATH");
  if (!path || !*path) return;
  void* library = dlopen(path, RTLD_NOW);
  using Initialize = int (*)();
  const auto initialize =
      library ? reinterpret_cast<Initialize>(dlsym(library, "InitializeInjection"))
              : nullptr;
  if (!initialize) {
    std::fprintf(stderr, "transit simulated GPU: CUDA_INJECTION64_PATH: %s\n",
                 dlerror());
    return;
  }
  initialize();
}

void initialize_once() {
  pthread_atfork(nullptr, nullptr, [] { process().forked = true; });
  devices();
  process().initialized = true;
  load_injection();
  notify(&Observer::initialized);
}

int attribute_value(CUdevice_attribute attribute) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return 9;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      return 0;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return 132;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      return 32;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
      return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
      return 64;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
      return 2147483647;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
      return 65535;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      return 2048;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      return 48 << 10;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      return 227 << 10;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      return 228 << 10;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      return 50 << 20;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
      return 1980000;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
      return 3201000;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
      return 6144;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
      return 3;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      return 1;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT:
      return 32;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
      return 512;
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
      return 0;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
      return 1;
    default:
      return 0;
  }
}

CUuuid uuid_of(const Device& device) {
  CUuuid uuid = {};
  std::snprintf(uuid.bytes, sizeof(uuid.bytes), "transit-sim-%02d", device.ordinal);
  return uuid;
}

}  // namespace

size_t host_memory_bytes() {
  static const size_t bytes = bytes_of("TRANSIT_SIM_HOST_MEMORY",
                                       static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) *
                                           static_cast<size_t>(sysconf(_SC_PAGESIZE)));
  return bytes;
}

void take_context_memory(const Device& device) {
  std::vector<UvmActivity> happened;
  const std::lock_guard lock(memory_mutex());
  require(charge(device.ordinal, context_bytes(), happened), CUDA_ERROR_OUT_OF_MEMORY);
}

void give_back_context_memory(const Device& device) {
  const std::lock_guard lock(memory_mutex());
  used_bytes(device.ordinal) -= context_bytes();
}

const std::vector<std::unique_ptr<Device>>& devices() {
  static const auto* all = [] {
    auto* made = new std::vector<std::unique_ptr<Device>>;
    for (int ordinal = 0; ordinal < device_count(); ++ordinal) {
      made->push_back(std::make_unique<Device>());
      made->back()->ordinal = ordinal;
      made->back()->memory_bytes = memory_bytes();
    }
    return made;
  }();
  return *all;
}

Device& find_device(CUdevice ordinal) {
  require(ordinal >= 0 && static_cast<size_t>(ordinal) < devices().size(),
          CUDA_ERROR_INVALID_DEVICE);
  return *devices()[static_cast<size_t>(ordinal)];
}

DRIVER_API(cuDeviceGet, (CUdevice * device, int ordinal), (device, ordinal)) {
  require(device);
  *device = find_device(ordinal).ordinal;
}

DRIVER_API(cuDeviceGetCount, (int* count), (count)) {
  require(count);
  *count = static_cast<int>(devices().size());
}

DRIVER_API(cuDeviceGetName, (char* name, int length, CUdevice device),
           (name, length, device)) {
  require(name && length > 0);
  find_device(device);
  std::snprintf(name, static_cast<size_t>(length), "%s", kDeviceName);
}

DRIVER_API(cuDeviceGetUuid, (CUuuid * uuid, CUdevice device), (uuid, device)) {
  require(uuid);
  *uuid = uuid_of(find_device(device));
}

DRIVER_API(cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice device), (uuid, device)) {
  require(uuid);
  *uuid = uuid_of(find_device(device));
}

DRIVER_API(cuDeviceTotalMem_v2, (size_t* bytes, CUdevice device), (bytes, device)) {
  require(bytes);
  *bytes = find_device(device).memory_bytes;
}

DRIVER_API(cuDeviceGetAttribute,
           (int* value, CUdevice_attribute attribute, CUdevice device),
           (value, attribute, device)) {
  require(value && attribute > 0 && attribute < CU_DEVICE_ATTRIBUTE_MAX);
  find_device(device);
  *value = attribute_value(attribute);
}

DRIVER_API(cuDeviceGetPCIBusId, (char* bus_id, int length, CUdevice device),
           (bus_id, length, device)) {
  require(bus_id && length > 0);
  std::snprintf(bus_id, static_cast<size_t>(length), "0000:%02X:00.0",
                find_device(device).ordinal + 1);
}

DRIVER_API(cuDeviceComputeCapability, (int* major, int* minor, CUdevice device),
           (major, minor, device)) {
  require(major && minor);
  find_device(device);
  *major = attribute_value(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  *minor = attribute_value(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
}

DRIVER_API(cuDeviceCanAccessPeer, (int* can, CUdevice device, CUdevice peer),
           (can, device, peer)) {
  require(can);
  *can = &find_device(device) != &find_device(peer);
}

}  // namespace simgpu

SIMGPU_EXPORT CUresult cuInit(unsigned flags) {
  static std::once_flag once;
  static thread_local bool initializing = false;  // an injected tool calls cuInit too
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (simgpu::process().forked) return CUDA_ERROR_NOT_INITIALIZED;
  if (simgpu::devices().empty()) return CUDA_ERROR_NO_DEVICE;
  if (initializing) return CUDA_SUCCESS;
  initializing = true;
  std::call_once(once, simgpu::initialize_once);
  initializing = false;
  return CUDA_SUCCESS;
}
