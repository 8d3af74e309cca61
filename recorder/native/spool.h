// The spool of this process: one table per record type, and the names they refer to.
#pragma once

#include <atomic>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "recorder/native/spool_file.h"

namespace transit {

template <typename Record>
class SpoolTable {
 public:
  explicit SpoolTable(const char* record_type) : file_(record_type, sizeof(Record)) {}

  void append(const Record& record) { file_.append(&record, 1); }
  void append(const Record* records, size_t count) { file_.append(records, count); }
  SpoolFile& file() { return file_; }

 private:
  SpoolFile file_;
};

class Spool {
 public:
  // Creates the folder and the files. Returns what went wrong, empty if nothing. Until
  // then, and after close(), what is appended is ignored.
  std::string create(const std::string& run_dir);
  void close();

  // To be called now and then, see SpoolFile.
  void prepare();

  // The id of a name, written once however often it is asked for.
  uint32_t name_id(std::string_view name);

  // Gives the launch its id.
  uint64_t append_launch(LaunchRecord& launch);
  uint64_t next_launch_id() const {
    return next_launch_id_.load(std::memory_order_relaxed);
  }

  const std::string& folder() const { return folder_; }

  SpoolTable<ProcessRecord> processes{"process"};
  SpoolTable<DeviceRecord> devices{"device"};
  SpoolTable<AccessRecord> accesses{"access"};
  SpoolTable<GraphNodeRecord> graph_nodes{"graph_node"};
  SpoolTable<AccessRecord> graph_accesses{"graph_access"};
  SpoolTable<GraphLaunchRecord> graph_launches{"graph_launch"};
  SpoolTable<AllocationRecord> allocations{"allocation"};
  SpoolTable<FreeRecord> frees{"free"};
  SpoolTable<ActivityRecord> activities{"activity"};
  SpoolTable<UvmRecord> uvm{"uvm"};
  SpoolTable<MemoryRecord> memory{"memory"};
  SpoolTable<MarkRecord> marks{"mark"};
  SpoolTable<BlockRecord> blocks{"block"};
  SpoolTable<HistoryRecord> histories{"history"};
  SpoolTable<LabelRecord> labels{"label"};
  SpoolTable<FrameworkRecord> frameworks{"framework"};
  SpoolTable<OverheadRecord> overhead{"overhead"};
  SpoolTable<ErrorRecord> errors{"error"};
  SpoolTable<SampleRecord> samples{"sample"};
  SpoolTable<ChecksumRecord> checksums{"checksum"};

 private:
  static constexpr size_t kNumFiles = 22;

  void write_name(uint32_t id, std::string_view name);

  SpoolTable<LaunchRecord> launches_{"launch"};
  SpoolTable<NameRecord> names_{"name"};
  SpoolFile* const files_[kNumFiles] = {
      &processes.file(),      &devices.file(),     &launches_.file(),
      &accesses.file(),       &allocations.file(), &frees.file(),
      &activities.file(),     &uvm.file(),         &memory.file(),
      &marks.file(),          &blocks.file(),      &histories.file(),
      &labels.file(),         &frameworks.file(),  &overhead.file(),
      &names_.file(),         &graph_nodes.file(), &graph_accesses.file(),
      &graph_launches.file(), &errors.file(),      &samples.file(),
      &checksums.file()};

  std::string folder_;
  std::mutex launch_mutex_;
  std::atomic<uint64_t> next_launch_id_{0};
  std::mutex names_mutex_;
  std::deque<std::string> texts_;  // that the keys are views of
  std::unordered_map<std::string_view, uint32_t> name_ids_;
};

// Creates `run_dir`/spool-<pid>, or an unused name beside it when a process had this
// number before. Empty when it cannot be created (errno says why).
std::string create_spool_folder(const std::string& run_dir);

}  // namespace transit
