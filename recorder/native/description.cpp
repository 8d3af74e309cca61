#include "recorder/native/description.h"

#include "recorder/native/clock.h"
#include "recorder/native/environment.h"

namespace transit {

ProcessRecord describe_process(const CuptiApi& cupti, const DriverApi& driver) {
  ProcessRecord process{};
  process.rank =
      number_from({"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"}, 0);
  process.local_rank =
      number_from({"LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"}, 0);
  process.world_size = number_from(
      {"WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}, 1);
  process.cupti_version = cupti.version;
  int driver_version = 0, device_count = 0;
  driver.cuDriverGetVersion(&driver_version);
  driver.cuDeviceGetCount(&device_count);
  process.driver_version = static_cast<uint32_t>(driver_version);
  process.device_count = static_cast<uint32_t>(device_count);
  process.clock_realtime_ns = now_ns();
  process.clock_monotonic_ns = clock_ns(CLOCK_MONOTONIC);
  cupti.cuptiGetTimestamp(&process.clock_cupti_ns);
  return process;
}

DeviceRecord describe_device(const DriverApi& driver, CUdevice device, Spool& spool) {
  const auto attribute = [&](CUdevice_attribute which) {
    int value = 0;
    driver.cuDeviceGetAttribute(&value, which, device);
    return static_cast<uint32_t>(value);
  };
  char name[256] = "";
  size_t memory_bytes = 0;
  driver.cuDeviceGetName(name, sizeof(name), device);
  driver.cuDeviceTotalMem_v2(&memory_bytes, device);
  DeviceRecord record{};
  record.device = device;
  record.compute_capability =
      attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
      attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  record.memory_bytes = memory_bytes;
  record.name_id = spool.name_id(name);
  record.num_multiprocessors = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  return record;
}

}  // namespace transit
