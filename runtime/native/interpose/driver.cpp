#include "runtime/native/interpose/driver.h"

#include <dlfcn.h>
#include <string.h>

namespace transit {
namespace {

std::atomic<void*> g_libcuda{nullptr};

void* open_libcuda() {
  if (void* seen = g_libcuda.load()) return seen;
  return dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
}

Driver find_functions() {
  Driver driver{};
#define CALL(name) \
  driver.name = reinterpret_cast<decltype(driver.name)>(real_function(#name));
  TRANSIT_DRIVER_CALLS(CALL)
#define OWN(symbol, ...) CALL(symbol)
#define COUNTED(symbol, ...) CALL(symbol)
#include "runtime/native/interpose/hooks.def"
#undef CALL
  return driver;
}

}  // namespace

std::atomic<const Driver*> g_driver{nullptr};

const Driver& load_driver() {
  static const Driver instance = find_functions();
  g_driver.store(&instance, std::memory_order_release);
  return instance;
}

void* real_function(const char* symbol) {
  static void* const libcuda = open_libcuda();
  return libcuda == nullptr ? nullptr : real_dlsym()(libcuda, symbol);
}

bool is_from_libcuda(const void* address) {
  Dl_info info;
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return false;
  const char* slash = strrchr(info.dli_fname, '/');
  const char* file = slash != nullptr ? slash + 1 : info.dli_fname;
  if (strncmp(file, "libcuda.so", strlen("libcuda.so")) != 0) return false;
  if (g_libcuda.load(std::memory_order_relaxed) == nullptr) {
    g_libcuda.store(dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD));
  }
  return true;
}

bool is_libcuda_loaded() {
  if (g_libcuda.load(std::memory_order_relaxed) != nullptr) return true;
  void* handle = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (handle != nullptr) dlclose(handle);
  return handle != nullptr;
}

const char* error_name(CUresult result) {
  const char* name = nullptr;
  if (driver().cuGetErrorName != nullptr) driver().cuGetErrorName(result, &name);
  return name != nullptr ? name : "an unknown CUDA error";
}

// Runs before the sanitizers are ready: their start-up calls dlsym. So it calls no
// inline function of the standard library either, which would be instrumented.
__attribute__((no_sanitize("address", "thread", "undefined"))) DlsymFn real_dlsym() {
  static DlsymFn real = nullptr;  // a race stores the same value twice
  if (real == nullptr) {
    constexpr const char* kVersions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
    for (const char* version : kVersions) {
      real = reinterpret_cast<DlsymFn>(dlvsym(RTLD_NEXT, "dlsym", version));
      if (real != nullptr) break;
    }
  }
  return real;
}

}  // namespace transit
