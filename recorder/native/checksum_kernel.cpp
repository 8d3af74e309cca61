#include "recorder/native/checksum_kernel.h"

namespace transit {

// MurmurHash3's last steps, in place.
#define MIX(word)                \
  "  shr.u64 %high_bits, " word  \
  ", 33;\n"                      \
  "  xor.b64 " word ", " word    \
  ", %high_bits;\n"              \
  "  mul.lo.u64 " word ", " word \
  ", 0xff51afd7ed558ccd;\n"      \
  "  shr.u64 %high_bits, " word  \
  ", 33;\n"                      \
  "  xor.b64 " word ", " word    \
  ", %high_bits;\n"              \
  "  mul.lo.u64 " word ", " word \
  ", 0xc4ceb9fe1a85ec53;\n"      \
  "  shr.u64 %high_bits, " word  \
  ", 33;\n"                      \
  "  xor.b64 " word ", " word ", %high_bits;\n"

// A sum over mixed words does not depend on the order in which blocks get to add
// theirs. Before it is mixed, a word gets a multiple of the golden ratio that tells its
// place, so that words that only moved are seen, too. What is in front of the first and
// behind the last aligned 16 bytes is mixed byte by byte.
const char* const kChecksumPtx = R"(
.version 6.0
.target sm_50
.address_size 64

.visible .entry transit_checksum(.param .align 8 .b8 table[4088])
{
  .reg .pred %is_done, %is_tail, %is_first, %is_nothing;
  .reg .b32 %small, %lane, %low, %high, %other_low, %other_high;
  .reg .b64 %entry, %sums, %address, %bytes, %thread, %threads, %sum, %other;
  .reg .b64 %head, %vectors, %edges, %start, %place, %step, %at, %w0, %w1, %key;
  .reg .b64 %high_bits;

  mov.u64 %entry, table;
  ld.param.u64 %sums, [%entry];
  mov.u32 %small, %ctaid.y;
  mul.wide.u32 %place, %small, 16;
  add.u64 %sums, %sums, %place;
  add.u64 %entry, %entry, %place;
  ld.param.u64 %address, [%entry+8];
  ld.param.u64 %bytes, [%entry+16];

  mov.u32 %small, %ctaid.x;
  mov.u32 %low, %ntid.x;
  mov.u32 %lane, %tid.x;
  mul.wide.u32 %thread, %small, %low;
  cvt.u64.u32 %place, %lane;
  add.u64 %thread, %thread, %place;
  mov.u32 %small, %nctaid.x;
  mul.wide.u32 %threads, %small, %low;
  mov.u64 %sum, 0;

  // The head up to the first aligned vector, vectors, and a tail.
  neg.s64 %head, %address;
  and.b64 %head, %head, 15;
  min.u64 %head, %head, %bytes;
  sub.u64 %vectors, %bytes, %head;
  and.b64 %edges, %vectors, 15;
  add.u64 %edges, %edges, %head;
  shr.u64 %vectors, %vectors, 4;
  add.u64 %start, %address, %head;

  setp.ge.u64 %is_done, %thread, %edges;
  @%is_done bra VECTORS;
  setp.ge.u64 %is_tail, %thread, %head;
  mov.u64 %place, %thread;
  shl.b64 %at, %vectors, 4;
  @%is_tail add.u64 %place, %place, %at;
  add.u64 %at, %address, %place;
  ld.global.u8 %w0, [%at];
  mul.lo.u64 %place, %place, 0x9e3779b97f4a7c15;
  add.u64 %w0, %w0, %place;
  not.b64 %w0, %w0;
)" MIX("%w0") R"(
  add.u64 %sum, %sum, %w0;

VECTORS:
  mul.lo.u64 %key, %thread, 0x3c6ef372fe94f82a;
  mul.lo.u64 %step, %threads, 0x3c6ef372fe94f82a;
  shl.b64 %at, %thread, 4;
  add.u64 %at, %start, %at;
  shl.b64 %place, %threads, 4;
NEXT:
  setp.ge.u64 %is_done, %thread, %vectors;
  @%is_done bra REDUCE;
  ld.global.v2.u64 {%w0, %w1}, [%at];
  add.u64 %w0, %w0, %key;
  add.u64 %w1, %w1, %key;
  add.u64 %w1, %w1, 0x9e3779b97f4a7c15;
)" MIX("%w0") R"(
)" MIX("%w1") R"(
  add.u64 %sum, %sum, %w0;
  add.u64 %sum, %sum, %w1;
  add.u64 %key, %key, %step;
  add.u64 %at, %at, %place;
  add.u64 %thread, %thread, %threads;
  bra NEXT;

  // Within a warp by exchanges, the warps' sums in memory.
REDUCE:
  mov.u32 %small, 16;
HALVE:
  mov.b64 {%low, %high}, %sum;
  shfl.sync.down.b32 %other_low, %low, %small, 31, 0xffffffff;
  shfl.sync.down.b32 %other_high, %high, %small, 31, 0xffffffff;
  mov.b64 %other, {%other_low, %other_high};
  add.u64 %sum, %sum, %other;
  shr.u32 %small, %small, 1;
  setp.ne.u32 %is_done, %small, 0;
  @%is_done bra HALVE;

  and.b32 %lane, %lane, 31;
  setp.ne.u32 %is_first, %lane, 0;
  setp.eq.u64 %is_nothing, %sum, 0;
  or.pred %is_done, %is_first, %is_nothing;
  @%is_done bra END;
  red.global.add.u64 [%sums], %sum;
END:
  ret;
}
)";
#undef MIX

}  // namespace transit
