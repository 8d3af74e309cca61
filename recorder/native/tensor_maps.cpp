#include "recorder/native/tensor_maps.h"

#include <algorithm>
#include <cstring>

#include "recorder/native/spool_format.h"

namespace transit {
namespace {

constexpr CUpti_CallbackId kCalls[] = {
    CUPTI_DRIVER_TRACE_CBID_cuTensorMapEncodeTiled,
    CUPTI_DRIVER_TRACE_CBID_cuTensorMapEncodeIm2col,
    CUPTI_DRIVER_TRACE_CBID_cuTensorMapEncodeIm2colWide,
    CUPTI_DRIVER_TRACE_CBID_cuTensorMapReplaceAddress,
};
constexpr uint64_t kNotRemembered = UINT64_MAX;

// 0 for a type that is newer than this code. Packed types have gaps only in shared
// memory.
uint64_t bits_per_element(CUtensorMapDataType type) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B:
    case CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B:
      return 4;
    case CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B:
      return 6;
    case CU_TENSOR_MAP_DATA_TYPE_UINT8:
      return 8;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
      return 16;
    case CU_TENSOR_MAP_DATA_TYPE_UINT32:
    case CU_TENSOR_MAP_DATA_TYPE_INT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ:
    case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32:
    case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ:
      return 32;
    case CU_TENSOR_MAP_DATA_TYPE_UINT64:
    case CU_TENSOR_MAP_DATA_TYPE_INT64:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT64:
      return 64;
    default:
      return 0;
  }
}

// From a tensor's first byte to its last, the gaps between rows included. Not known of
// an interleaved one: its strides do not say how far its slices are apart.
template <typename P>
uint64_t reachable_bytes(const P& p) {
  const uint64_t bits = bits_per_element(p.tensorDataType);
  if (bits == 0 || p.interleave != CU_TENSOR_MAP_INTERLEAVE_NONE) return kUnknownBytes;
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(p.globalDim[0], bits, &bytes)) return kUnknownBytes;
  bytes = bytes / 8 + (bytes % 8 != 0);
  for (uint32_t i = 1; i < p.tensorRank; ++i) {
    uint64_t further = 0;
    if (__builtin_mul_overflow(p.globalDim[i] - 1, p.globalStrides[i - 1], &further) ||
        __builtin_add_overflow(bytes, further, &bytes)) {
      return kUnknownBytes;
    }
  }
  return bytes;
}

template <typename P>
void encoded(TensorMaps& maps, const void* params) {
  const auto& p = *static_cast<const P*>(params);
  maps.remember(p.tensorMap,
                {reinterpret_cast<uint64_t>(p.globalAddress), reachable_bytes(p)});
}

}  // namespace

void TensorMaps::enable_callbacks(const CuptiApi& cupti,
                                  CUpti_SubscriberHandle subscriber) {
  // An older CUPTI does not know all of them, and then nor does the driver.
  for (const CUpti_CallbackId cbid : kCalls) {
    cupti.enable_callback(subscriber, CUPTI_CB_DOMAIN_DRIVER_API, cbid);
  }
}

bool TensorMaps::on_driver_call(CUpti_CallbackId cbid, const CUpti_CallbackData& call) {
  if (std::find(std::begin(kCalls), std::end(kCalls), cbid) == std::end(kCalls)) {
    return false;
  }
  const bool enters = call.callbackSite == CUPTI_API_ENTER;
  if (!enters &&
      *static_cast<const CUresult*>(call.functionReturnValue) != CUDA_SUCCESS) {
    return true;
  }
  if (cbid == CUPTI_DRIVER_TRACE_CBID_cuTensorMapReplaceAddress) {
    // Its extent stays; what it was is gone when the call returns.
    const auto& p =
        *static_cast<const cuTensorMapReplaceAddress_params*>(call.functionParams);
    TensorRange range{};
    if (enters) {
      const bool known = p.tensorMap != nullptr && find(p.tensorMap, range);
      *call.correlationData = known ? range.bytes : kNotRemembered;
    } else if (*call.correlationData != kNotRemembered) {
      remember(p.tensorMap,
               {reinterpret_cast<uint64_t>(p.globalAddress), *call.correlationData});
    }
    return true;
  }
  if (enters) return true;
  switch (cbid) {
    case CUPTI_DRIVER_TRACE_CBID_cuTensorMapEncodeTiled:
      encoded<cuTensorMapEncodeTiled_params>(*this, call.functionParams);
      break;
    case CUPTI_DRIVER_TRACE_CBID_cuTensorMapEncodeIm2col:
      encoded<cuTensorMapEncodeIm2col_params>(*this, call.functionParams);
      break;
    default:
      encoded<cuTensorMapEncodeIm2colWide_params>(*this, call.functionParams);
  }
  return true;
}

void TensorMaps::remember(const void* descriptor, const TensorRange& range) {
  TensorRange known{};
  if (find(descriptor, known)) return;  // most are encoded again and again
  const std::lock_guard<std::mutex> lock(writing_);
  Table* table = table_.load(std::memory_order_relaxed);
  if (table == nullptr) {
    table = new Table;
    table_.store(table, std::memory_order_release);
  }
  const Words words = words_of(descriptor);
  const size_t first = first_slot(words);
  size_t way = 0;
  while (way < kWays && !table->slots[first + way].is_empty()) ++way;
  if (way == kWays) way = next_victim_++ % kWays;
  table->slots[first + way].write(words, range);
  const size_t bit = filter_bit(descriptor);
  table->filter[bit / 64].fetch_or(uint64_t{1} << (bit % 64),
                                   std::memory_order_release);
  version_.fetch_add(1, std::memory_order_release);
}

// Every word of the slot is read with acquire order, so that the second look at the
// version comes after them.
bool TensorMaps::Slot::read(const Words& wanted, TensorRange& range) const {
  const uint64_t before = version.load(std::memory_order_acquire);
  if (before == 0 || before % 2 != 0) return false;
  for (size_t i = 0; i < kWords; ++i) {
    if (words[i].load(std::memory_order_acquire) != wanted[i]) return false;
  }
  range = {address.load(std::memory_order_acquire),
           bytes.load(std::memory_order_acquire)};
  return version.load(std::memory_order_relaxed) == before;
}

void TensorMaps::Slot::write(const Words& wanted, const TensorRange& range) {
  const uint64_t before = version.load(std::memory_order_relaxed);
  version.store(before + 1, std::memory_order_relaxed);
  for (size_t i = 0; i < kWords; ++i) {
    words[i].store(wanted[i], std::memory_order_release);
  }
  address.store(range.address, std::memory_order_release);
  bytes.store(range.bytes, std::memory_order_release);
  version.store(before + 2, std::memory_order_release);
}

bool TensorMaps::Table::find(const void* bytes, TensorRange& range) const {
  const Words words = words_of(bytes);
  const size_t first = first_slot(words);
  for (size_t way = 0; way < kWays; ++way) {
    if (slots[first + way].read(words, range)) return true;
  }
  return false;
}

TensorMaps::Words TensorMaps::words_of(const void* bytes) {
  Words words;
  memcpy(words.data(), bytes, kBytes);
  return words;
}

size_t TensorMaps::first_slot(const Words& words) {
  uint64_t hash = 0;
  for (const uint64_t word : words) hash = (hash ^ word) * kGoldenRatio;
  return (hash >> 32u) % (kNumSlots / kWays) * kWays;
}

}  // namespace transit
