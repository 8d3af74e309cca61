// Host memory that backs the job's allocations, counted and bounded. All processes of a
// run on this machine share it: each has what it took in its status file.
#pragma once

#include <stdint.h>

namespace transit::host_memory {

// False, and nothing is taken, if less is free.
bool take(uint64_t bytes);
void give_back(uint64_t bytes);

bool is_bounded();

// Of what the run may have; as it was a moment ago.
uint64_t free_bytes();

}  // namespace transit::host_memory
