#include "runtime/native/memory/host_memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <string>

#include "runtime/native/lifecycle/settings.h"
#include "runtime/native/status/status.h"

namespace transit::host_memory {
namespace {

// One thread of one process of the run at a time, whatever becomes of that process.
class RunLock {
 public:
  RunLock() : thread_lock_(mutex()) {
    if (file() >= 0) flock(file(), LOCK_EX);
  }
  ~RunLock() {
    if (file() >= 0) flock(file(), LOCK_UN);
  }
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  static std::mutex& mutex() {
    static std::mutex& instance = *new std::mutex;
    return instance;
  }

  static int file() {
    static const int instance = open_file();
    return instance;
  }

  static int open_file() {
    if (settings().run_dir == nullptr) return -1;
    const std::string path = std::string(settings().run_dir) + "/host-memory.lock";
    return open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  }

  const std::lock_guard<std::mutex> thread_lock_;
};

// Whose status file it is; 0 if it is none.
pid_t pid_of(const char* name) {
  constexpr char kPrefix[] = "status-";
  if (strncmp(name, kPrefix, strlen(kPrefix)) != 0) return 0;
  char* end = nullptr;
  const long pid = strtol(name + strlen(kPrefix), &end, 10);
  return strcmp(end, ".bin") == 0 ? static_cast<pid_t>(pid) : 0;
}

bool is_alive(pid_t pid) { return kill(pid, 0) == 0 || errno == EPERM; }

uint64_t read_host_bytes(const std::string& status_path) {
  const int file = open(status_path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  uint64_t bytes = 0;
  const ssize_t num_read =
      pread(file, &bytes, sizeof(bytes), offsetof(StatusFile, host_bytes));
  close(file);
  return num_read == sizeof(bytes) ? bytes : 0;
}

uint64_t bytes_of_other_processes() {
  const char* folder = settings().run_dir;
  DIR* entries = folder != nullptr ? opendir(folder) : nullptr;
  if (entries == nullptr) return 0;
  uint64_t bytes = 0;
  while (const dirent* entry = readdir(entries)) {
    const pid_t pid = pid_of(entry->d_name);
    if (pid == 0 || pid == getpid() || !is_alive(pid)) continue;
    bytes += read_host_bytes(std::string(folder) + "/" + entry->d_name);
  }
  closedir(entries);
  return bytes;
}

}  // namespace

bool is_bounded() { return settings().host_memory_bytes != 0; }

uint64_t free_bytes() {
  const uint64_t limit = settings().host_memory_bytes;
  if (!is_bounded()) return UINT64_MAX;
  const uint64_t taken =
      status::get(&StatusFile::host_bytes) + bytes_of_other_processes();
  return limit - std::min(limit, taken);
}

bool take(uint64_t bytes) {
  if (bytes == 0) return true;
  const RunLock lock;
  if (bytes > free_bytes()) return false;
  status::add_bytes(&StatusFile::host_bytes, &StatusFile::host_peak_bytes, bytes);
  return true;
}

void give_back(uint64_t bytes) {
  status::subtract_bytes(&StatusFile::host_bytes, bytes);
}

}  // namespace transit::host_memory
