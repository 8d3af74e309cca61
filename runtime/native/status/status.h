// The counters of this process: in $TRANSIT_RUN_DIR/status-<pid>.bin once it exists,
// in memory of our own before and without it.
#pragma once

#include <atomic>

#include "runtime/native/status_file.h"

namespace transit::status {

extern std::atomic<StatusFile*> g_page;

inline void add(uint64_t StatusFile::* counter, uint64_t n = 1) {
  StatusFile* page = g_page.load(std::memory_order_relaxed);
  __atomic_fetch_add(&(page->*counter), n, __ATOMIC_RELAXED);
}

inline uint64_t get(uint64_t StatusFile::* counter) {
  StatusFile* page = g_page.load(std::memory_order_relaxed);
  return __atomic_load_n(&(page->*counter), __ATOMIC_RELAXED);
}

void add_bytes(uint64_t StatusFile::* now, uint64_t StatusFile::* peak, uint64_t bytes);
void subtract_bytes(uint64_t StatusFile::* now, uint64_t bytes);

// As these, for memory of a GPU: each change is checked against the budget.
void add_gpu_bytes(int device, uint64_t StatusFile::* now, uint64_t StatusFile::* peak,
                   uint64_t bytes);
void subtract_gpu_bytes(int device, uint64_t StatusFile::* now, uint64_t bytes);

// Resident, passed and spare memory of a GPU.
uint64_t gpu_bytes(int device);

// For each GPU; to be called once, before all else is counted.
void set_budget(uint64_t bytes);

// One caller at a time.
void add_lap(uint64_t duration_ns);

void set_state(ShimState state, BackendKind backend);

// Keeps the first message only.
void set_message(const char* message);

// Creates the file in `run_dir`; without one (null), or if that fails, counts in
// memory.
void create(const char* run_dir, uint32_t rank);

// In a fork child: its parent's file is not its own.
void detach();

}  // namespace transit::status
