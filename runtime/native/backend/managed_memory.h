// What the driver is told of managed memory: where it shall be, and to move it.
#pragma once

#include "runtime/native/backend/backend.h"

namespace transit::managed {

// Whether device and driver can do what follows.
Outcome check(CUdevice device);

CUresult prefer_device(CUdevice device, CUdeviceptr address, uint64_t bytes);

// The device uses it there in place. Only a prefetch still moves it, and it is used in
// place again when it is back.
CUresult prefer_host(CUdevice device, CUdeviceptr address, uint64_t bytes);

// Ends both. What is on the host stays within reach of the device until it moves.
CUresult prefer_nothing(CUdevice device, CUdeviceptr address, uint64_t bytes);

// In the stream's order; that of a capture must not be used. The call may take nearly
// as long as the move.
CUresult prefetch_to_device(CUdevice device, CUdeviceptr address, uint64_t bytes,
                            CUstream stream);
CUresult prefetch_to_host(CUdeviceptr address, uint64_t bytes, CUstream stream);

}  // namespace transit::managed
