#include "runtime/native/memory/recorded_addresses.h"

#include <inttypes.h>

#include <iterator>
#include <map>
#include <mutex>

#include "runtime/native/lifecycle/log.h"
#include "runtime/native/lifecycle/process.h"

namespace transit::recorded_addresses {
namespace {

struct Span {
  CUdeviceptr base = 0;                // 0: the backend has no such addresses
  std::map<uint64_t, uint64_t> taken;  // offset to end
};

bool is_free(const Span& span, uint64_t begin, uint64_t end) {
  const auto next = span.taken.upper_bound(begin);
  if (next != span.taken.end() && next->first < end) return false;
  return next == span.taken.begin() || std::prev(next)->second <= begin;
}

std::mutex& mutex() {
  static std::mutex& instance = *new std::mutex;
  return instance;
}

// By device, each reserved when it is first asked for.
std::map<int32_t, Span>& spans() {
  static std::map<int32_t, Span>& instance = *new std::map<int32_t, Span>;
  return instance;
}

Span& span_of(int32_t device) {
  const auto [position, is_new] = spans().try_emplace(device);
  if (is_new) {
    const uint64_t span_bytes = replay()->plan->address_span_bytes(device);
    position->second.base = replay()->backend->reserve(device, span_bytes);
    if (position->second.base == 0) {
      log::warn("device %d: the %" PRIu64
                " bytes of addresses that the recording used cannot be had: the job's "
                "own allocator may put other tensors where the plan expects these",
                device, span_bytes);
    }
  }
  return position->second;
}

}  // namespace

CUdeviceptr take(const FlatAllocation& planned) {
  const uint64_t begin = planned.address_offset;
  if (begin == kNoAddress) return 0;
  const uint64_t end = begin + round_up_to_piece(planned.bytes);
  const std::lock_guard<std::mutex> lock(mutex());
  Span& span = span_of(planned.device);
  if (span.base == 0 || !is_free(span, begin, end)) return 0;
  span.taken.emplace(begin, end);
  return span.base + begin;
}

void give_back(const FlatAllocation& planned) {
  const std::lock_guard<std::mutex> lock(mutex());
  spans()[planned.device].taken.erase(planned.address_offset);
}

}  // namespace transit::recorded_addresses
