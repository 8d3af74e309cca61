// The kernels whose work is known: they run on the CPU, in place of the PTX of the same
// name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "memory.h"
#include "ptx.h"

namespace simgpu {

// What a launch will do, before it does it.
struct Footprint {
  std::vector<Access> accesses;
  uint64_t duration_ns;  // modelled, see docs/simulated-gpu.md
};

struct KnownKernel {
  const char* name;
  size_t num_parameters;
  size_t parameter_bytes;
  Footprint (*footprint)(const uint8_t* arguments);
  void (*run)(const uint8_t* arguments);
};

// The kernel of that name and parameter layout, or null.
const KnownKernel* find_kernel(const Entry& entry);

}  // namespace simgpu
