// CUPTI's functions, found at run time: the process must have one CUPTI only, and which
// one that is depends on the job.
#pragma once

#include <cupti.h>

#include <string>

namespace transit {

#define TRANSIT_CUPTI_FUNCTIONS(X)     \
  X(cuptiGetVersion)                   \
  X(cuptiGetTimestamp)                 \
  X(cuptiGetResultString)              \
  X(cuptiGetDeviceId)                  \
  X(cuptiGetGraphNodeId)               \
  X(cuptiSubscribe)                    \
  X(cuptiUnsubscribe)                  \
  X(cuptiEnableCallback)               \
  X(cuptiActivityRegisterCallbacks)    \
  X(cuptiActivityEnable)               \
  X(cuptiActivityDisable)              \
  X(cuptiActivityFlushAll)             \
  X(cuptiActivityGetNextRecord)        \
  X(cuptiActivityGetNumDroppedRecords) \
  X(cuptiActivityConfigureUnifiedMemoryCounter)

struct CuptiApi {
#define TRANSIT_DECLARE(name) decltype(&::name) name = nullptr;
  TRANSIT_CUPTI_FUNCTIONS(TRANSIT_DECLARE)
  TRANSIT_DECLARE(cuptiSubscribe_v2)  // since CUDA 13.0; null before
#undef TRANSIT_DECLARE
  uint32_t version = 0;

  // The copy that is loaded, else $TRANSIT_LIBCUPTI, else by name. Returns what went
  // wrong, empty if nothing.
  std::string load();

  // Returns what went wrong, naming who holds CUPTI if somebody does.
  std::string subscribe(CUpti_CallbackFunc callback, CUpti_SubscriberHandle* handle);

  CUptiResult enable_callback(CUpti_SubscriberHandle handle,
                              CUpti_CallbackDomain domain, CUpti_CallbackId cbid) const;

  // 0 if CUPTI does not know.
  uint32_t device_of(CUcontext context) const;

  std::string describe(CUptiResult result) const;
};

}  // namespace transit
