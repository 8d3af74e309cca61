// The environment the launcher made; read once.
#pragma once

#include <stdint.h>

namespace transit {

struct Settings {
  const char* run_dir;       // null: no status file
  const char* plan_dir;      // null: observe
  const char* backend;       // as given; null if unset
  const char* keep_modules;  // comma-separated prefixes; null if unset
  uint32_t rank;
  bool audit;
  uint64_t audit_bytes;   // of managed memory at most; 0: as the card has room
  uint64_t paging_bytes;  // the budget of a job without a plan; 0: nothing is paged
  bool paging_ahead;
  uint64_t host_memory_bytes;  // of all processes of the run at most; 0: no bound
  const char* paging_policy;   // as given; null if unset
  bool strict;
  bool log;
};

const Settings& settings();

}  // namespace transit
