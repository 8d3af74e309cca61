// The driver calls that submit work, and how to read the parameters of each.
#pragma once

#include <cupti.h>

#include <cstdint>

#include "recorder/native/parameter_scan.h"
#include "recorder/native/spool_format.h"

namespace transit {

struct KernelCall {
  CUfunction function = nullptr;
  void** kernel_params = nullptr;
  void** extra = nullptr;
};

// Fills stream, grid and block, the kernel's call if it is one, else the ranges.
using ReadCall = void (*)(const void* params, LaunchRecord& launch, KernelCall& kernel,
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
