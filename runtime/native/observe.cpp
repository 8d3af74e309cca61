// The door for a recorder in the same process: see observer.h.
#include "runtime/native/interpose/driver.h"
#include "runtime/native/interpose/export.h"
#include "runtime/native/memory/registry.h"
#include "runtime/native/status/status.h"

TRANSIT_HOOK int transit_observe(const TransitObserver* observer) {
  if (observer == nullptr || observer->version != TRANSIT_OBSERVER_VERSION) return -1;
  transit::Registry::instance().observe(observer);
  return 0;
}

TRANSIT_HOOK void* transit_driver_function(const char* symbol) {
  return transit::real_function(symbol);
}

TRANSIT_HOOK uint64_t transit_launches_seen() {
  using transit::StatusFile;
  namespace status = transit::status;
  return status::get(&StatusFile::kernel_launches) +
         status::get(&StatusFile::graph_launches) + status::get(&StatusFile::copies) +
         status::get(&StatusFile::sets);
}
