#include "runtime/native/lifecycle/process.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include <atomic>
#include <string>

#include "runtime/native/lifecycle/log.h"
#include "runtime/native/lifecycle/settings.h"
#include "runtime/native/paging/paging.h"
#include "runtime/native/status/status.h"
#include "runtime/native/windows/signature.h"
#include "runtime/native/windows/windows.h"

namespace transit {
namespace {

std::atomic<bool> g_active{true};
std::atomic<const Replay*> g_replay{nullptr};
std::atomic<bool> g_is_paging{false};

void become_inert() {
  g_active.store(false);
  windows::g_is_on.store(false);
  g_replay.store(nullptr);
  g_is_paging.store(false);
  status::detach();
}

struct BackendChoice {
  BackendKind kind;
  std::unique_ptr<Backend> backend;
};

BackendChoice choose_backend() {
  const char* name = settings().backend;
  if (name != nullptr && strcmp(name, "vmm") == 0) {
    return {BackendKind::kVmm, make_vmm_backend()};
  }
  if (name != nullptr && strcmp(name, "uvm") == 0) {
    return {BackendKind::kUvm, make_uvm_backend()};
  }
  return {BackendKind::kNone, nullptr};
}

void pass_through(const std::string& why) {
  status::set_state(ShimState::kPassThrough, BackendKind::kNone);
  log::failure("%s; the job runs as it would without transit", why.c_str());
}

void start_replay() {
  BackendChoice choice = choose_backend();
  if (choice.backend == nullptr) {
    return pass_through("TRANSIT_BACKEND must be vmm or uvm");
  }
  const std::string path = std::string(settings().plan_dir) +
                           "/rank=" + std::to_string(settings().rank) + ".flat";
  std::string error;
  const Plan* plan = Plan::load(path, settings().rank, &error);
  if (plan == nullptr) return pass_through(path + ": " + error);
  status::set_budget(plan->gpu_memory_bytes());
  g_replay.store(new Replay{plan, choice.backend.release()});
  status::set_state(ShimState::kReplaying, choice.kind);
  log::info("replaying %s with %s", path.c_str(), settings().backend);
}

void start_paging() {
  if (!can_sign()) {
    return pass_through(
        "the driver does not tell functions' parameters: paging takes CUDA 12.4");
  }
  status::set_budget(settings().paging_bytes);
  const auto policy = paging::find_policy(settings().paging_policy);
  if (!policy) {
    return pass_through("TRANSIT_PAGING_POLICY must be base, prefetch or advise");
  }
  const bool is_managed = *policy != paging::Policy::kOnDemand;
  g_is_paging.store(true);
  status::set_state(ShimState::kPaging,
                    is_managed ? BackendKind::kUvm : BackendKind::kVmm);
  log::info("paging within %" PRIu64 " bytes", settings().paging_bytes);
}

void start_once() {
  status::create(settings().run_dir, settings().rank);
  status::add(&StatusFile::host_limit_bytes, settings().host_memory_bytes);
  pthread_atfork(nullptr, nullptr, become_inert);
  if (settings().plan_dir != nullptr) return start_replay();
  if (settings().paging_bytes != 0) return start_paging();
  status::set_state(ShimState::kObserving, BackendKind::kNone);
  log::info("observing");
}

}  // namespace

void start() {
  static const bool started = (start_once(), true);
  static_cast<void>(started);
}

bool is_active() { return g_active.load(std::memory_order_relaxed); }

bool is_paging() { return g_is_paging.load(std::memory_order_relaxed); }

const Replay* replay() { return g_replay.load(std::memory_order_acquire); }

}  // namespace transit
