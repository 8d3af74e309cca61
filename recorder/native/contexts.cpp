#include "recorder/native/contexts.h"

namespace transit {

void Contexts::add(CUcontext context, int32_t device) {
  for (Slot& slot : slots_) {
    if (slot.context.load() != nullptr) continue;
    slot.device.store(device);
    slot.context.store(context);
    return;
  }
}

void Contexts::remove(CUcontext context) {
  for (Slot& slot : slots_) {
    CUcontext expected = context;
    slot.context.compare_exchange_strong(expected, nullptr);
  }
}

int32_t Contexts::device_of(CUcontext context) const {
  for (const Slot& slot : slots_) {
    if (slot.context.load(std::memory_order_acquire) == context) {
      return slot.device.load(std::memory_order_relaxed);
    }
  }
  return 0;
}

std::vector<Contexts::Alive> Contexts::alive() const {
  std::vector<Alive> contexts;
  for (const Slot& slot : slots_) {
    const CUcontext context = slot.context.load();
    if (context != nullptr) contexts.push_back({context, slot.device.load()});
  }
  return contexts;
}

void Contexts::synchronize(const DriverApi& driver) const {
  for (const Alive& alive : this->alive()) {
    const CurrentContext current(driver, alive.context);
    if (current) driver.cuCtxSynchronize();
  }
}

}  // namespace transit
