// The driver calls that submit work, and how to read the parameters of each.
#pragma once

#include <cupti.h>

#include <cstdint>

#include "recorder/native/parameter_scan.h"
#include "recorder/native/spool_format.h"

namespace transit {

// What a call launches, if it is a kernel or a graph.
struct Launched {
  CUfunction function = nullptr;
  void** kernel_params = nullptr;
  void** extra = nullptr;
  CUgraphExec graph = nullptr;
};

// Fills stream, grid and block, and what is launched; of copies and sets the ranges.
using ReadCall = void (*)(const void* params, LaunchRecord& launch, Launched& launched,
                          AccessCollector& accesses);

struct ApiCall {
  CUpti_CallbackId cbid;
  LaunchKind kind;
  bool per_thread_stream;  // stream 0 is the thread's own
  ReadCall read;
};

struct ApiCalls {
  const ApiCall* begin;
  const ApiCall* end;
};

ApiCalls submitting_calls();

// The ranges of a copy and of a set, as a call or a graph's node has them.
void add_copy(AccessCollector& accesses, const CUDA_MEMCPY3D& copy);
void add_set(AccessCollector& accesses, uint64_t address, uint64_t pitch_bytes,
             uint64_t width_bytes, uint64_t height);

// Calls after which a launch may be recorded in a graph instead of run.
constexpr CUpti_CallbackId kCaptureCalls[] = {
    CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture,
    CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture_v2,
    CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture_v2_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCaptureToGraph,
    CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCaptureToGraph_ptsz,
};

}  // namespace transit
