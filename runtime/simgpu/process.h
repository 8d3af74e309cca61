// What there is once in a process: whether the driver is up, and who observes it.
#pragma once

#include <atomic>
#include <cstdint>

#include "observer.h"

namespace simgpu {

struct Process {
  std::atomic<bool> initialized{false};
  std::atomic<bool> forked{false};  // a fork child: no call works, as with CUDA
  std::atomic<const Observer*> observer{nullptr};
  std::atomic<uint32_t> next_correlation_id{1};
};

// Never destroyed: worker threads may outlive static destructors.
Process& process();

// Calls a member of the observer, if there is one and it wants to know.
template <class Member, class... Arguments>
void notify(Member member, const Arguments&... arguments) {
  const Observer* observer = process().observer.load(std::memory_order_acquire);
  if (observer && observer->*member) (observer->*member)(arguments...);
}

uint64_t now_ns();  // CLOCK_REALTIME

}  // namespace simgpu
