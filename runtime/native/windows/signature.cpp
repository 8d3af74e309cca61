#include "runtime/native/windows/signature.h"

#include "runtime/native/windows/functions.h"

namespace transit {
namespace {

constexpr uint64_t kOffset = 0xcbf29ce484222325;  // of 64-bit FNV-1a
constexpr uint64_t kPrime = 0x100000001b3;

uint64_t step(uint64_t hash, uint64_t value) { return (hash ^ value) * kPrime; }

}  // namespace

bool can_sign() { return functions::can_describe(); }

uint64_t hash_of_name(const char* name) {
  uint64_t hash = kOffset;
  for (; *name != '\0'; ++name) hash = step(hash, static_cast<unsigned char>(*name));
  return hash;
}

uint64_t signature_of(const Work& work) {
  uint64_t hash = work.kind == Work::Kind::kKernel
                      ? functions::describe(work.function).name_hash
                      : hash_of_name(work.symbol);
  hash = step(hash, static_cast<uint64_t>(work.kind));
  for (const uint32_t size : work.grid) hash = step(hash, size);
  for (const uint32_t size : work.block) hash = step(hash, size);
  return hash;
}

}  // namespace transit
