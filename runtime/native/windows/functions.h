// What is known of the functions that the job launches.
#pragma once

#include <stdint.h>

#include <vector>

#include "runtime/native/interpose/driver_api.h"

namespace transit::functions {

struct Parameter {
  uint32_t index;  // into the launch's params
  uint32_t offset;
  uint32_t bytes;
};

struct Description {
  CUfunction function;
  uint32_t generation;
  uint64_t name_hash;                 // FNV-1a, as signatures begin
  std::vector<Parameter> parameters;  // those that can hold an address
};

// Whether the driver tells names and parameters: those before CUDA 12.4 do not.
bool can_describe();

// Asked of the driver once for each function, then read without a lock.
const Description& describe(CUfunction function);

// Whether it was described. If not, the driver may have to load it: Follower.
bool is_known(CUfunction function);

// Handles are reused once their module is unloaded, and parameters that a function
// does not have must not be read.
void forget_all();

}  // namespace transit::functions
