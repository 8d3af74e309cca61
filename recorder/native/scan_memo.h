// What earlier launches with the same parameters were found to touch. Training repeats
// its launches, pointers and all.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "recorder/native/allocations.h"
#include "recorder/native/function_layouts.h"
#include "recorder/native/parameter_scan.h"
#include "recorder/native/tensor_maps.h"

namespace transit {

class ScanMemo {
 public:
  // Null once the thread's own storage is destroyed: it may launch even then.
  static ScanMemo* of_this_thread();

  // As AccessCollector::scan_parameters, which is asked about parameters that are new.
  // Valid until the next call.
  Accesses scan(const FunctionLayout& layout, void** kernel_params,
                const LiveAllocations::View& live, const TensorMaps& tensor_maps,
                AccessCollector& collector);

 private:
  // What a scan's result depends on beside the words.
  struct Circumstances {
    const FunctionLayout* layout = nullptr;
    uint64_t live_version = 0, tensor_maps_version = 0;

    bool is_as_new_as(const Circumstances& other) const {
      return live_version == other.live_version &&
             tensor_maps_version == other.tensor_maps_version;
    }
    bool operator==(const Circumstances& other) const {
      return layout == other.layout && is_as_new_as(other);
    }
  };

  struct Entry {
    Circumstances circumstances;
    std::vector<uint64_t> words;
    std::vector<uint32_t> offsets;
    std::vector<AccessRecord> accesses;
  };

  static constexpr unsigned kSlotBits = 13;
  static constexpr size_t kMaxWords = 1 << 12;

  bool read(const FunctionLayout& layout, void** kernel_params,
            const LiveAllocations::View& live, const TensorMaps& tensor_maps);
  void read_words(const uint8_t* bytes, const Parameter& parameter,
                  AddressBounds bounds);
  void read_tensor_maps(const uint8_t* bytes, const Parameter& parameter,
                        const TensorMaps& tensor_maps);
  size_t slot_of(const FunctionLayout& layout) const;
  bool is_known(const Entry& entry) const;

  std::vector<Entry> slots_{size_t{1} << kSlotBits};

  // Of the launch at hand: words that may be addresses, and all of what may be a tensor
  // map, with their places in the parameter block. No other word makes a difference.
  size_t num_words_ = 0;
  std::array<uint64_t, kMaxWords> words_;
  std::array<uint32_t, kMaxWords> offsets_;
};

}  // namespace transit
