#include "recorder/native/spool.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace transit {

std::string create_spool_folder(const std::string& run_dir) {
  const std::string base = run_dir + "/spool-" + std::to_string(getpid());
  std::string folder = base;
  for (int attempt = 2; mkdir(folder.c_str(), 0777) != 0; ++attempt) {
    if (errno != EEXIST) return {};
    folder = base + "-" + std::to_string(attempt);
  }
  return folder;
}

std::string Spool::create(const std::string& run_dir) {
  folder_ = create_spool_folder(run_dir);
  if (folder_.empty()) {
    return "cannot create a folder in " + run_dir + ": " + strerror(errno);
  }
  for (SpoolFile* file : files_) {
    if (!file->create(folder_)) {
      return "cannot create a file in " + folder_ + ": " + strerror(errno);
    }
  }
  return {};
}

void Spool::close() {
  for (SpoolFile* file : files_) file->close();
}

void Spool::prepare() {
  for (SpoolFile* file : files_) file->prepare();
}

uint32_t Spool::name_id(std::string_view name) {
  std::lock_guard<std::mutex> lock(names_mutex_);
  const auto known = name_ids_.find(name);
  if (known != name_ids_.end()) return known->second;
  const auto id = static_cast<uint32_t>(name_ids_.size());
  name_ids_.emplace(texts_.emplace_back(name), id);
  write_name(id, name);
  return id;
}

void Spool::write_name(uint32_t id, std::string_view name) {
  constexpr size_t kMaxPieces = UINT16_MAX;
  const size_t num_pieces = std::clamp<size_t>(
      (name.size() + kNamePieceBytes - 1) / kNamePieceBytes, 1, kMaxPieces);
  std::vector<NameRecord> pieces(num_pieces);
  for (size_t i = 0; i < num_pieces; ++i) {
    const auto text =
        name.substr(std::min(i * kNamePieceBytes, name.size()), kNamePieceBytes);
    pieces[i].name_id = id;
    pieces[i].piece = static_cast<uint16_t>(i);
    pieces[i].length = static_cast<uint16_t>(text.size());
    text.copy(pieces[i].text, text.size());
  }
  names_.append(pieces.data(), pieces.size());
}

uint64_t Spool::append_launch(LaunchRecord& launch) {
  std::lock_guard<std::mutex> lock(launch_mutex_);
  launch.launch_id = next_launch_id();
  launches_.append(launch);
  next_launch_id_.store(launch.launch_id + 1, std::memory_order_relaxed);
  return launch.launch_id;
}

}  // namespace transit
