// The GPU code of checksums.cpp: sums up what is in memory.
#pragma once

#include <cstdint>

namespace transit {

constexpr char kChecksumKernel[] = "transit_checksum";
extern const char* const kChecksumPtx;

constexpr unsigned kChecksumBlockThreads = 256;
constexpr uint64_t kChecksumVectorBytes = 16;  // what a thread reads at a time

struct MemoryPiece {
  uint64_t address, bytes;
};

// Its one parameter; block (x, y) sums up a share of piece y. A row of blocks adds to
// one sum, and the sums lie two apart: before and after the launch.
struct ChecksumTable {
  static constexpr unsigned kMaxPieces = 255;  // a kernel takes 4 KiB of parameters

  uint64_t sums;
  MemoryPiece pieces[kMaxPieces];  // of 0 bytes behind the last
};
static_assert(sizeof(ChecksumTable) == 4088);

}  // namespace transit
