// Launches, copies, sets: said, and passed on.
#include "runtime/native/interpose/driver.h"
#include "runtime/native/interpose/events.h"
#include "runtime/native/interpose/export.h"

#define OWN(...)
#define COUNTED(symbol, base, since, mode, event, parameters, arguments) \
  TRANSIT_HOOK CUresult symbol parameters {                              \
    const auto real = transit::driver().symbol;                          \
    if (real == nullptr) return CUDA_ERROR_NOT_FOUND;                    \
    transit::events::event();                                            \
    return real arguments;                                               \
  }
#include "runtime/native/interpose/hooks.def"
