// How programs find the driver's functions: by name, version, and what stream 0 shall
// be.
#include <cstring>

#include "call.h"
#include "symbols.h"

// Declared in a header that the headers' wheels leave out.
extern "C" CUresult cuProfilerStart();
extern "C" CUresult cuProfilerStop();

namespace simgpu {
namespace {

constexpr int kDriverVersion = 13000;

struct Symbol {
  const char* base;
  void* function;
  void* per_thread_function;  // null if it has nothing to do with streams
  int version;
};

const Symbol kSymbols[] = {
#define SIMGPU_PLAIN(base, symbol, version) \
  {#base, reinterpret_cast<void*>(&::symbol), nullptr, version},
#define SIMGPU_STREAM(base, symbol, suffix, version) \
  {#base, reinterpret_cast<void*>(&::symbol),        \
   reinterpret_cast<void*>(&::symbol##_##suffix), version},
    SIMGPU_PLAIN_SYMBOLS(SIMGPU_PLAIN) SIMGPU_STREAM_SYMBOLS(SIMGPU_STREAM)
#undef SIMGPU_PLAIN
#undef SIMGPU_STREAM
};

struct Answer {
  void* function = nullptr;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
};

// The newest of that name which the asker's version has.
Answer look_up(const char* base, int version, cuuint64_t flags) {
  Answer answer;
  int newest = 0;
  for (const Symbol& symbol : kSymbols) {
    if (std::strcmp(symbol.base, base) != 0) continue;
    if (symbol.version > version) {
      if (!answer.function) answer.status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    } else if (symbol.version >= newest) {
      const bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM &&
                              symbol.per_thread_function;
      newest = symbol.version;
      answer = {per_thread ? symbol.per_thread_function : symbol.function,
                CU_GET_PROC_ADDRESS_SUCCESS};
    }
  }
  return answer;
}

CUresult resolve(const char* base, void** function, int version, cuuint64_t flags,
                 CUdriverProcAddressQueryResult* status) {
  if (!base || !function || flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
    return CUDA_ERROR_INVALID_VALUE;
  const Answer answer = look_up(base, version, flags);
  *function = answer.function;
  // The first version of the function has no status to tell it by.
  if (!status && !answer.function) return CUDA_ERROR_NOT_FOUND;
  if (status) *status = answer.status;
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace simgpu

SIMGPU_EXPORT CUresult cuGetProcAddress(const char* base, void** function, int version,
                                        cuuint64_t flags) {
  return simgpu::resolve(base, function, version, flags, nullptr);
}

SIMGPU_EXPORT CUresult cuGetProcAddress_v2(const char* base, void** function,
                                           int version, cuuint64_t flags,
                                           CUdriverProcAddressQueryResult* status) {
  return simgpu::resolve(base, function, version, flags, status);
}

// What a program compiled for per-thread streams calls: its default is theirs.
SIMGPU_EXPORT CUresult
cuGetProcAddress_v2_ptsz(const char* base, void** function, int version,
                         cuuint64_t flags, CUdriverProcAddressQueryResult* status) {
  if (flags == CU_GET_PROC_ADDRESS_DEFAULT)
    flags = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  return simgpu::resolve(base, function, version, flags, status);
}

SIMGPU_EXPORT CUresult cuDriverGetVersion(int* version) {
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  *version = simgpu::kDriverVersion;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult cuGetExportTable(const void** table, const CUuuid*) {
  if (table) *table = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}
