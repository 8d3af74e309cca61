#include "recorder/native/scan_memo.h"

#include <algorithm>
#include <cstring>

namespace transit {
namespace {

constexpr uint32_t kWordBytes = sizeof(uint64_t);
constexpr uint32_t kTensorMapWords = TensorMaps::kBytes / kWordBytes;
// A word is read as one that may be an address, and with each tensor map it may be in.
constexpr size_t kMostReadsPerWord = 1 + TensorMaps::kBytes / TensorMaps::kAlignment;
constexpr uint64_t kGoldenRatio = 0x9E3779B97F4A7C15u;

thread_local bool t_is_destroyed = false;

}  // namespace

ScanMemo* ScanMemo::of_this_thread() {
  struct Owner {
    ScanMemo memo;
    ~Owner() { t_is_destroyed = true; }
  };
  if (t_is_destroyed) return nullptr;
  thread_local Owner owner;
  return &owner.memo;
}

Accesses ScanMemo::scan(const FunctionLayout& layout, void** kernel_params,
                        const LiveAllocations::View& live,
                        const TensorMaps& tensor_maps, AccessCollector& collector) {
  const Circumstances now{&layout, live.version(), tensor_maps.version()};
  const bool is_whole = read(layout, kernel_params, live, tensor_maps);
  const size_t slot = slot_of(layout);
  for (Entry* entry : {&slots_[slot], &slots_[slot ^ 1]}) {
    if (is_whole && entry->circumstances == now && is_known(*entry)) {
      return {entry->accesses.data(), entry->accesses.size()};
    }
  }
  collector.scan_parameters(layout, kernel_params);
  const Accesses found = collector.found();
  if (!is_whole || collector.num_dropped() > 0) return found;
  const bool is_taken = slots_[slot].circumstances.is_as_new_as(now);
  Entry& entry = slots_[is_taken ? slot ^ 1 : slot];
  entry.circumstances = now;
  entry.words.assign(words_.begin(), words_.begin() + num_words_);
  entry.offsets.assign(offsets_.begin(), offsets_.begin() + num_words_);
  entry.accesses.assign(found.begin, found.begin + found.count);
  return found;
}

// False if there is too much of it.
bool ScanMemo::read(const FunctionLayout& layout, void** kernel_params,
                    const LiveAllocations::View& live, const TensorMaps& tensor_maps) {
  num_words_ = 0;
  for (const Parameter& parameter : layout.parameters) {
    const auto* bytes = static_cast<const uint8_t*>(kernel_params[parameter.index]);
    if (bytes == nullptr) continue;
    const size_t most_words = kMostReadsPerWord * (parameter.bytes / kWordBytes);
    if (num_words_ + most_words > kMaxWords) return false;
    read_words(bytes, parameter, live.bounds());
    if (parameter.bytes >= TensorMaps::kBytes && tensor_maps.version() > 0) {
      read_tensor_maps(bytes, parameter, tensor_maps);
    }
  }
  return true;
}

// Without branches: which words may be addresses cannot be foretold.
void ScanMemo::read_words(const uint8_t* bytes, const Parameter& parameter,
                          const AddressBounds bounds) {
  const auto [index, offset, num_bytes] = parameter;
  size_t count = num_words_;
  for (uint32_t at = (0 - offset) % kWordBytes; at + kWordBytes <= num_bytes;
       at += kWordBytes) {
    uint64_t word;
    memcpy(&word, bytes + at, kWordBytes);
    words_[count] = word;
    offsets_[count] = offset + at;
    count += bounds.may_hold(word) ? 1 : 0;
  }
  num_words_ = count;
}

void ScanMemo::read_tensor_maps(const uint8_t* bytes, const Parameter& parameter,
                                const TensorMaps& tensor_maps) {
  constexpr uint32_t kAlignment = TensorMaps::kAlignment;
  for (uint32_t at = (0 - parameter.offset) % kAlignment;
       at + TensorMaps::kBytes <= parameter.bytes; at += kAlignment) {
    if (!tensor_maps.may_hold(bytes + at)) continue;
    memcpy(&words_[num_words_], bytes + at, TensorMaps::kBytes);
    for (uint32_t i = 0; i < kTensorMapWords; ++i) {
      offsets_[num_words_ + i] = parameter.offset + at + i * kWordBytes;
    }
    num_words_ += kTensorMapWords;
  }
}

size_t ScanMemo::slot_of(const FunctionLayout& layout) const {
  uint64_t hash = reinterpret_cast<uintptr_t>(&layout);
  for (size_t i = 0; i < num_words_; ++i) hash += words_[i] * (kGoldenRatio + 2 * i);
  return (hash * kGoldenRatio) >> (64 - kSlotBits);
}

bool ScanMemo::is_known(const Entry& entry) const {
  return entry.words.size() == num_words_ &&
         std::equal(entry.words.begin(), entry.words.end(), words_.begin()) &&
         std::equal(entry.offsets.begin(), entry.offsets.end(), offsets_.begin());
}

}  // namespace transit
