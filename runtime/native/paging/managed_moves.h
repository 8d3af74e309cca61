// Asks the driver to move managed memory: on a stream of its own, in turn, so that the
// job's streams may be captured meanwhile.
#pragma once

#include <memory>
#include <vector>

#include "runtime/native/backend/vmm_memory.h"
#include "runtime/native/windows/events.h"

namespace transit {

class ManagedMoves {
 public:
  // With a context of the device current.
  explicit ManagedMoves(CUdevice device);

  // What is moved later is so when these have passed.
  void follow(const Events& events);

  // The call may take nearly as long as the move. If it fails nothing is lost: all
  // stays, or comes to be, where the driver likes.
  CUresult move(CUdeviceptr address, uint64_t bytes, Location to);

  // What the stream does later comes after all moves up to now.
  void precede(CUstream stream);

  // Waits for all moves.
  void finish();

  // The stream is about to be destroyed.
  void forget(CUstream stream);

 private:
  const CUdevice device_;
  CUresult created_;
  CUstream stream_ = nullptr;
  bool is_marked_ = true;              // nothing was moved since `last_`
  std::shared_ptr<const Event> last_;  // null: all is done
  std::vector<CUstream> told_;         // to wait for `last_`
};

}  // namespace transit
