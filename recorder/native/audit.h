// An iteration that begins with all of the job's memory on the host: the driver reports
// the first touch of each page as a fault, also through pointers that no launch names.
#pragma once

#include <cupti.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "recorder/native/driver_api.h"
#include "recorder/native/inspector.h"
#include "recorder/native/memory_reach.h"
#include "recorder/native/spool.h"

namespace transit {

class Audit : public Inspector {
 public:
  Audit(const DriverApi& driver, const Spool& spool) : driver_(driver), spool_(spool) {}

  // Managed memory that the shim gave the job.
  void add_memory(uint64_t address, uint64_t bytes);
  void remove_memory(uint64_t address);

  Purpose purpose() const override { return Purpose::kAudit; }
  std::string begin() override;
  void before(const SubmittedLaunch&) override {}
  void after(const SubmittedLaunch& launch) override;
  void end() override;

 private:
  std::map<uint64_t, uint64_t> ranges_named_by(const SubmittedLaunch& launch);
  CUresult push_to_host(MemoryRange range, CUstream stream) const;

  const DriverApi& driver_;
  const Spool& spool_;

  std::mutex mutex_;                     // guards these
  std::map<uint64_t, uint64_t> memory_;  // ends by beginnings
  std::optional<MemoryReach> reach_;     // once the first launch is looked at
  uint64_t num_failures_ = 0;
};

}  // namespace transit
