// Lets a past remember work: from stdin, for each piece, its key, how many addresses it
// names, and those, all as 64-bit words. Prints a line for each piece: when the job
// last was there, and what it named next.
#include <cstdint>
#include <cstdio>
#include <vector>

#include "runtime/native/paging/past.h"

int main() {
  transit::Past past;
  uint64_t head[2];
  while (fread(head, sizeof(head), 1, stdin) == 1) {
    std::vector<CUdeviceptr> named(head[1]);
    if (fread(named.data(), sizeof(named[0]), named.size(), stdin) != named.size()) {
      return 2;
    }
    past.note(head[0], named.data(), named.data() + named.size());
    printf("%lu", past.then());
    if (past.then() != 0) {
      for (const CUdeviceptr address : past.named_at(past.then() + 1)) {
        printf(" %llu", address);
      }
    }
    printf("\n");
  }
}
