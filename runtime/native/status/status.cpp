#include "runtime/native/status/status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/native/lifecycle/log.h"

namespace transit::status {
namespace {

StatusFile g_in_memory{};

// By device: the file has their sum.
constexpr unsigned kMostDevices = 64;
uint64_t g_gpu_bytes[kMostDevices];

uint64_t* gpu_bytes_of(int device) {
  return &g_gpu_bytes[static_cast<unsigned>(device) % kMostDevices];
}

void write_header(StatusFile* page, uint32_t rank) {
  memcpy(page->magic, kStatusMagic, sizeof(page->magic));
  page->version = kStatusVersion;
  page->file_bytes = sizeof(StatusFile);
  page->pid = static_cast<uint32_t>(getpid());
  page->rank = rank;
}

// posix_fallocate: a full disk is an error now, not a SIGBUS at some later launch.
StatusFile* map_new_file(const char* path) {
  const int file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) return nullptr;
  void* page = MAP_FAILED;
  const int error = posix_fallocate(file, 0, sizeof(StatusFile));
  if (error == 0) {
    page =
        mmap(nullptr, sizeof(StatusFile), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  } else {
    errno = error;
  }
  close(file);
  return page == MAP_FAILED ? nullptr : static_cast<StatusFile*>(page);
}

void raise(uint64_t* peak, uint64_t value) {
  uint64_t highest = __atomic_load_n(peak, __ATOMIC_RELAXED);
  while (highest < value &&
         !__atomic_compare_exchange_n(peak, &highest, value, true, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED)) {
  }
}

}  // namespace

std::atomic<StatusFile*> g_page{&g_in_memory};

void add_bytes(uint64_t StatusFile::* now, uint64_t StatusFile::* peak,
               uint64_t bytes) {
  StatusFile* page = g_page.load(std::memory_order_relaxed);
  raise(&(page->*peak), __atomic_add_fetch(&(page->*now), bytes, __ATOMIC_RELAXED));
}

void subtract_bytes(uint64_t StatusFile::* now, uint64_t bytes) {
  StatusFile* page = g_page.load(std::memory_order_relaxed);
  __atomic_fetch_sub(&(page->*now), bytes, __ATOMIC_RELAXED);
}

void add_gpu_bytes(int device, uint64_t StatusFile::* now, uint64_t StatusFile::* peak,
                   uint64_t bytes) {
  add_bytes(now, peak, bytes);
  add_bytes(&StatusFile::gpu_bytes, &StatusFile::gpu_peak_bytes, bytes);
  const uint64_t taken =
      __atomic_add_fetch(gpu_bytes_of(device), bytes, __ATOMIC_RELAXED);
  const uint64_t budget = get(&StatusFile::budget_bytes);
  if (budget == 0 || bytes == 0 || taken <= budget) return;
  add(&StatusFile::budget_excesses);
  StatusFile* page = g_page.load(std::memory_order_relaxed);
  raise(&page->budget_excess_peak_bytes, taken - budget);
}

void subtract_gpu_bytes(int device, uint64_t StatusFile::* now, uint64_t bytes) {
  subtract_bytes(now, bytes);
  subtract_bytes(&StatusFile::gpu_bytes, bytes);
  __atomic_fetch_sub(gpu_bytes_of(device), bytes, __ATOMIC_RELAXED);
}

uint64_t gpu_bytes(int device) {
  return __atomic_load_n(gpu_bytes_of(device), __ATOMIC_RELAXED);
}

void set_budget(uint64_t bytes) { add(&StatusFile::budget_bytes, bytes); }

void add_lap(uint64_t duration_ns) {
  StatusFile* page = g_page.load(std::memory_order_relaxed);
  const uint64_t number = page->laps;
  __atomic_store_n(&page->lap_ns[number % kNumLapTimes], duration_ns, __ATOMIC_RELAXED);
  __atomic_store_n(&page->laps, number + 1, __ATOMIC_RELEASE);
}

void set_state(ShimState state, BackendKind backend) {
  StatusFile* page = g_page.load(std::memory_order_relaxed);
  __atomic_store_n(&page->backend, static_cast<uint32_t>(backend), __ATOMIC_RELAXED);
  __atomic_store_n(&page->state, static_cast<uint32_t>(state), __ATOMIC_RELEASE);
}

void set_message(const char* message) {
  static std::atomic_flag taken = ATOMIC_FLAG_INIT;
  if (taken.test_and_set()) return;
  StatusFile* page = g_page.load(std::memory_order_relaxed);
  snprintf(page->message, sizeof(page->message), "%s", message);
}

void create(const char* run_dir, uint32_t rank) {
  write_header(&g_in_memory, rank);
  if (run_dir == nullptr) return;
  char path[4096], unfinished[4096 + 8];
  snprintf(path, sizeof(path), "%s/status-%d.bin", run_dir, getpid());
  snprintf(unfinished, sizeof(unfinished), "%s.tmp", path);
  StatusFile* page = map_new_file(unfinished);
  if (page != nullptr) {
    *page = g_in_memory;
    if (rename(unfinished, path) == 0) {
      g_page.store(page);
      return;
    }
    munmap(page, sizeof(StatusFile));
  }
  log::warn("cannot write %s: %s; nobody will know what the shim does", path,
            strerror(errno));
}

void detach() { g_page.store(&g_in_memory); }

}  // namespace transit::status
