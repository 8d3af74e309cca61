#include "runtime/native/windows/aligner.h"

#include <algorithm>

namespace transit {
namespace {

constexpr uint32_t kMaxSkipped = 64;
constexpr uint32_t kMaxInserted = 256;  // one after the other
constexpr int kMaxInexact = 64;         // of the last 128

}  // namespace

Aligner::Aligner(const FlatLaunch* launches, uint32_t count)
    : launches_(launches),
      count_(count),
      index_(launches, count, std::min(count, Run::kMaxLength)),
      run_(std::min(count, Run::kMaxLength)) {}

Aligner::Step Aligner::next(uint64_t signature, uint64_t addresses) {
  const FlatLaunch launch{signature, addresses, 0, 0};
  if (!is_locked_) return search(launch);
  if (launches_[position_].signature == signature) return take(0, launch);
  const uint32_t num_skipped = find_ahead(launch);
  return num_skipped > 0 ? take(num_skipped, launch) : insert(launch);
}

Aligner::Step Aligner::search(const FlatLaunch& launch) {
  run_.add(launch);
  const auto found = run_.is_full() ? index_.find(run_) : std::nullopt;
  if (found) return lock(*found);
  return {Where::kUnlocked, position_, 0, false, false};
}

// What is inserted may be another part of the iteration: after a restart, say.
Aligner::Step Aligner::insert(const FlatLaunch& launch) {
  const Step step = search(launch);
  if (step.is_newly_locked) return step;
  ++counters_.num_inserted;
  if (++num_inserted_in_a_row_ == kMaxInserted) return unlock();
  return {Where::kInserted, position_, 0, false, false};
}

Aligner::Step Aligner::take(uint32_t num_skipped, const FlatLaunch& launch) {
  const uint32_t position = after(position_, num_skipped);
  const bool is_exact = has_same_addresses(launches_[position], launch.addresses);
  position_ = after(position, 1);
  if (num_inserted_in_a_row_ > 0) {
    num_inserted_in_a_row_ = 0;
    run_.clear();
  }
  counters_.num_skipped += num_skipped;
  if (!note_exactness(is_exact)) return unlock();
  return {Where::kPlanned, position, num_skipped, is_exact, false};
}

Aligner::Step Aligner::lock(uint32_t position) {
  if (is_locked_) unlock();
  const FlatLaunch& launch = run_[run_.length() - 1];
  const bool is_exact = has_same_addresses(launches_[position], launch.addresses);
  run_.clear();
  is_locked_ = true;
  position_ = after(position, 1);
  inexact_[0] = inexact_[1] = 0;
  ++counters_.num_locks;
  return {Where::kPlanned, position, 0, is_exact, true};
}

// The run stays: where the job is may be known soon.
Aligner::Step Aligner::unlock() {
  is_locked_ = false;
  num_inserted_in_a_row_ = 0;
  ++counters_.num_unlocks;
  return {Where::kUnlocked, position_, 0, false, false};
}

// How far ahead of the one expected this very launch is; 0 if it is not near.
uint32_t Aligner::find_ahead(const FlatLaunch& launch) const {
  const uint32_t max_skipped = std::min(kMaxSkipped, count_ - 1);
  for (uint32_t distance = 1; distance <= max_skipped; ++distance) {
    const FlatLaunch& planned = launches_[after(position_, distance)];
    if (planned.signature == launch.signature &&
        has_same_addresses(planned, launch.addresses)) {
      return distance;
    }
  }
  return 0;
}

// Returns whether enough of the last launches had the plan's addresses.
bool Aligner::note_exactness(bool is_exact) {
  inexact_[1] = inexact_[1] << 1u | inexact_[0] >> 63u;
  inexact_[0] = inexact_[0] << 1u | (is_exact ? 0u : 1u);
  if (is_exact) return true;
  ++counters_.num_inexact;
  const int num_inexact =
      __builtin_popcountll(inexact_[0]) + __builtin_popcountll(inexact_[1]);
  return num_inexact < kMaxInexact;
}

// `distance` is at most the cycle's.
uint32_t Aligner::after(uint32_t position, uint32_t distance) const {
  const uint32_t sum = position + distance;
  return sum < count_ ? sum : sum - count_;
}

}  // namespace transit
