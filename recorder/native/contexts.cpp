#include "recorder/native/contexts.h"

namespace transit {

void Contexts::add(CUcontext handle, int32_t device) {
  for (Slot& slot : slots_) {
    if (slot.handle.load() != nullptr) continue;
    slot.device.store(device);
    slot.serial.store(++num_added_);
    slot.handle.store(handle);
    return;
  }
}

void Contexts::remove(CUcontext handle) {
  for (Slot& slot : slots_) {
    CUcontext expected = handle;
    slot.handle.compare_exchange_strong(expected, nullptr);
  }
}

Context Contexts::find(CUcontext handle) const {
  if (handle == nullptr) return {};
  for (const Slot& slot : slots_) {
    if (slot.handle.load() != handle) continue;
    if (const Context found = slot.read(); found.handle == handle) return found;
  }
  return {};
}

std::vector<Context> Contexts::alive() const {
  std::vector<Context> contexts;
  for (const Slot& slot : slots_) {
    const Context context = slot.read();
    if (context.handle != nullptr) contexts.push_back(context);
  }
  return contexts;
}

void Contexts::synchronize(const DriverApi& driver) const {
  for (const Context& context : alive()) {
    const CurrentContext current(driver, context.handle);
    if (current) driver.cuCtxSynchronize();
  }
}

}  // namespace transit
