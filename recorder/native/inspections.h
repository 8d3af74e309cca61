// The inspectors of this recording, each of which has its iteration, one after the
// other.
#pragma once

#include <cupti.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "recorder/native/activities.h"
#include "recorder/native/allocations.h"
#include "recorder/native/audit.h"
#include "recorder/native/checksums.h"
#include "recorder/native/contexts.h"
#include "recorder/native/driver_api.h"
#include "recorder/native/inspector.h"
#include "recorder/native/launches.h"
#include "recorder/native/spool.h"
#include "runtime/native/observer.h"

namespace transit {

class Inspections {
 public:
  // Those that the environment asks for.
  Inspections(const DriverApi& driver, const Contexts& contexts,
              const LiveAllocations& live, Activities& activities, Launches& launches,
              Spool& spool);

  void on_alloc(const TransitAllocation& allocation);
  void on_free(uint64_t address, uint32_t allocation_id);

  // At both sites of a call that submits something: records and inspects it.
  void on_driver_call(const ApiCall& api, const CUpti_CallbackData& call);

  // Outside of callbacks. The next inspector that can do its work is got ready and
  // returned, null if there is none. It sees launches from begin() to end().
  Inspector* prepare_next();
  void begin(Inspector& inspector);
  void end();

 private:
  const DriverApi& driver_;
  const Contexts& contexts_;
  Launches& launches_;

  std::vector<std::unique_ptr<Inspector>> inspectors_;
  Checksums* checksums_ = nullptr;  // among them, if there is to be one; so the audit
  Audit* audit_ = nullptr;
  std::atomic<Inspector*> current_{nullptr};
  size_t num_prepared_ = 0;
};

}  // namespace transit
