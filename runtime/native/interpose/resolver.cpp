// cuGetProcAddress: the real one answers first; what it found is replaced by our hook.
#include <string.h>

#include "runtime/native/interpose/driver.h"
#include "runtime/native/interpose/export.h"
#include "runtime/native/interpose/hook_table.h"

namespace transit {
namespace {

// The newest CUDA version whose functions hooks.def knows.
constexpr int kKnownVersion = 13000;

void* resolve(const char* name, int version, cuuint64_t flags) {
  void* found = nullptr;
  const Driver& real = driver();
  if (real.cuGetProcAddress_v2 != nullptr) {
    CUdriverProcAddressQueryResult status;
    real.cuGetProcAddress_v2(name, &found, version, flags, &status);
  } else {
    real.cuGetProcAddress(name, &found, version, flags);
  }
  return found;
}

// A driver from the future may answer with a newer signature: then it stays.
bool is_newer_than_known(const char* name, int version, cuuint64_t flags, void* found) {
  return version > kKnownVersion && resolve(name, kKnownVersion, flags) != found;
}

cuuint64_t default_to_per_thread(cuuint64_t flags) {
  constexpr cuuint64_t kModes =
      CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  if ((flags & kModes) != 0) return flags;
  return flags | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
}

void replace(const char* name, void** function, int version, cuuint64_t flags) {
  if (name == nullptr || function == nullptr || *function == nullptr) return;
  const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  const Hook* hook = find_hook(name, version, per_thread);
  if (hook == nullptr || is_newer_than_known(name, version, flags, *function)) return;
  *function = hook->replacement;
}

}  // namespace
}  // namespace transit

TRANSIT_HOOK CUresult cuGetProcAddress(const char* symbol, void** function, int version,
                                       cuuint64_t flags) {
  const auto real = transit::driver().cuGetProcAddress;
  if (real == nullptr) return CUDA_ERROR_NOT_FOUND;
  const CUresult result = real(symbol, function, version, flags);
  if (result == CUDA_SUCCESS) transit::replace(symbol, function, version, flags);
  return result;
}

TRANSIT_HOOK CUresult cuGetProcAddress_ptsz(const char* symbol, void** function,
                                            int version, cuuint64_t flags) {
  return cuGetProcAddress(symbol, function, version,
                          transit::default_to_per_thread(flags));
}

TRANSIT_HOOK CUresult cuGetProcAddress_v2(const char* symbol, void** function,
                                          int version, cuuint64_t flags,
                                          CUdriverProcAddressQueryResult* status) {
  const auto real = transit::driver().cuGetProcAddress_v2;
  if (real == nullptr) return CUDA_ERROR_NOT_FOUND;
  const CUresult result = real(symbol, function, version, flags, status);
  if (result == CUDA_SUCCESS) transit::replace(symbol, function, version, flags);
  return result;
}

TRANSIT_HOOK CUresult cuGetProcAddress_v2_ptsz(const char* symbol, void** function,
                                               int version, cuuint64_t flags,
                                               CUdriverProcAddressQueryResult* status) {
  return cuGetProcAddress_v2(symbol, function, version,
                             transit::default_to_per_thread(flags), status);
}
