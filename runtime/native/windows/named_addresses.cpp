#include "runtime/native/windows/named_addresses.h"

#include <string.h>

#include <algorithm>

#include "runtime/native/windows/functions.h"

namespace transit {
namespace {

constexpr size_t kWordBytes = sizeof(uint64_t);

// splitmix64, as compiler/arrays.py mixes.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

}  // namespace

bool AddressFilter::accepts(uint64_t word) const {
  const uint64_t offset = word - lowest;
  if (offset >= span_bytes) return false;
  const uint64_t piece = offset / kPieceBytes;
  return (live_pieces[piece / 64].load(std::memory_order_relaxed) >> piece % 64 & 1) !=
         0;
}

void NamedAddresses::collect(const Work& work, const AddressFilter& filter,
                             const Entries<uint32_t>* words) {
  filter_ = filter;
  words_ = words;
  hash_ = 0;
  count_ = 0;
  is_whole_ = work.kind != Work::Kind::kGraph && !work.has_more_ranges;
  if (work.kind == Work::Kind::kKernel) collect_from_parameters(work);
  for (uint32_t i = 0; i < work.num_ranges; ++i) {
    if (filter_.accepts(work.ranges[i].address)) add(work.ranges[i].address);
  }
}

void NamedAddresses::collect_from_parameters(const Work& work) {
  if (work.params == nullptr && work.extra != nullptr) {
    return collect_from_buffer(work.extra);
  }
  for (const auto& parameter : functions::describe(work.function).parameters) {
    const void* value = work.params != nullptr ? work.params[parameter.index] : nullptr;
    if (value == nullptr) {
      is_whole_ = false;
      continue;
    }
    add_words(value, parameter.bytes, parameter.offset);
  }
}

void NamedAddresses::collect_from_buffer(void** extra) {
  const void* buffer = nullptr;
  size_t num_bytes = 0;
  for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
    if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = extra[1];
    if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      num_bytes = *static_cast<const size_t*>(extra[1]);
    }
  }
  if (buffer != nullptr) add_words(buffer, num_bytes, 0);
}

// Addresses are aligned in the parameter block, not where the caller keeps the value.
void NamedAddresses::add_words(const void* bytes, size_t num_bytes, size_t offset) {
  const auto* block = static_cast<const uint8_t*>(bytes);
  if (words_ == nullptr) {
    for (size_t at = (kWordBytes - offset % kWordBytes) % kWordBytes;
         at + kWordBytes <= num_bytes; at += kWordBytes) {
      add_word(block + at);
    }
    return;
  }
  const size_t end = offset + num_bytes;
  for (const uint32_t* word = std::lower_bound(words_->begin(), words_->end(), offset);
       word != words_->end() && *word + kWordBytes <= end; ++word) {
    add_word(block + (*word - offset));
  }
}

void NamedAddresses::add_word(const void* at) {
  uint64_t word;
  memcpy(&word, at, kWordBytes);
  if (filter_.accepts(word)) add(word);
}

void NamedAddresses::add(CUdeviceptr address) {
  if (count_ == kMaxAddresses) {
    is_whole_ = false;
    return;
  }
  const uint16_t slot = slot_for(address);
  if (is_taken(slot)) return;
  slots_[slot] = static_cast<uint16_t>(count_);
  slot_of_[count_] = slot;
  addresses_[count_++] = address;
  hash_ += mix(address - filter_.lowest);
}

// The table is never cleared: a slot counts only if the address it names names it too.
uint16_t NamedAddresses::slot_for(CUdeviceptr address) const {
  auto slot = static_cast<uint16_t>(address * 0x9E3779B97F4A7C15u >> 51u);
  static_assert(kNumSlots == 1u << (64u - 51u));
  while (is_taken(slot) && addresses_[slots_[slot]] != address) {
    slot = static_cast<uint16_t>((slot + 1) % kNumSlots);
  }
  return slot;
}

}  // namespace transit
