// What this process itself has appended to its spool so far.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "recorder/native/spool_format.h"

namespace transit {

template <typename Record, typename Action>
void for_each_record(const std::string& folder, const char* record_type,
                     Action&& action) {
  const std::string path = folder + "/" + record_type + ".spool";
  const std::unique_ptr<FILE, int (*)(FILE*)> file(fopen(path.c_str(), "re"), &fclose);
  SpoolHeader header{};
  if (file == nullptr || fread(&header, sizeof header, 1, file.get()) != 1) return;
  Record record;
  for (uint64_t i = 0; i < header.num_records; ++i) {
    if (fread(&record, sizeof record, 1, file.get()) != 1) return;
    action(record);
  }
}

}  // namespace transit
