// Launches, copies, sets: said, and passed on.
#include "runtime/native/interpose/describe_work.h"
#include "runtime/native/interpose/driver.h"
#include "runtime/native/interpose/events.h"
#include "runtime/native/interpose/export.h"
#include "runtime/native/interpose/hook_table.h"
#include "runtime/native/windows/windows.h"

namespace {

using namespace transit::describe;
using transit::StreamMode;
using transit::Work;

template <typename Function, typename... Arguments>
CUresult submit(Work work, const char* symbol, StreamMode mode, Function real,
                Arguments... arguments) {
  work.symbol = symbol;
  work.is_per_thread = mode == StreamMode::kPerThread;
  transit::windows::before(work);
  const CUresult result = real(arguments...);
  transit::windows::after();
  return result;
}

}  // namespace

// Without windows, a piece of work costs a count and a look at a flag.
#define UNPACK(...) __VA_ARGS__
#define OWN(...)
#define COUNTED(symbol, base, since, mode, event, work, parameters, arguments) \
  TRANSIT_HOOK CUresult symbol parameters {                                    \
    const auto real = transit::driver().symbol;                                \
    if (real == nullptr) return CUDA_ERROR_NOT_FOUND;                          \
    transit::events::event();                                                  \
    if (!transit::windows::is_on()) return real arguments;                     \
    return submit(work, #symbol, StreamMode::mode, real, UNPACK arguments);    \
  }
#include "runtime/native/interpose/hooks.def"
