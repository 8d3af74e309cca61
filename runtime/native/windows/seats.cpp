#include "runtime/native/windows/seats.h"

#include <algorithm>
#include <utility>

#include "runtime/native/status/status.h"

namespace transit {

Outcome open_seats(Transfers& transfers, CUdevice device, CUdeviceptr address,
                   uint64_t bytes, Seats* seats) {
  for (uint64_t at = 0; at < bytes; at += Chunk::kMostBytes) {
    const uint64_t chunk_bytes = std::min(Chunk::kMostBytes, bytes - at);
    auto seat = std::make_unique<Seat>(device, address + at, chunk_bytes);
    const Outcome outcome = seat->chunk.create();
    if (!outcome.ok()) return outcome;
    seat->num_done = transfers.take_counter();
    if (seat->num_done == nullptr) {
      return {CUDA_ERROR_OUT_OF_MEMORY, "no pinned memory (cuMemHostAlloc)", true};
    }
    status::add_bytes(&StatusFile::windowed_bytes, &StatusFile::windowed_peak_bytes,
                      chunk_bytes);
    seats->push_back(std::move(seat));
  }
  return {};
}

void close_seats(Transfers& transfers, Seats& seats) {
  for (auto& seat : seats) {
    transfers.end(*seat);
    transfers.give_back(seat->num_done);
    status::subtract_bytes(&StatusFile::windowed_bytes, seat->chunk.bytes());
  }
  seats.clear();
}

}  // namespace transit
