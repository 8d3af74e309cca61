#include "runtime/native/lifecycle/settings.h"

#include <stdlib.h>
#include <string.h>

#include <initializer_list>

namespace transit {
namespace {

const char* value_of(const char* name) {
  const char* value = getenv(name);
  return value != nullptr && value[0] != '\0' ? value : nullptr;
}

bool is_on(const char* name) {
  const char* value = value_of(name);
  return value != nullptr && strcmp(value, "0") != 0;
}

// torchrun, Slurm, Open MPI, MPICH; a job of one process sets none of them.
uint32_t rank_of_this_process() {
  for (const char* name :
       {"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"}) {
    const char* value = value_of(name);
    if (value == nullptr) continue;
    char* end = nullptr;
    const unsigned long rank = strtoul(value, &end, 10);
    if (*end == '\0' && rank <= UINT32_MAX) return static_cast<uint32_t>(rank);
  }
  return 0;
}

// A number of GiB, which may be a fraction; 0 if unset or no such number.
uint64_t bytes_of_gib(const char* name) {
  constexpr double kGib = 1 << 30, kMostGib = 1 << 20;
  const char* value = value_of(name);
  if (value == nullptr) return 0;
  char* end = nullptr;
  const double gib = strtod(value, &end);
  const bool is_size = *end == '\0' && gib > 0 && gib <= kMostGib;
  return is_size ? static_cast<uint64_t>(gib * kGib) : 0;
}

// 0 if unset or no such number.
uint64_t bytes_of(const char* name) {
  const char* value = value_of(name);
  if (value == nullptr) return 0;
  char* end = nullptr;
  const unsigned long long bytes = strtoull(value, &end, 10);
  return *end == '\0' ? bytes : 0;
}

// getenv's strings may be moved by a later setenv of the job.
const char* copy_of(const char* name) {
  const char* value = value_of(name);
  return value != nullptr ? strdup(value) : nullptr;
}

}  // namespace

const Settings& settings() {
  static const Settings instance{
      copy_of("TRANSIT_RUN_DIR"),
      copy_of("TRANSIT_PLAN_DIR"),
      copy_of("TRANSIT_BACKEND"),
      copy_of("TRANSIT_KEEP_MODULES"),
      rank_of_this_process(),
      is_on("TRANSIT_AUDIT"),
      bytes_of_gib("TRANSIT_AUDIT_GIB"),
      bytes_of("TRANSIT_PAGING_BYTES"),
      is_on("TRANSIT_PAGING_AHEAD"),
      bytes_of("TRANSIT_HOST_MEMORY_BYTES"),
      copy_of("TRANSIT_PAGING_POLICY"),
      is_on("TRANSIT_STRICT"),
      is_on("TRANSIT_LOG"),
  };
  return instance;
}

}  // namespace transit
