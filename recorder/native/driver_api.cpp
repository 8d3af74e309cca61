#include "recorder/native/driver_api.h"

#include <dlfcn.h>

#include "runtime/native/observer.h"

namespace transit {

const char* DriverApi::load() {
  const auto find = reinterpret_cast<TransitDriverFunctionFn>(
      dlsym(RTLD_DEFAULT, "transit_driver_function"));
  if (find == nullptr) return "the shim";
#define TRANSIT_RESOLVE(name)                           \
  name = reinterpret_cast<decltype(name)>(find(#name)); \
  if (name == nullptr) return #name;
  TRANSIT_DRIVER_FUNCTIONS(TRANSIT_RESOLVE)
#undef TRANSIT_RESOLVE
  return nullptr;
}

}  // namespace transit
