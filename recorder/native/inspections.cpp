#include "recorder/native/inspections.h"

#include <string>

#include "recorder/native/environment.h"
#include "recorder/native/failure.h"
#include "recorder/native/own_calls.h"

namespace transit {

Inspections::Inspections(const DriverApi& driver, const Contexts& contexts,
                         const LiveAllocations& live, Activities& activities,
                         Launches& launches, Spool& spool)
    : driver_(driver), contexts_(contexts), launches_(launches) {
  if (number_from({"TRANSIT_DIRECTIONS"}, 0) != 0) {
    auto checksums =
        std::make_unique<Checksums>(driver, contexts, live, activities, spool);
    checksums_ = checksums.get();
    inspectors_.push_back(std::move(checksums));
  }
  if (number_from({"TRANSIT_AUDIT"}, 0) == 0) return;
  auto audit = std::make_unique<Audit>(driver, spool);
  audit_ = audit.get();
  inspectors_.push_back(std::move(audit));
}

void Inspections::on_alloc(const TransitAllocation& allocation) {
  if (audit_ == nullptr || allocation.api != TRANSIT_API_AUDITED) return;
  audit_->add_memory(allocation.address, allocation.bytes);
}

void Inspections::on_free(uint64_t address, uint32_t allocation_id) {
  if (checksums_ != nullptr) checksums_->on_free(address, allocation_id);
  if (audit_ != nullptr) audit_->remove_memory(address);
}

void Inspections::on_driver_call(const ApiCall& api, const CUpti_CallbackData& call) {
  thread_local const SubmittedLaunch* submitted = nullptr;
  const OwnCalls own;
  Inspector* inspector = current_.load(std::memory_order_acquire);
  if (call.callbackSite == CUPTI_API_ENTER) {
    submitted = launches_.record_for_inspection(api, call);
    if (submitted != nullptr && inspector != nullptr) inspector->before(*submitted);
  } else if (submitted != nullptr) {
    if (inspector != nullptr) inspector->after(*submitted);
    submitted = nullptr;
  }
}

Inspector* Inspections::prepare_next() {
  const OwnCalls own;
  while (num_prepared_ < inspectors_.size()) {
    Inspector& inspector = *inspectors_[num_prepared_++];
    contexts_.synchronize(driver_);
    const std::string problem = inspector.begin();
    if (problem.empty()) return &inspector;
    say(problem);
  }
  return nullptr;
}

void Inspections::begin(Inspector& inspector) {
  current_.store(&inspector, std::memory_order_release);
}

void Inspections::end() {
  if (Inspector* inspector = current_.exchange(nullptr)) {
    const OwnCalls own;
    contexts_.synchronize(driver_);
    inspector->end();
  }
}

}  // namespace transit
