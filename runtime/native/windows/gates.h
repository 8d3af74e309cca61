// Keeps work from chunks that are on their way: its stream waits for their moves, and
// the job's threads when too much lies behind a gate that is closed.
#pragma once

#include <stdint.h>

#include <vector>

#include "runtime/native/windows/transfers.h"

namespace transit {

class Gates {
 public:
  explicit Gates(Transfers& transfers) : transfers_(transfers) {}

  // A piece of work is about to be submitted.
  void count_work();

  // The stream waits for what the seat was asked to do.
  void close(Seat& seat, CUstream stream);

  // It waits for all that other streams wait for: work on it may use the same chunks.
  void close_all(CUstream stream);

  // The caller waits for all that streams wait for.
  void await_all() const;

  // The seat is about to go.
  void forget(const Seat& seat);

 private:
  // A move that is not done, and the streams that wait for it.
  struct Gate {
    Seat* seat;
    uint32_t number;
    uint64_t submitted;  // when it was first closed, in work and gates
    std::vector<CUstream> streams;
  };

  void close(Gate& gate, CUstream stream);
  void keep_back();

  Transfers& transfers_;
  std::vector<Gate> gates_;
  uint64_t num_submitted_ = 0;  // pieces of work, and gates
};

}  // namespace transit
