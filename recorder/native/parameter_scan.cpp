#include "recorder/native/parameter_scan.h"

#include <cuda.h>

#include <cstring>

namespace transit {

void AccessCollector::start(const LiveAllocations::View& live,
                            const TensorMaps& tensor_maps) {
  live_ = &live;
  tensor_maps_ = &tensor_maps;
  num_accesses_ = 0;
  num_dropped_ = 0;
}

AccessRecord* AccessCollector::append() {
  if (num_accesses_ == kMaxAccesses) {
    ++num_dropped_;
    return nullptr;
  }
  return &accesses_[num_accesses_++];
}

void AccessCollector::add_range(uint64_t address, uint64_t bytes, Direction direction,
                                AccessSource source) {
  const LiveRange* range = live_->find(address);
  if (range == nullptr || bytes == 0) return;
  if (AccessRecord* access = append()) {
    *access = {0,
               address,
               bytes,
               range->allocation_id,
               static_cast<uint32_t>(direction),
               static_cast<uint32_t>(source),
               0};
  }
}

void AccessCollector::scan_parameters(const FunctionLayout& layout,
                                      void** kernel_params) {
  for (const Parameter& parameter : layout.parameters) {
    const void* value = kernel_params[parameter.index];
    if (value != nullptr) scan_words(value, parameter.bytes, parameter.offset);
  }
}

void AccessCollector::scan_buffer(void** extra) {
  const void* buffer = nullptr;
  size_t num_bytes = 0;
  for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
    if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = extra[1];
    if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      num_bytes = *static_cast<const size_t*>(extra[1]);
    }
  }
  if (buffer != nullptr) scan_words(buffer, static_cast<uint32_t>(num_bytes), 0);
}

void AccessCollector::scan_words(const void* bytes, uint32_t num_bytes,
                                 uint32_t param_offset) {
  constexpr uint32_t kWord = sizeof(uint64_t);
  const auto* block = static_cast<const uint8_t*>(bytes);
  // Pointers are aligned in the parameter block, not where the caller keeps the value.
  for (uint32_t at = (kWord - param_offset % kWord) % kWord; at + kWord <= num_bytes;
       at += kWord) {
    TensorRange tensor;
    if ((param_offset + at) % TensorMaps::kAlignment == 0 &&
        at + TensorMaps::kBytes <= num_bytes &&
        tensor_maps_->find(block + at, tensor)) {
      add_parameter(tensor.address, tensor.bytes, AccessSource::kTensorMap,
                    param_offset + at);
      at += TensorMaps::kBytes - kWord;
      continue;
    }
    uint64_t word;
    memcpy(&word, block + at, kWord);
    if (live_->bounds().may_hold(word)) {
      add_parameter(word, kUnknownBytes, AccessSource::kParameter, param_offset + at);
    }
  }
}

void AccessCollector::add_parameter(uint64_t address, uint64_t bytes,
                                    AccessSource source, uint32_t param_offset) {
  const LiveRange* range = live_->find(address);
  if (range == nullptr) return;
  if (AccessRecord* access = append()) {
    *access = {0,
               address,
               bytes,
               range->allocation_id,
               static_cast<uint32_t>(Direction::kUnknown),
               static_cast<uint32_t>(source),
               param_offset};
  }
}

}  // namespace transit
