#include "recorder/native/spool_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace transit {
namespace {

constexpr uint64_t kMaxGrowthBytes = uint64_t{4} << 20;
// A multiple of every page size in use, so that it can be a mapping's offset.
constexpr uint64_t kWindowAlignment = uint64_t{64} << 10;

// With its pages: a fault per page costs more than all else in appending.
template <typename T>
T* map_shared(int fd, uint64_t offset, uint64_t bytes) {
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_POPULATE, fd, static_cast<off_t>(offset));
  return address == MAP_FAILED ? nullptr : static_cast<T*>(address);
}

}  // namespace

bool SpoolFile::create(const std::string& folder) {
  std::lock_guard<std::mutex> lock(mutex_);
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

// Maps the place of the next record; grows the file when it has none left.
bool SpoolFile::make_room() {
  const uint64_t offset = end_of_records();
  if (offset + record_bytes_ <= window_end_) return true;
  if (full_ || header_ == nullptr) return false;
  if (offset + record_bytes_ > file_bytes_ && !grow()) return false;
  unmap_window();
  window_start_ = offset & ~(kWindowAlignment - 1);
  window_ = map_shared<uint8_t>(fd_, window_start_, file_bytes_ - window_start_);
  if (window_ == nullptr) return false;
  window_end_ = file_bytes_;
  return true;
}

void SpoolFile::unmap_window() {
  if (window_ != nullptr) munmap(window_, window_end_ - window_start_);
  window_ = nullptr;
  window_start_ = window_end_ = 0;
}

void SpoolFile::append(const void* records, size_t count) {
  const auto* from = static_cast<const uint8_t*>(records);
  std::lock_guard<std::mutex> lock(mutex_);
  while (count > 0) {
    if (!make_room()) {
      full_ = true;
      return add_dropped(count);
    }
    const uint64_t offset = end_of_records();
    const uint64_t fitting =
        std::min<uint64_t>(count, (window_end_ - offset) / record_bytes_);
    memcpy(window_ + (offset - window_start_), from, fitting * record_bytes_);
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
  std::lock_guard<std::mutex> lock(mutex_);
  if (fd_ < 0) return;
  unmap_window();
  if (header_ != nullptr) munmap(header_, sizeof(SpoolHeader));
  // Nothing is lost when this fails: the header's count says where the records end.
  (void)!ftruncate(fd_, static_cast<off_t>(end_of_records()));
  ::close(fd_);
  fd_ = -1;
  header_ = nullptr;
}

}  // namespace transit
