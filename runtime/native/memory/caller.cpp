#include "runtime/native/memory/caller.h"

#include <dlfcn.h>
#include <string.h>

#include "runtime/native/lifecycle/settings.h"

namespace transit {
namespace {

// Their buffers are small, hot, or shared with other GPUs, processes and network cards,
// which takes memory of cuMemAlloc. (They call the driver from a libcudart of their own
// inside them, so that the caller of cuMemAlloc is the library itself.)
constexpr const char* kKeptPrefixes[] = {
    "libcublas",  "libcuda.so",   "libcudnn",    "libcufft",    "libcufile",
    "libcupti",   "libcurand",    "libcusolver", "libcusparse", "libcutensor",
    "libnccl",    "libnvJitLink", "libnvjpeg",   "libnvrtc",    "libnvshmem",
    "libtransit", "libucp",       "libuct",
};

bool starts_with(const char* text, const char* prefix, size_t length) {
  return length > 0 && strncmp(text, prefix, length) == 0;
}

bool is_kept_by_user(const char* module) {
  const char* prefix = settings().keep_modules;
  while (prefix != nullptr && *prefix != '\0') {
    const size_t length = strcspn(prefix, ",");
    if (starts_with(module, prefix, length)) return true;
    prefix += length;
    prefix += *prefix == ',';
  }
  return false;
}

}  // namespace

const char* module_of(const void* code) {
  Dl_info info;
  if (dladdr(code, &info) == 0 || info.dli_fname == nullptr) return "?";
  const char* slash = strrchr(info.dli_fname, '/');
  return slash != nullptr ? slash + 1 : info.dli_fname;
}

bool keeps_its_memory(const char* module) {
  for (const char* prefix : kKeptPrefixes) {
    if (starts_with(module, prefix, strlen(prefix))) return true;
  }
  return is_kept_by_user(module);
}

}  // namespace transit
