// Windows of a plan, enacted around each piece of work. Off unless the plan has any.
#pragma once

#include <atomic>

#include "runtime/native/backend/backend.h"
#include "runtime/native/windows/follower.h"

namespace transit::windows {

inline std::atomic<bool> g_is_on{false};

inline bool is_on() { return g_is_on.load(std::memory_order_relaxed); }

// An allocation was placed, but for its windowed ranges, where it was recorded or not.
// With its context current. Nothing to be done without windows in the plan.
Outcome add(const FlatAllocation& allocation, CUdeviceptr address,
            bool is_at_recorded_address);

// Its memory is about to be given back.
void remove(const FlatAllocation& allocation, bool is_at_recorded_address);

// The one that is told of the job's work from now on; never destroyed.
void set_follower(Follower* follower);

// Around the driver's call, on the thread that makes it; only while is_on().
void before(const Work& work);
void after();

// Before the driver loads code.
void await_moves();

// Before the driver is asked for memory of the GPU.
void make_room(uint64_t bytes);

// Before a stream is destroyed, or captured.
void forget_stream(CUstream stream);
void prepare_capture(CUstream stream);

}  // namespace transit::windows
