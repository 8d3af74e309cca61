#include "runtime/native/windows/windows.h"

#include <algorithm>
#include <mutex>

#include "runtime/native/interpose/driver.h"
#include "runtime/native/lifecycle/process.h"
#include "runtime/native/status/status.h"
#include "runtime/native/windows/executor.h"
#include "runtime/native/windows/signature.h"

namespace transit::windows {
namespace {

// Made for the first allocation that the plan knows; never destroyed.
std::atomic<Executor*> g_executor{nullptr};

std::atomic<Follower*> g_follower{nullptr};

Follower* follower() { return g_follower.load(std::memory_order_acquire); }

Executor* executor() { return g_executor.load(std::memory_order_acquire); }

bool has_windows() {
  return replay() != nullptr && replay()->plan->windows().count > 0;
}

Executor* start(const FlatAllocation& allocation, CUdeviceptr address) {
  static std::mutex& mutex = *new std::mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  if (executor() != nullptr) return executor();
  CUcontext context = nullptr;
  driver().cuCtxGetCurrent(&context);
  g_executor.store(new Executor(*replay()->plan, allocation.device, context,
                                address - allocation.address_offset),
                   std::memory_order_release);
  set_follower(executor());
  status::add(&StatusFile::steps_per_lap, replay()->plan->num_steps());
  return executor();
}

bool has_windows(const FlatAllocation& allocation) {
  const Ranges ranges = replay()->plan->ranges_of(allocation);
  return std::any_of(ranges.begin(), ranges.end(), is_windowed);
}

}  // namespace

Outcome add(const FlatAllocation& allocation, CUdeviceptr address,
            bool is_at_recorded_address) {
  if (!has_windows()) return {};
  if (!is_at_recorded_address) {
    if (!has_windows(allocation)) return {};
    return {CUDA_ERROR_NOT_SUPPORTED,
            "it has windows, and the addresses of the recording cannot be had"};
  }
  if (!can_sign()) {
    return {CUDA_ERROR_NOT_SUPPORTED,
            "the driver does not tell functions' parameters: windows take CUDA 12.4"};
  }
  Executor* const windows = start(allocation, address);
  if (windows->device() == allocation.device) return windows->add(allocation);
  if (!has_windows(allocation)) return {};
  return {CUDA_ERROR_NOT_SUPPORTED, "windows are on one device of a process only"};
}

void remove(const FlatAllocation& allocation, bool is_at_recorded_address) {
  Executor* const windows = executor();
  if (windows == nullptr || !is_at_recorded_address) return;
  if (windows->device() != allocation.device) return;
  if (has_windows(allocation)) driver().cuCtxSynchronize();
  windows->remove(allocation);
}

void set_follower(Follower* follower) {
  g_follower.store(follower, std::memory_order_release);
  g_is_on.store(true, std::memory_order_release);
}

void before(const Work& work) { follower()->before(work); }

void after() { follower()->after(); }

void await_moves() {
  if (is_on()) follower()->await_moves();
}

void make_room(uint64_t bytes) {
  if (is_on()) follower()->make_room(bytes);
}

void forget_stream(CUstream stream) {
  if (is_on()) follower()->forget_stream(stream);
}

void prepare_capture(CUstream stream) {
  if (is_on()) follower()->prepare_capture(stream);
}

}  // namespace transit::windows
