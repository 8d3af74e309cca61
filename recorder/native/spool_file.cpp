#include "recorder/native/spool_file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>

namespace transit {
namespace {

constexpr uint64_t kMaxGrowthBytes = uint64_t{16} << 20;
// A multiple of every page size in use, so that it can be a mapping's offset.
constexpr uint64_t kWindowAlignment = uint64_t{64} << 10;

#ifndef MADV_POPULATE_WRITE  // since Linux 5.14
#define MADV_POPULATE_WRITE 23
#endif

// With its pages, ready to be written: MAP_POPULATE would get them ready to be read.
// Where the kernel does not know how, each page faults when it is first written.
template <typename T>
T* map_shared(int fd, uint64_t offset, uint64_t bytes) {
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                       static_cast<off_t>(offset));
  if (address == MAP_FAILED) return nullptr;
  madvise(address, bytes, MADV_POPULATE_WRITE);
  return static_cast<T*>(address);
}

// A file that grows beyond the job's limit (ulimit -f) raises a signal, which would end
// a job that does not expect it.
class SizeSignalBlocked {
 public:
  SizeSignalBlocked() {
    sigset_t pending;
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGXFSZ) == 1;
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~SizeSignalBlocked() {
    constexpr timespec kNow{};
    if (!was_pending_) sigtimedwait(&signal_, nullptr, &kNow);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  SizeSignalBlocked(const SizeSignalBlocked&) = delete;
  SizeSignalBlocked& operator=(const SizeSignalBlocked&) = delete;

 private:
  sigset_t signal_, before_;
  bool was_pending_;
};

}  // namespace

bool SpoolFile::create(const std::string& folder) {
  const std::scoped_lock lock(mutex_, growth_mutex_);
  const std::string path = folder + "/" + record_type_ + ".spool";
  fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0 || !grow()) return false;
  header_ = map_shared<SpoolHeader>(fd_, 0, sizeof(SpoolHeader));
  if (header_ == nullptr) return false;
  header_->version = kSpoolVersion;
  header_->header_bytes = sizeof(SpoolHeader);
  strncpy(header_->record_type, record_type_, sizeof(header_->record_type) - 1);
  header_->record_bytes = record_bytes_;
  header_->pid = static_cast<uint32_t>(getpid());
  memcpy(header_->magic, kSpoolMagic, sizeof(kSpoolMagic));
  return true;
}

bool SpoolFile::grow() {
  const SizeSignalBlocked blocked;
  int error;
  do {
    error = posix_fallocate(fd_, static_cast<off_t>(file_bytes_),
                            static_cast<off_t>(growth_bytes_));
  } while (error == EINTR);
  if (error != 0) {
    errno = error;
    return false;
  }
  file_bytes_ += growth_bytes_;
  growth_bytes_ = std::min(growth_bytes_ * 2, kMaxGrowthBytes);
  return true;
}

uint64_t SpoolFile::end_of_records() const {
  return sizeof(SpoolHeader) + num_records_ * record_bytes_;
}

bool SpoolFile::make_room() {
  if (end_of_records() + record_bytes_ <= window_.end) return true;
  if (full_) return false;
  const std::lock_guard<std::mutex> lock(growth_mutex_);
  if (next_.data == nullptr && !map_next()) return false;
  unmap(&spent_);
  spent_ = window_;
  window_ = next_;
  next_ = {};
  return true;
}

// The window begins where a record that does not fit into the one before it would.
bool SpoolFile::map_next() {
  if (mapped_bytes_ == file_bytes_ && !grow()) return false;
  const uint64_t last =
      mapped_bytes_ - std::min<uint64_t>(mapped_bytes_, record_bytes_);
  const uint64_t begin = last & ~(kWindowAlignment - 1);
  auto* data = map_shared<uint8_t>(fd_, begin, file_bytes_ - begin);
  if (data == nullptr) return false;
  next_ = {data, begin, file_bytes_};
  mapped_bytes_ = file_bytes_;
  return true;
}

void SpoolFile::prepare() {
  const std::lock_guard<std::mutex> lock(growth_mutex_);
  unmap(&spent_);
  if (header_ == nullptr || mapped_bytes_ == 0 || next_.data != nullptr) return;
  const uint64_t num_records = __atomic_load_n(&header_->num_records, __ATOMIC_RELAXED);
  const uint64_t used_bytes = sizeof(SpoolHeader) + num_records * record_bytes_;
  if (mapped_bytes_ - used_bytes < growth_bytes_ / 4) map_next();
}

void SpoolFile::unmap(Window* window) {
  if (window->data != nullptr) munmap(window->data, window->end - window->begin);
  *window = {};
}

void SpoolFile::append(const void* records, size_t count) {
  const auto* from = static_cast<const uint8_t*>(records);
  std::lock_guard<std::mutex> lock(mutex_);
  if (header_ == nullptr) return;  // not yet created, or closed
  while (count > 0) {
    if (!make_room()) {
      full_ = true;
      return add_dropped(count);
    }
    const uint64_t offset = end_of_records();
    const uint64_t fitting =
        std::min<uint64_t>(count, (window_.end - offset) / record_bytes_);
    memcpy(window_.data + (offset - window_.begin), from, fitting * record_bytes_);
    from += fitting * record_bytes_;
    count -= fitting;
    num_records_ += fitting;
    __atomic_store_n(&header_->num_records, num_records_, __ATOMIC_RELEASE);
  }
}

void SpoolFile::count_dropped(uint64_t count) {
  std::lock_guard<std::mutex> lock(mutex_);
  add_dropped(count);
}

void SpoolFile::add_dropped(uint64_t count) {
  if (header_ != nullptr) header_->num_dropped += count;
}

void SpoolFile::close() {
  const std::scoped_lock lock(mutex_, growth_mutex_);
  if (fd_ < 0) return;
  for (Window* window : {&window_, &next_, &spent_}) unmap(window);
  if (header_ != nullptr) munmap(header_, sizeof(SpoolHeader));
  // Nothing is lost when this fails: the header's count says where the records end.
  (void)!ftruncate(fd_, static_cast<off_t>(end_of_records()));
  ::close(fd_);
  fd_ = -1;
  header_ = nullptr;
}

}  // namespace transit
