// Captures: begun, ended, or gone with their stream.
#include "runtime/native/interpose/driver.h"
#include "runtime/native/interpose/export.h"
#include "runtime/native/memory/captures.h"
#include "runtime/native/windows/windows.h"

#define BEGIN_CAPTURE(symbol, parameters, arguments)              \
  TRANSIT_HOOK CUresult symbol parameters {                       \
    const auto real = transit::driver().symbol;                   \
    if (real == nullptr) return CUDA_ERROR_NOT_FOUND;             \
    transit::windows::prepare_capture(stream);                    \
    const CUresult result = real arguments;                       \
    if (result == CUDA_SUCCESS) transit::captures::begin(stream); \
    return result;                                                \
  }

BEGIN_CAPTURE(cuStreamBeginCapture, (CUstream stream), (stream))
BEGIN_CAPTURE(cuStreamBeginCapture_ptsz, (CUstream stream), (stream))
BEGIN_CAPTURE(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode),
              (stream, mode))
BEGIN_CAPTURE(cuStreamBeginCapture_v2_ptsz, (CUstream stream, CUstreamCaptureMode mode),
              (stream, mode))

#define CAPTURE_TO_GRAPH                                            \
  (CUstream stream, CUgraph graph, const CUgraphNode* dependencies, \
   const CUgraphEdgeData* dependency_data, size_t num_dependencies, \
   CUstreamCaptureMode mode)
BEGIN_CAPTURE(cuStreamBeginCaptureToGraph, CAPTURE_TO_GRAPH,
              (stream, graph, dependencies, dependency_data, num_dependencies, mode))
BEGIN_CAPTURE(cuStreamBeginCaptureToGraph_ptsz, CAPTURE_TO_GRAPH,
              (stream, graph, dependencies, dependency_data, num_dependencies, mode))

#define END_CAPTURE(symbol)                                                \
  TRANSIT_HOOK CUresult symbol(CUstream stream, CUgraph* graph) {          \
    const auto real = transit::driver().symbol;                            \
    if (real == nullptr) return CUDA_ERROR_NOT_FOUND;                      \
    const CUresult result = real(stream, graph);                           \
    const bool goes_on = result == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD; \
    if (!goes_on) transit::captures::end(stream);                          \
    return result;                                                         \
  }
END_CAPTURE(cuStreamEndCapture)
END_CAPTURE(cuStreamEndCapture_ptsz)

TRANSIT_HOOK CUresult cuStreamDestroy_v2(CUstream stream) {
  const auto real = transit::driver().cuStreamDestroy_v2;
  if (real == nullptr) return CUDA_ERROR_NOT_FOUND;
  transit::captures::end(stream);
  transit::windows::forget_stream(stream);
  return real(stream);
}
