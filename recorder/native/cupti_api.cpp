#include "recorder/native/cupti_api.h"

#include <dlfcn.h>

#include <cstdlib>

namespace transit {
namespace {

constexpr const char* kSonames[] = {"libcupti.so.13", "libcupti.so.12"};

// Those of CUDA 12 count from 18; from 13.0 on the number is xxyyzz. The records are
// read by fields that all of these have in the same places (see activities.cpp).
bool is_known(uint32_t version) {
  return (version >= 18 && version < 100) || version / 10000 == 13;
}

void* open_library(std::string* error) {
  for (const char* soname : kSonames) {
    if (void* loaded = dlopen(soname, RTLD_NOW | RTLD_NOLOAD)) return loaded;
  }
  const char* chosen = getenv("TRANSIT_LIBCUPTI");
  if (chosen != nullptr && *chosen != '\0') {
    void* library = dlopen(chosen, RTLD_NOW);
    if (library == nullptr) *error = std::string("TRANSIT_LIBCUPTI: ") + dlerror();
    return library;
  }
  for (const char* soname : kSonames) {
    if (void* library = dlopen(soname, RTLD_NOW)) return library;
  }
  *error =
      "CUPTI was not found: install nvidia-cuda-cupti beside the job, or set "
      "TRANSIT_LIBCUPTI to a libcupti.so.13 or libcupti.so.12";
  return nullptr;
}

}  // namespace

std::string CuptiApi::load() {
  std::string error;
  void* library = open_library(&error);
  if (library == nullptr) return error;
#define TRANSIT_RESOLVE(name)                                     \
  name = reinterpret_cast<decltype(name)>(dlsym(library, #name)); \
  if (name == nullptr) return "this CUPTI lacks " #name ": use a newer one";
  TRANSIT_CUPTI_FUNCTIONS(TRANSIT_RESOLVE)
#undef TRANSIT_RESOLVE
  cuptiSubscribe_v2 = reinterpret_cast<decltype(cuptiSubscribe_v2)>(
      dlsym(library, "cuptiSubscribe_v2"));
  cuptiGetVersion(&version);
  if (is_known(version)) return {};
  return "CUPTI reports version " + std::to_string(version) +
         ", and transit reads those of CUDA 12 and 13: set TRANSIT_LIBCUPTI to one";
}

std::string CuptiApi::subscribe(CUpti_CallbackFunc callback,
                                CUpti_SubscriberHandle* handle) {
  char holder[2 * CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN] = "";
  CUptiResult result;
  if (cuptiSubscribe_v2 != nullptr) {
    CUpti_SubscriberParams params{};
    params.structSize = CUpti_SubscriberParams_STRUCT_SIZE;
    params.subscriberName = "transit";
    params.oldSubscriberName = holder;
    params.oldSubscriberSize = sizeof(holder);
    result = cuptiSubscribe_v2(handle, callback, nullptr, &params);
  } else {
    result = cuptiSubscribe(handle, callback, nullptr);
  }
  if (result == CUPTI_SUCCESS) return {};
  if (result != CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) {
    return "CUPTI cannot be subscribed to: " + describe(result);
  }
  holder[sizeof(holder) - 1] = '\0';
  const std::string who = *holder != '\0' ? holder : "another profiler";
  return "CUPTI is held by " + who +
         ", and it serves one tool at a time: end that tool (or unset what starts it, "
         "for instance KINETO_USE_DAEMON) while recording";
}

CUptiResult CuptiApi::enable_callback(CUpti_SubscriberHandle handle,
                                      CUpti_CallbackDomain domain,
                                      CUpti_CallbackId cbid) const {
  return cuptiEnableCallback(1, handle, domain, cbid);
}

uint32_t CuptiApi::device_of(CUcontext context) const {
  uint32_t device = 0;
  return cuptiGetDeviceId(context, &device) == CUPTI_SUCCESS ? device : 0;
}

std::string CuptiApi::describe(CUptiResult result) const {
  const char* text = nullptr;
  if (cuptiGetResultString(result, &text) != CUPTI_SUCCESS || text == nullptr) {
    text = "unknown error";
  }
  return std::string(text) + " (" + std::to_string(static_cast<int>(result)) + ")";
}

}  // namespace transit
