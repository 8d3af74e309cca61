#include "recorder/native/driver_api.h"

#include <dlfcn.h>

namespace transit {

const char* DriverApi::load() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return "libcuda.so.1";
#define TRANSIT_RESOLVE(name)                                     \
  name = reinterpret_cast<decltype(name)>(dlsym(library, #name)); \
  if (name == nullptr) return #name;
  TRANSIT_DRIVER_FUNCTIONS(TRANSIT_RESOLVE)
#undef TRANSIT_RESOLVE
  return nullptr;
}

}  // namespace transit
