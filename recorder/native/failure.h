// Lines on stderr, and failures that the launcher reads from the run's folder.
#pragma once

#include <string>

namespace transit {

// "transit: <line>" on stderr.
void say(const std::string& line);

// The same, and failure.txt in the folder for `transit record` to report.
void report_failure(const std::string& folder, const std::string& line);

// For what is wrong before training starts: reports it in a spool folder of its own,
// and ends the process with status 1 at once, so that no time goes into a run whose
// recording would be empty.
[[noreturn]] void refuse(const std::string& run_dir, const std::string& line);

}  // namespace transit
