// An iteration that begins with all of the job's memory on the host: the driver reports
// the first touch of each page as a fault, also through pointers that no launch names.
#pragma once

#include <cupti.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "recorder/native/driver_api.h"
#include "recorder/native/inspector.h"

namespace transit {

class Audit : public Inspector {
 public:
  explicit Audit(const DriverApi& driver) : driver_(driver) {}

  // Managed memory that the shim gave the job.
  void add_memory(uint64_t address, uint64_t bytes);
  void remove_memory(uint64_t address);

  // Where a block of the framework's allocator begins.
  void add_boundary(uint64_t address);

  Purpose purpose() const override { return Purpose::kAudit; }
  std::string begin() override;
  void before(const SubmittedLaunch&) override {}
  void after(const SubmittedLaunch& launch) override;
  void end() override;

 private:
  struct Range {
    uint64_t begin, end;
  };

  std::map<uint64_t, uint64_t> ranges_named_by(const SubmittedLaunch& launch);
  Range reach_of(const AccessRecord& access, Range memory) const;
  CUresult push_to_host(Range range, CUstream stream) const;

  const DriverApi& driver_;

  std::mutex mutex_;                     // guards these
  std::map<uint64_t, uint64_t> memory_;  // ends by beginnings
  std::set<uint64_t> boundaries_;
  uint64_t num_failures_ = 0;
};

}  // namespace transit
