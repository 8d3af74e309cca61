// The one subscriber to callbacks.
#pragma once

#include <cupti.h>

namespace simgpu::cupti {

// Whether a tool that TRANSIT_SIM_CUPTI_HELD names got here first; null if not.
const char* holder();

bool callback_enabled(CUpti_CallbackDomain domain, CUpti_CallbackId cbid);

// Calls the subscriber on this thread if it asked for `cbid`. What it calls of the
// driver meanwhile makes no further callbacks.
void deliver_callback(CUpti_CallbackDomain domain, CUpti_CallbackId cbid,
                      const void* data);

void unsubscribe_all();

}  // namespace simgpu::cupti
