// One append-only file of the spool; see spool_format.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include "recorder/native/spool_format.h"

namespace transit {

// Grown with posix_fallocate and written through a mapping of its end, so that
// appending is a memcpy and whatever was appended outlives the process, however it
// ends. Mapping new pages of a file costs more than all else in appending: another
// thread can do it ahead.
class SpoolFile {
 public:
  SpoolFile(const char* record_type, uint32_t record_bytes)
      : record_type_(record_type), record_bytes_(record_bytes) {}
  SpoolFile(const SpoolFile&) = delete;
  SpoolFile& operator=(const SpoolFile&) = delete;
  ~SpoolFile() { close(); }

  // False, with errno set, when it cannot be created.
  bool create(const std::string& folder);

  // The records stay together. Records that do not fit on the disk are counted, and
  // from then on nothing is appended: a hole in the middle would look like an idle job.
  void append(const void* records, size_t count);

  void count_dropped(uint64_t count);

  // Gets room ready if there is little left. To be called now and then.
  void prepare();

  // Gives back the space not used.
  void close();

 private:
  struct Window {  // maps a part of the file
    uint8_t* data = nullptr;
    uint64_t begin = 0, end = 0;
  };

  bool make_room();
  bool map_next();
  bool grow();
  void add_dropped(uint64_t count);
  static void unmap(Window* window);
  uint64_t end_of_records() const;

  const char* record_type_;
  uint32_t record_bytes_;
  std::mutex mutex_;  // guards these
  int fd_ = -1;
  SpoolHeader* header_ = nullptr;
  uint64_t num_records_ = 0;
  Window window_;
  bool full_ = false;

  std::mutex growth_mutex_;  // taken after `mutex_`, or alone; guards these
  uint64_t file_bytes_ = 0;
  uint64_t mapped_bytes_ = 0;  // how far the windows have come
  uint64_t growth_bytes_ = uint64_t{1} << 20;
  Window next_, spent_;
};

}  // namespace transit
