// Which hook stands for which driver function.
#pragma once

#include <stddef.h>

namespace transit {

enum class StreamMode { kEither, kLegacy, kPerThread };

struct Hook {
  const char* symbol;
  const char* base;
  int since;
  StreamMode mode;
  void* replacement;
  size_t driver_offset;  // of the real function in Driver
};

// Exact name as libcuda exports it; null if that function is not replaced.
const Hook* find_hook_by_symbol(const char* symbol);

// What cuGetProcAddress(name, version) means in this default-stream mode: the newest
// hook not newer than `version` that this libcuda has.
const Hook* find_hook(const char* name, int version, bool per_thread_stream);

}  // namespace transit
