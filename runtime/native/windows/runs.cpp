#include "runtime/native/windows/runs.h"

#include <algorithm>

namespace transit {
namespace {

constexpr uint64_t kBase = 0x9E3779B97F4A7C15;

// An evaluation runs a step's kernels on other tensors; a step's own differ in few.
constexpr uint32_t kMaxInexactPercent = 10;

uint64_t hash_of(const FlatLaunch& launch) {
  return (launch.signature ^ launch.addresses >> 1) * kBase + launch.addresses;
}

}  // namespace

Run::Run(uint32_t length) : length_(length) {
  for (uint32_t i = 0; i < length; ++i) weight_of_dropped_ *= kBase;
}

void Run::add(const FlatLaunch& launch) {
  signatures_hash_ = signatures_hash_ * kBase + launch.signature;
  launches_hash_ = launches_hash_ * kBase + hash_of(launch);
  if (!is_full()) {
    launches_[num_launches_++] = launch;
    return;
  }
  FlatLaunch& oldest = launches_[oldest_];
  signatures_hash_ -= oldest.signature * weight_of_dropped_;
  launches_hash_ -= hash_of(oldest) * weight_of_dropped_;
  oldest = launch;
  oldest_ = oldest_ + 1 < length_ ? oldest_ + 1 : 0;
}

void Run::clear() {
  num_launches_ = oldest_ = 0;
  signatures_hash_ = launches_hash_ = 0;
}

RunIndex::RunIndex(const FlatLaunch* launches, uint32_t count, uint32_t run_length)
    : launches_(launches), count_(count) {
  by_signatures_.reserve(count);
  by_launches_.reserve(count);
  Run run(run_length);
  for (uint32_t i = count - run_length + 1; i < count; ++i) run.add(launches[i]);
  for (uint32_t position = 0; position < count; ++position) {
    run.add(launches[position]);
    by_signatures_.push_back({run.signatures_hash(), position});
    by_launches_.push_back({run.launches_hash(), position});
  }
  sort(by_signatures_);
  sort(by_launches_);
}

void RunIndex::sort(Places& places) {
  std::sort(places.begin(), places.end(),
            [](const Place& a, const Place& b) { return a.hash < b.hash; });
}

std::optional<uint32_t> RunIndex::find_only(const Places& places, uint64_t hash) {
  const auto place =
      std::lower_bound(places.begin(), places.end(), hash,
                       [](const Place& a, uint64_t wanted) { return a.hash < wanted; });
  if (place == places.end() || place->hash != hash) return std::nullopt;
  const auto next = place + 1;
  if (next != places.end() && next->hash == hash) return std::nullopt;
  return place->position;
}

std::optional<uint32_t> RunIndex::find(const Run& run) const {
  auto position = find_only(by_launches_, run.launches_hash());
  if (!position) position = find_only(by_signatures_, run.signatures_hash());
  if (!position || !is_run_at(*position, run)) return std::nullopt;
  return position;
}

// Hashes may lie; and the addresses are not in that of the signatures.
bool RunIndex::is_run_at(uint32_t position, const Run& run) const {
  uint32_t num_inexact = 0;
  uint32_t place = (position + count_ - run.length() + 1) % count_;
  for (uint32_t i = 0; i < run.length(); ++i) {
    const FlatLaunch& planned = launches_[place];
    if (run[i].signature != planned.signature) return false;
    if (!has_same_addresses(planned, run[i].addresses)) ++num_inexact;
    if (num_inexact * 100 > run.length() * kMaxInexactPercent) return false;
    place = place + 1 == count_ ? 0 : place + 1;
  }
  return true;
}

}  // namespace transit
