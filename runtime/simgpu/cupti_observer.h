// What the simulated driver reports, turned into CUPTI's callbacks and records.
#pragma once

#include "runtime/simgpu/observer.h"

namespace simgpu::cupti {

const Observer* observer();

// Whether cuptiActivityConfigureUnifiedMemoryCounter asked for these records.
bool counter_enabled(uint32_t counter_kind);

// Whether the process has, or had, a context.
bool context_seen();

}  // namespace simgpu::cupti
