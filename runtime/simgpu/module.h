// Loaded code. A CUkernel and a CUfunction are both a Function here.
#pragma once

#include <cuda.h>

#include <memory>

#include "kernels.h"
#include "ptx.h"

namespace simgpu {

struct Module;

struct Function {
  Entry entry;
  const KnownKernel* kernel;  // null: its code cannot be run here
  Module* module;
  CUfunction handle;  // another function's once the module is unloaded
};

// Shared with the work in flight, so that a module may be unloaded under it.
using FunctionRef = std::shared_ptr<const Function>;

FunctionRef find_function(CUfunction handle);

}  // namespace simgpu
