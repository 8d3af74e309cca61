#pragma once

#include <cuda.h>

#include "work.h"

namespace simgpu {

// A kernel with its arguments copied, from one of `parameters` and `extra`; throws if
// it cannot be launched so. The stream of `shape` is not looked at.
KernelWork kernel_work(CUfunction function, const CUlaunchConfig& shape,
                       void** parameters, void** extra);

}  // namespace simgpu
