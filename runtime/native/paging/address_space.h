// Addresses for what is paged: one range, reserved for good, of which parts are taken
// and given back.
#pragma once

#include <stdint.h>

#include <map>

#include "runtime/native/windows/live_pieces.h"
#include "runtime/native/windows/named_addresses.h"

namespace transit {

class AddressSpace {
 public:
  AddressSpace(CUdeviceptr lowest, uint64_t bytes)
      : lowest_(lowest), bytes_(bytes), live_(bytes) {}

  // The lowest that are free, in whole pieces; 0 if there are none.
  CUdeviceptr take(uint64_t bytes);
  void give_back(CUdeviceptr address);

  // Tells addresses of what is taken from other words.
  AddressFilter filter() const { return {lowest_, bytes_, live_.words()}; }

 private:
  const CUdeviceptr lowest_;
  const uint64_t bytes_;
  LivePieces live_;
  std::map<uint64_t, uint64_t> taken_;  // offset to end
};

}  // namespace transit
