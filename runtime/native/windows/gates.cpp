#include "runtime/native/windows/gates.h"

#include <algorithm>

namespace transit {
namespace {

// So much at most is submitted behind a gate that is closed. A call for which the
// stream has no place left waits in the driver, and keeps it from the thread that would
// open the gate.
constexpr uint64_t kMostBehindGate = 256;

}  // namespace

void Gates::count_work() {
  ++num_submitted_;
  const auto is_open = [](const Gate& gate) {
    return gate.seat->has_done(gate.number);
  };
  gates_.erase(std::remove_if(gates_.begin(), gates_.end(), is_open), gates_.end());
}

void Gates::close(Seat& seat, CUstream stream) {
  if (seat.is_settled()) return;
  auto gate = std::find_if(gates_.begin(), gates_.end(), [&](const Gate& other) {
    return other.seat == &seat && other.number == seat.num_asked;
  });
  if (gate == gates_.end()) {
    gate = gates_.insert(gate, {&seat, seat.num_asked, num_submitted_ + 1, {}});
  }
  close(*gate, stream);
  keep_back();
}

void Gates::close_all(CUstream stream) {
  for (Gate& gate : gates_) close(gate, stream);
  keep_back();
}

void Gates::close(Gate& gate, CUstream stream) {
  auto& streams = gate.streams;
  if (std::find(streams.begin(), streams.end(), stream) != streams.end()) return;
  transfers_.gate(*gate.seat, gate.number, stream);
  ++num_submitted_;
  // Each thread means another stream by this one.
  if (stream != CU_STREAM_PER_THREAD) streams.push_back(stream);
}

void Gates::keep_back() {
  for (const Gate& oldest : gates_) {
    if (num_submitted_ - oldest.submitted < kMostBehindGate) return;
    Transfers::wait(*oldest.seat, oldest.number);
  }
}

void Gates::await_all() const {
  for (const Gate& gate : gates_) Transfers::wait(*gate.seat, gate.number);
}

void Gates::forget(const Seat& seat) {
  const auto is_of_seat = [&](const Gate& gate) { return gate.seat == &seat; };
  gates_.erase(std::remove_if(gates_.begin(), gates_.end(), is_of_seat), gates_.end());
}

}  // namespace transit
