// The chunks of a range of addresses.
#pragma once

#include <memory>
#include <vector>

#include "runtime/native/windows/transfers.h"

namespace transit {

using Seats = std::vector<std::unique_ptr<Seat>>;

// All at home. If it fails, those that were made are in `seats` and are to be closed.
Outcome open_seats(Transfers& transfers, CUdevice device, CUdeviceptr address,
                   uint64_t bytes, Seats* seats);

// Waits for their moves; nobody uses them any more.
void close_seats(Transfers& transfers, Seats& seats);

}  // namespace transit
