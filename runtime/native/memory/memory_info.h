// What the job is told of the memory it may have.
#pragma once

#include <stdint.h>

#include <optional>

#include "runtime/native/interpose/driver_api.h"

namespace transit {

struct MemoryInfo {
  uint64_t free_bytes;  // that it may still allocate
  uint64_t total_bytes;
};

// Nothing where the job has what the card has: the driver's answer is right there.
// `card_free_bytes` is that answer.
std::optional<MemoryInfo> memory_info(CUdevice device, uint64_t card_free_bytes);

// Before the first allocation, with its context current: says in the status file how
// full its card is.
void note_card();

}  // namespace transit
