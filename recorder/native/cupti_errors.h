// CUPTI calls that fail while recording: the job goes on, and the trace says so.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_set>

#include "recorder/native/cupti_api.h"
#include "recorder/native/spool.h"

namespace transit {

class CuptiErrors {
 public:
  CuptiErrors(const CuptiApi& cupti, Spool& spool) : cupti_(cupti), spool_(spool) {}

  // Adds `result` if it is an error of `what`.
  void check(const char* what, CUptiResult result);

  // Writes that `what` failed `count` times; the first time also on stderr.
  void add(const char* what, const std::string& reason, uint64_t count);

 private:
  const CuptiApi& cupti_;
  Spool& spool_;
  std::mutex mutex_;
  std::unordered_set<std::string> said_;
};

}  // namespace transit
