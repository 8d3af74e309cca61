#include "recorder/native/cupti_errors.h"

#include "recorder/native/clock.h"
#include "recorder/native/failure.h"

namespace transit {

void CuptiErrors::check(const char* what, CUptiResult result) {
  if (result != CUPTI_SUCCESS) add(what, cupti_.describe(result), 1);
}

void CuptiErrors::add(const char* what, const std::string& reason, uint64_t count) {
  if (count == 0) return;
  spool_.errors.append({now_ns(), count, spool_.name_id(what), spool_.name_id(reason)});
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!said_.insert(what).second) return;
  say(std::string("the recording loses something: ") + what + " failed: " + reason);
}

}  // namespace transit
