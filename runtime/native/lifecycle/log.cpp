#include "runtime/native/lifecycle/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include <atomic>

#include "runtime/native/lifecycle/settings.h"
#include "runtime/native/status/status.h"

namespace transit::log {
namespace {

struct Line {
  char text[1024];
};

Line format_line(const char* format, va_list arguments) {
  Line line;
  vsnprintf(line.text, sizeof(line.text), format, arguments);
  return line;
}

void print(const Line& line) { fprintf(stderr, "transit: %s\n", line.text); }

}  // namespace

void info(const char* format, ...) {
  if (!settings().log) return;
  va_list arguments;
  va_start(arguments, format);
  print(format_line(format, arguments));
  va_end(arguments);
}

void warn(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  print(format_line(format, arguments));
  va_end(arguments);
}

void failure(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const Line line = format_line(format, arguments);
  va_end(arguments);
  status::set_message(line.text);
  static std::atomic_flag printed = ATOMIC_FLAG_INIT;
  if (!printed.test_and_set() || settings().log || settings().strict) print(line);
  if (settings().strict) _exit(1);
}

}  // namespace transit::log
