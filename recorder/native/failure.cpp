#include "recorder/native/failure.h"

#include <fcntl.h>
#include <unistd.h>

#include "recorder/native/spool.h"

namespace transit {
namespace {

void write_all(int fd, const std::string& text) {
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t n = write(fd, text.data() + written, text.size() - written);
    if (n <= 0) return;
    written += static_cast<size_t>(n);
  }
}

}  // namespace

void say(const std::string& line) {
  write_all(STDERR_FILENO, "transit: " + line + "\n");
}

void report_failure(const std::string& folder, const std::string& line) {
  say(line);
  const std::string path = folder + "/failure.txt";
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) return;
  write_all(fd, line + "\n");
  close(fd);
}

void refuse(const std::string& run_dir, const std::string& line) {
  report_failure(create_spool_folder(run_dir), line);
  _exit(1);
}

}  // namespace transit
