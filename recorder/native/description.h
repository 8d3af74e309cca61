// What the process and its devices are.
#pragma once

#include "recorder/native/cupti_api.h"
#include "recorder/native/driver_api.h"
#include "recorder/native/spool.h"

namespace transit {

ProcessRecord describe_process(const CuptiApi& cupti, const DriverApi& driver);

DeviceRecord describe_device(const DriverApi& driver, CUdevice device, Spool& spool);

}  // namespace transit
