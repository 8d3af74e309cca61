#include "runtime/native/interpose/hook_table.h"

#include <string.h>

#include "runtime/native/interpose/driver.h"

namespace transit {
namespace {

#define OWN(symbol, base, since, mode)     \
  Hook{#symbol,                            \
       base,                               \
       since,                              \
       StreamMode::mode,                   \
       reinterpret_cast<void*>(&::symbol), \
       offsetof(Driver, symbol)},
#define COUNTED(symbol, base, since, mode, ...) OWN(symbol, base, since, mode)
const Hook kHooks[] = {
#include "runtime/native/interpose/hooks.def"
};

bool is_in_libcuda(const Hook& hook) {
  const char* members = reinterpret_cast<const char*>(&driver());
  return *reinterpret_cast<void* const*>(members + hook.driver_offset) != nullptr;
}

bool serves(const Hook& hook, bool per_thread_stream) {
  if (hook.mode == StreamMode::kEither) return true;
  return per_thread_stream == (hook.mode == StreamMode::kPerThread);
}

}  // namespace

const Hook* find_hook_by_symbol(const char* symbol) {
  for (const Hook& hook : kHooks) {
    if (strcmp(hook.symbol, symbol) == 0) return &hook;
  }
  return nullptr;
}

const Hook* find_hook(const char* name, int version, bool per_thread_stream) {
  const Hook* newest = nullptr;
  for (const Hook& hook : kHooks) {
    if (strcmp(hook.base, name) != 0 || hook.since > version) continue;
    if (!serves(hook, per_thread_stream) || !is_in_libcuda(hook)) continue;
    if (newest == nullptr || hook.since > newest->since) newest = &hook;
  }
  return newest;
}

}  // namespace transit
