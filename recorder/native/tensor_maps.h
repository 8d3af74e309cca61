// The tensor maps that the job encodes: descriptors which kernels take by value, in a
// form that only the driver knows.
#pragma once

#include <cupti.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>

#include "recorder/native/cupti_api.h"

namespace transit {

struct TensorRange {
  uint64_t address;
  uint64_t bytes;  // from the first to the last; kUnknownBytes: not known
};

// Known by what the driver wrote for them. The same bytes always mean the same tensor,
// so nothing here grows old: when there is no room left, the newest take the places of
// others, which are then unknown. Looked up without a lock.
class TensorMaps {
 public:
  static constexpr size_t kBytes = sizeof(CUtensorMap);
  static constexpr size_t kAlignment = 64;  // CUDA 12's; later 128

  void enable_callbacks(const CuptiApi& cupti, CUpti_SubscriberHandle subscriber);

  // At both sites of a call. False: the call is not about tensor maps.
  bool on_driver_call(CUpti_CallbackId cbid, const CUpti_CallbackData& call);

  // Another one whenever find() may have another answer; 0 as long as all are alike.
  uint64_t version() const { return version_.load(std::memory_order_acquire); }

  // False for nearly all bytes that are no descriptor.
  bool may_hold(const void* bytes) const {
    const Table* table = table_.load(std::memory_order_acquire);
    return table != nullptr && table->may_hold(bytes);
  }

  // The tensor that a descriptor at `bytes` stands for. False if these bytes are none,
  // or one that was not seen being encoded.
  bool find(const void* bytes, TensorRange& range) const {
    const Table* table = table_.load(std::memory_order_acquire);
    return table != nullptr && table->may_hold(bytes) && table->find(bytes, range);
  }

  void remember(const void* descriptor, const TensorRange& range);

 private:
  static constexpr size_t kWords = kBytes / sizeof(uint64_t);
  static constexpr size_t kWays = 4;
  static constexpr size_t kNumSlots = 1 << 14;
  static constexpr size_t kFilterBits = 1 << 15;
  static constexpr uint64_t kGoldenRatio = 0x9E3779B97F4A7C15u;

  using Words = std::array<uint64_t, kWords>;

  // Written by one thread at a time; odd versions while that goes on.
  struct Slot {
    std::atomic<uint64_t> version{0};
    std::array<std::atomic<uint64_t>, kWords> words{};
    std::atomic<uint64_t> address{0}, bytes{0};

    bool is_empty() const { return version.load(std::memory_order_relaxed) == 0; }
    bool read(const Words& wanted, TensorRange& range) const;
    void write(const Words& wanted, const TensorRange& range);
  };

  struct Table {
    std::array<std::atomic<uint64_t>, kFilterBits / 64> filter{};  // by the first words
    std::array<Slot, kNumSlots> slots{};

    // Most places in a parameter block hold no descriptor: two words tell.
    bool may_hold(const void* bytes) const {
      const size_t bit = filter_bit(bytes);
      return (filter[bit / 64].load(std::memory_order_acquire) >> (bit % 64) & 1u) != 0;
    }
    bool find(const void* bytes, TensorRange& range) const;
  };

  static Words words_of(const void* bytes);
  static size_t filter_bit(const void* bytes) {
    uint64_t words[2];
    memcpy(words, bytes, sizeof(words));
    const uint64_t key = (words[0] * kGoldenRatio) ^ words[1];
    return (key * kGoldenRatio >> 32u) % kFilterBits;
  }
  static size_t first_slot(const Words& words);

  std::atomic<Table*> table_{nullptr};  // made for the first one; never destroyed
  std::atomic<uint64_t> version_{0};
  std::mutex writing_;
  size_t next_victim_ = 0;
};

}  // namespace transit
