// Lets an aligner follow a job: from stdin the numbers of the plan's launches and of
// the job's, then both, a signature and addresses each, all as 64-bit words. Prints a
// line for each launch of the job, and the counters.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "runtime/native/windows/aligner.h"

namespace {

std::vector<transit::FlatLaunch> read_launches(uint64_t count) {
  std::vector<transit::FlatLaunch> launches(count);
  for (auto& launch : launches) {
    uint64_t words[2];
    if (fread(words, sizeof(words), 1, stdin) != 1) exit(2);
    launch = {words[0], words[1], 0, 0};
  }
  return launches;
}

}  // namespace

int main() {
  uint64_t counts[2];
  if (fread(counts, sizeof(counts[0]), 2, stdin) != 2) return 2;
  const auto planned = read_launches(counts[0]);
  transit::Aligner aligner(planned.data(), static_cast<uint32_t>(planned.size()));
  for (const auto& launch : read_launches(counts[1])) {
    const auto step = aligner.next(launch.signature, launch.addresses);
    printf("%d %u %u %d %d %u\n", static_cast<int>(step.where), step.position,
           step.num_skipped, step.is_exact, step.is_newly_locked, aligner.position());
  }
  const auto& counters = aligner.counters();
  printf("%lu %lu %lu %lu %lu\n", counters.num_locks, counters.num_unlocks,
         counters.num_inserted, counters.num_skipped, counters.num_inexact);
}
