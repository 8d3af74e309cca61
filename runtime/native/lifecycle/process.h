// One process's life under the shim.
#pragma once

#include "runtime/native/backend/backend.h"
#include "runtime/native/plan/plan.h"

namespace transit {

struct Replay {
  const Plan* plan;
  Backend* backend;
};

// At the process's first use of CUDA: status file, plan, backend. Later calls do
// nothing.
void start();

// False in a fork child of a process that used CUDA: CUDA does not work there, and the
// parent's allocations are not its own.
bool is_active();

// Null when there is no plan, or none that can be enacted.
const Replay* replay();

// Without a plan: memory is paged within settings().paging_bytes.
bool is_paging();

}  // namespace transit
