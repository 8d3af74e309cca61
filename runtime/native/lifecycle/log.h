// What the shim says on stderr, each line after "transit: ".
#pragma once

namespace transit::log {

// With TRANSIT_LOG=1 only.
__attribute__((format(printf, 1, 2))) void info(const char* format, ...);

__attribute__((format(printf, 1, 2))) void warn(const char* format, ...);

// Something of ours did not work: the first time on stderr, and into status.message.
// With TRANSIT_STRICT=1 it ends the process with exit code 1.
__attribute__((format(printf, 1, 2))) void failure(const char* format, ...);

}  // namespace transit::log
