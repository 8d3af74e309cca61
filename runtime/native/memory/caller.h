// Whose allocation is it?
#pragma once

namespace transit {

// File name of the module that holds `code`, "libcudart.so.13"; "?" if none does. Valid
// as long as that module is loaded.
const char* module_of(const void* code);

// True for libraries whose allocations stay where the driver puts them.
bool keeps_its_memory(const char* module);

}  // namespace transit
