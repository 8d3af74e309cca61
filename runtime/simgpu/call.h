// How a driver function is written here. DRIVER_API defines the exported symbol around
// a body that returns nothing: it throws Error for a failure, and reads what the caller
// is doing from Call::current().
#pragma once

#include <cuda.h>
#include <cupti_driver_cbid.h>
#include <generated_cuda_meta.h>

#include <cstdint>
#include <exception>

namespace simgpu {

struct Error : std::exception {
  explicit Error(CUresult result) : code(result) {}
  CUresult code;
};

[[noreturn]] inline void fail(CUresult code) { throw Error(code); }

inline void require(bool holds, CUresult code = CUDA_ERROR_INVALID_VALUE) {
  if (!holds) fail(code);
}

struct Api {
  const char* symbol;
  uint32_t cbid;
  bool per_thread_stream;  // what stream 0 means: a _ptsz or _ptds symbol
};

// The outermost driver call in progress on this thread.
class Call {
 public:
  explicit Call(const Api& api);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  static const Call& current();

  const Api& api;
  const uint32_t correlation_id;

 private:
  const Call* outer_;
};

// Runs a body as driver call: checks the process, injects faults, tells the observer,
// and turns an Error into its code.
CUresult invoke(const Api& api, const void* params, void (*body)(void*), void* closure);

template <class Body>
CUresult invoke(const Api& api, const void* params, Body body) {
  const auto run = [](void* closure) { (*static_cast<Body*>(closure))(); };
  return invoke(api, params, run, &body);
}

}  // namespace simgpu

#define SIMGPU_EXPORT extern "C" __attribute__((visibility("default")))
#define SIMGPU_UNPACK(...) __VA_ARGS__

#define SIMGPU_SYMBOL(symbol, function, per_thread, PARAMS, ARGS)            \
  SIMGPU_EXPORT CUresult symbol PARAMS {                                     \
    function##_params params = {SIMGPU_UNPACK ARGS};                         \
    constexpr simgpu::Api kApi = {#symbol, CUPTI_DRIVER_TRACE_CBID_##symbol, \
                                  per_thread};                               \
    return simgpu::invoke(kApi, &params, [&] { function##_body ARGS; });     \
  }

#define DRIVER_API(function, PARAMS, ARGS)               \
  static void function##_body PARAMS;                    \
  SIMGPU_SYMBOL(function, function, false, PARAMS, ARGS) \
  static void function##_body PARAMS

// A function that names a stream, or uses the default one: two symbols, one body.
#define STREAM_API(function, suffix, PARAMS, ARGS)                 \
  static void function##_body PARAMS;                              \
  SIMGPU_SYMBOL(function, function, false, PARAMS, ARGS)           \
  SIMGPU_SYMBOL(function##_##suffix, function, true, PARAMS, ARGS) \
  static void function##_body PARAMS

// A function without parameters.
#define DRIVER_API_0(function)                                                   \
  static void function##_body();                                                 \
  SIMGPU_EXPORT CUresult function() {                                            \
    constexpr simgpu::Api kApi = {#function, CUPTI_DRIVER_TRACE_CBID_##function, \
                                  false};                                        \
    return simgpu::invoke(kApi, nullptr, [] { function##_body(); });             \
  }                                                                              \
  static void function##_body()
