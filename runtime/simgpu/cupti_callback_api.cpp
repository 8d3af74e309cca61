// CUPTI's callback API: who subscribed to what.
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>

#include "runtime/simgpu/cupti_driver.h"
#include "runtime/simgpu/cupti_subscriber.h"

struct CUpti_Subscriber_st {
  CUpti_CallbackFunc callback;
  void* userdata;
  char name[CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN];
};

namespace simgpu::cupti {
namespace {

std::atomic<CUpti_SubscriberHandle> subscriber{nullptr};

constexpr std::array<uint32_t, CUPTI_CB_DOMAIN_SIZE> kNumCallbacks = {
    0,
    CUPTI_DRIVER_TRACE_CBID_SIZE,
    CUPTI_RUNTIME_TRACE_CBID_SIZE,
    CUPTI_CBID_RESOURCE_SIZE,
    CUPTI_CBID_SYNCHRONIZE_SIZE,
    CUPTI_CBID_NVTX_SIZE,
    CUPTI_CBID_STATE_SIZE,
};
constexpr uint32_t kMaxCallbacks = CUPTI_DRIVER_TRACE_CBID_SIZE;

std::atomic<bool> enabled[CUPTI_CB_DOMAIN_SIZE][kMaxCallbacks];

bool valid_domain(CUpti_CallbackDomain domain) {
  return domain > CUPTI_CB_DOMAIN_INVALID && domain < CUPTI_CB_DOMAIN_SIZE;
}

void enable_domain(CUpti_CallbackDomain domain, bool enable) {
  for (uint32_t cbid = 1; cbid < kNumCallbacks[domain]; ++cbid)
    enabled[domain][cbid] = enable;
}

// Says who is in the way; CUPTI names its own subscribers "CUPTI for <name>".
CUptiResult refuse(const char* name, CUpti_SubscriberParams* params) {
  if (params && params->oldSubscriberName && params->oldSubscriberSize > 0)
    snprintf(params->oldSubscriberName, params->oldSubscriberSize, "%s", name);
  return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
}

// Kept for good: a callback may still run when its subscriber leaves.
CUpti_SubscriberHandle remember(CUpti_CallbackFunc callback, void* userdata,
                                const char* name) {
  static auto* const all = new std::deque<CUpti_Subscriber_st>;
  all->push_back({callback, userdata, {}});
  auto& mine = all->back();
  snprintf(mine.name, sizeof mine.name, "CUPTI for %s", name ? name : "<not provided>");
  return &mine;
}

CUptiResult subscribe(CUpti_SubscriberHandle* handle, CUpti_CallbackFunc callback,
                      void* userdata, CUpti_SubscriberParams* params) {
  if (!handle || !callback || (params && params->structSize == 0))
    return CUPTI_ERROR_INVALID_PARAMETER;
  if (!connect()) return CUPTI_ERROR_NOT_INITIALIZED;
  if (holder()) return refuse(holder(), params);
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (const auto* other = subscriber.load()) return refuse(other->name, params);
  *handle = remember(callback, userdata, params ? params->subscriberName : nullptr);
  subscriber = *handle;
  return CUPTI_SUCCESS;
}

bool is_current(CUpti_SubscriberHandle handle) {
  return handle && handle == subscriber.load();
}

}  // namespace

const char* holder() {
  static const char* const name = getenv("TRANSIT_SIM_CUPTI_HELD");
  return name && *name ? name : nullptr;
}

bool callback_enabled(CUpti_CallbackDomain domain, CUpti_CallbackId cbid) {
  return cbid < kNumCallbacks[domain] && enabled[domain][cbid];
}

void deliver_callback(CUpti_CallbackDomain domain, CUpti_CallbackId cbid,
                      const void* data) {
  const CUpti_SubscriberHandle current = subscriber.load();
  if (!current || !callback_enabled(domain, cbid)) return;
  current->callback(current->userdata, domain, cbid, data);
}

void unsubscribe_all() {
  subscriber = nullptr;
  for (uint32_t domain = 1; domain < CUPTI_CB_DOMAIN_SIZE; ++domain)
    enable_domain(static_cast<CUpti_CallbackDomain>(domain), false);
}

}  // namespace simgpu::cupti

using namespace simgpu::cupti;

CUptiResult cuptiSubscribe(CUpti_SubscriberHandle* handle, CUpti_CallbackFunc callback,
                           void* userdata) {
  return subscribe(handle, callback, userdata, nullptr);
}

CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle* handle,
                              CUpti_CallbackFunc callback, void* userdata,
                              CUpti_SubscriberParams* params) {
  return subscribe(handle, callback, userdata, params);
}

// CUPTI forgives a second call with the same handle.
CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle handle) {
  if (!handle) return CUPTI_ERROR_INVALID_PARAMETER;
  if (is_current(handle)) unsubscribe_all();
  return CUPTI_SUCCESS;
}

CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle handle,
                                CUpti_CallbackDomain domain, CUpti_CallbackId cbid) {
  if (const CUptiResult fault = fault_of(__func__)) return fault;
  if (!is_current(handle) || !valid_domain(domain) || cbid >= kNumCallbacks[domain])
    return CUPTI_ERROR_INVALID_PARAMETER;
  enabled[domain][cbid] = enable != 0;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetCallbackState(uint32_t* enable, CUpti_SubscriberHandle handle,
                                  CUpti_CallbackDomain domain, CUpti_CallbackId cbid) {
  if (!enable || !is_current(handle) || !valid_domain(domain) ||
      cbid >= kNumCallbacks[domain])
    return CUPTI_ERROR_INVALID_PARAMETER;
  *enable = enabled[domain][cbid];
  return CUPTI_SUCCESS;
}

CUptiResult cuptiEnableDomain(uint32_t enable, CUpti_SubscriberHandle handle,
                              CUpti_CallbackDomain domain) {
  if (!is_current(handle) || !valid_domain(domain))
    return CUPTI_ERROR_INVALID_PARAMETER;
  enable_domain(domain, enable != 0);
  return CUPTI_SUCCESS;
}
