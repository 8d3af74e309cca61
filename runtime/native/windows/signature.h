// Signatures of launches, as traces/FORMAT.md defines them.
#pragma once

#include <stdint.h>

#include "runtime/native/windows/work.h"

namespace transit {

// False where the driver does not tell what functions are: then nothing below is
// called.
bool can_sign();

// Of a graph: that of the call, whatever the graph's nodes are.
uint64_t signature_of(const Work& work);

// Where a signature begins.
uint64_t hash_of_name(const char* name);

}  // namespace transit
