#include "call.h"

#include <time.h>

#include <cstdio>
#include <new>

#include "context.h"
#include "faults.h"
#include "process.h"

namespace simgpu {
namespace {

thread_local const Call* current_call = nullptr;

CUresult run(void (*body)(void*), void* closure) {
  try {
    body(closure);
    return CUDA_SUCCESS;
  } catch (const Error& error) {
    return error.code;
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  } catch (...) {
    return CUDA_ERROR_UNKNOWN;
  }
}

CUresult run_unless_injected(const Api& api, void (*body)(void*), void* closure) {
  const auto injected = static_cast<CUresult>(injected_fault(api.symbol));
  return injected != CUDA_SUCCESS ? injected : run(body, closure);
}

}  // namespace

Process& process() {
  static Process* instance = new Process;
  return *instance;
}

uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u +
         static_cast<uint64_t>(now.tv_nsec);
}

Call::Call(const Api& call_api)
    : api(call_api),
      correlation_id(process().next_correlation_id.fetch_add(1)),
      outer_(current_call) {
  current_call = this;
}

Call::~Call() { current_call = outer_; }

const Call& Call::current() { return *current_call; }

CUresult invoke(const Api& api, const void* params, void (*body)(void*),
                void* closure) {
  if (process().forked || !process().initialized) return CUDA_ERROR_NOT_INITIALIZED;
  const Call call(api);
  ApiCall seen = {api.symbol,          api.cbid,         params,
                  call.correlation_id, current_handle(), nullptr};
  notify(&Observer::api_enter, seen);
  CUresult result = run_unless_injected(api, body, closure);
  seen.result = &result;
  notify(&Observer::api_exit, seen);
  return result;
}

}  // namespace simgpu

SIMGPU_EXPORT void simgpu_set_observer(const simgpu::Observer* observer) {
  simgpu::process().observer.store(observer, std::memory_order_release);
}
