#include "runtime/native/plan/plan.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <tuple>

namespace transit {
namespace {

// Beyond any GPU's address space: a damaged or hostile file.
constexpr uint64_t kMaxBytes = uint64_t{1} << 48;

struct Mapping {
  const char* data = nullptr;  // null: it failed
  uint64_t bytes = 0;
};

Mapping map_file(const std::string& path, std::string* error) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat info{};
  if (file < 0 || fstat(file, &info) != 0) {
    *error = strerror(errno);
    if (file >= 0) close(file);
    return {};
  }
  const auto bytes = static_cast<uint64_t>(info.st_size);
  void* data = MAP_FAILED;
  if (bytes < sizeof(FlatPlanHeader)) {
    *error = "too short for a flat plan";
  } else {
    data = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0);
    if (data == MAP_FAILED) *error = strerror(errno);
  }
  close(file);
  if (data == MAP_FAILED) return {};
  return {static_cast<const char*>(data), bytes};
}

// 32-bit counts of small entries: no overflow in 64 bits.
uint64_t bytes_needed(const FlatPlanHeader& header) {
  return sizeof(FlatPlanHeader) +
         uint64_t{header.num_allocations} * sizeof(FlatAllocation) +
         uint64_t{header.num_ranges} * sizeof(FlatRange) +
         uint64_t{header.num_windows} * sizeof(FlatWindow) +
         uint64_t{header.num_launches} * sizeof(FlatLaunch) +
         uint64_t{header.num_addresses} * sizeof(uint64_t) +
         uint64_t{header.num_kernels} * sizeof(FlatKernel) +
         uint64_t{header.num_words} * sizeof(uint32_t);
}

std::string check_header(const FlatPlanHeader& header, uint64_t bytes, uint32_t rank) {
  if (memcmp(header.magic, kFlatPlanMagic, sizeof(header.magic)) != 0) {
    return "not a flat plan of transit";
  }
  if (header.version != kFlatPlanVersion) {
    return "version " + std::to_string(header.version) + ", and this shim reads " +
           std::to_string(kFlatPlanVersion);
  }
  if (header.file_bytes > bytes) {
    return "truncated: " + std::to_string(bytes) + " of " +
           std::to_string(header.file_bytes) + " bytes";
  }
  if (header.header_bytes != sizeof(FlatPlanHeader) || header.file_bytes != bytes ||
      bytes_needed(header) != bytes) {
    return "its sizes contradict each other";
  }
  if (header.num_steps == 0) return "an iteration without steps";
  if (header.rank != rank) {
    return "made for rank " + std::to_string(header.rank);
  }
  return {};
}

auto key_of(const FlatAllocation& allocation) {
  return std::make_tuple(allocation.device, allocation.ordinal);
}

}  // namespace

uint64_t Ranges::bytes(Placement placement) const {
  uint64_t total = 0;
  for (const FlatRange& range : *this) {
    if (range.placement == static_cast<uint32_t>(placement)) total += range.bytes;
  }
  return total;
}

Plan::Plan(const char* file)
    : header_(reinterpret_cast<const FlatPlanHeader*>(file)),
      allocations_(
          reinterpret_cast<const FlatAllocation*>(file + sizeof(FlatPlanHeader))),
      ranges_(
          reinterpret_cast<const FlatRange*>(allocations_ + header_->num_allocations)),
      windows_(reinterpret_cast<const FlatWindow*>(ranges_ + header_->num_ranges)),
      launches_(reinterpret_cast<const FlatLaunch*>(windows_ + header_->num_windows)),
      addresses_(reinterpret_cast<const uint64_t*>(launches_ + header_->num_launches)),
      kernels_(
          reinterpret_cast<const FlatKernel*>(addresses_ + header_->num_addresses)),
      words_(reinterpret_cast<const uint32_t*>(kernels_ + header_->num_kernels)) {}

const Plan* Plan::load(const std::string& path, uint32_t rank, std::string* error) {
  const Mapping mapping = map_file(path, error);
  if (mapping.data == nullptr) return nullptr;
  const auto* header = reinterpret_cast<const FlatPlanHeader*>(mapping.data);
  *error = check_header(*header, mapping.bytes, rank);
  if (error->empty()) {
    const Plan* plan = new Plan(mapping.data);
    *error = plan->check();
    if (error->empty()) return plan;
    delete plan;
  }
  munmap(const_cast<char*>(mapping.data), mapping.bytes);
  return nullptr;
}

std::string Plan::check() const {
  const FlatAllocation* end = allocations_ + header_->num_allocations;
  for (const FlatAllocation* allocation = allocations_; allocation != end;
       ++allocation) {
    if (allocation != allocations_ && key_of(allocation[-1]) >= key_of(*allocation)) {
      return "its allocations are not in order";
    }
    const std::string error = check_ranges(*allocation);
    if (!error.empty()) {
      return "allocation " + std::to_string(allocation->ordinal) + " of device " +
             std::to_string(allocation->device) + ": " + error;
    }
  }
  std::string error = check_windows();
  if (error.empty()) error = check_launches();
  return error.empty() ? check_kernels() : error;
}

std::string Plan::check_ranges(const FlatAllocation& allocation) const {
  if (allocation.bytes == 0 || allocation.bytes > kMaxBytes) return "impossible size";
  if (allocation.address_offset != kNoAddress &&
      (allocation.address_offset > kMaxBytes ||
       allocation.address_offset % kPieceBytes != 0)) {
    return "impossible address";
  }
  if (uint64_t{allocation.first_range} + allocation.num_ranges > header_->num_ranges) {
    return "names ranges that are not there";
  }
  const uint64_t end = round_up_to_piece(allocation.bytes);
  uint64_t covered = 0;
  for (const FlatRange& range : ranges_of(allocation)) {
    if (range.placement >= kNumPlacements) return "unknown placement";
    if (range.offset != covered) return "its ranges overlap or leave gaps";
    if (range.bytes == 0 || range.bytes % kPieceBytes != 0 ||
        range.bytes > end - covered) {
      return "a range has an impossible size";
    }
    covered += range.bytes;
  }
  return covered == end ? std::string{} : "its ranges do not cover it";
}

// Each range's are in order, and none begins before the one before it has ended.
std::string Plan::check_windows() const {
  const uint32_t num_launches = header_->num_launches;
  uint64_t next = 0;
  for (uint32_t i = 0; i < header_->num_ranges; ++i) {
    const auto windows = windows_of(ranges_[i]);
    if ((windows.count > 0) != is_windowed(ranges_[i])) {
      return "a range is windowed and has no windows, or the other way round";
    }
    if (windows.first != windows_ + next) return "its windows are not in order";
    next += windows.count;
    for (uint32_t w = 0; w < windows.count; ++w) {
      const FlatWindow& window = windows.first[w];
      const FlatWindow& before = windows.first[w > 0 ? w - 1 : windows.count - 1];
      if (std::max({window.issue, window.first, window.last, window.written}) >=
          num_launches) {
        return "a window is past the iteration's end";
      }
      const bool is_alone = windows.count == 1;
      const uint32_t after = (before.last + 1) % num_launches;
      if (!is_between(window.first, window.written, window.last) ||
          (w > 0 && window.first <= before.first) ||
          (!is_alone && is_between(before.first, window.first, before.last)) ||
          !is_between(after, window.issue, window.first) ||
          (window.home != kNever && window.home >= num_launches)) {
        return "a window contradicts itself, or the one before it";
      }
    }
  }
  return next == header_->num_windows ? std::string{} : "a window has no range";
}

std::string Plan::check_launches() const {
  for (const FlatLaunch& launch : launches()) {
    if (uint64_t{launch.first_address} + launch.num_addresses >
        header_->num_addresses) {
      return "a launch names addresses that are not there";
    }
    const auto addresses = addresses_of(launch);
    if (!std::is_sorted(addresses.begin(), addresses.end())) {
      return "the addresses of a launch are not in order";
    }
  }
  return {};
}

std::string Plan::check_kernels() const {
  const FlatKernel* end = kernels_ + header_->num_kernels;
  for (const FlatKernel* kernel = kernels_; kernel != end; ++kernel) {
    if (kernel != kernels_ && kernel[-1].signature >= kernel->signature) {
      return "its kernels are not in order";
    }
    if (uint64_t{kernel->first_word} + kernel->num_words > header_->num_words) {
      return "a kernel has words that are not there";
    }
    const uint32_t* words = words_ + kernel->first_word;
    if (!std::is_sorted(words, words + kernel->num_words)) {
      return "the words of a kernel are not in order";
    }
  }
  return {};
}

bool Plan::find_words(uint64_t signature, Entries<uint32_t>* words) const {
  const FlatKernel* end = kernels_ + header_->num_kernels;
  const FlatKernel* found = std::lower_bound(
      kernels_, end, signature, [](const FlatKernel& kernel, uint64_t wanted) {
        return kernel.signature < wanted;
      });
  if (found == end || found->signature != signature) return false;
  *words = {words_ + found->first_word, found->num_words};
  return true;
}

Entries<FlatWindow> Plan::windows_of(const FlatRange& range) const {
  const uint32_t index = index_of(range);
  const FlatWindow* end = windows_ + header_->num_windows;
  const auto [first, last] = std::equal_range(
      windows_, end, FlatWindow{index, 0, 0, 0, 0, 0, 0, 0},
      [](const FlatWindow& a, const FlatWindow& b) { return a.range < b.range; });
  return {first, static_cast<uint32_t>(last - first)};
}

uint64_t Plan::address_span_bytes(int32_t device) const {
  uint64_t span_bytes = 0;
  for (uint32_t i = 0; i < header_->num_allocations; ++i) {
    const FlatAllocation& allocation = allocations_[i];
    if (allocation.device != device || allocation.address_offset == kNoAddress)
      continue;
    span_bytes = std::max(
        span_bytes, allocation.address_offset + round_up_to_piece(allocation.bytes));
  }
  return span_bytes;
}

uint64_t Plan::bytes_for_windows(int32_t device) const {
  uint64_t resident = 0;
  for (const FlatAllocation& allocation : allocations()) {
    if (allocation.device != device) continue;
    resident += ranges_of(allocation).bytes(Placement::kResident);
  }
  return gpu_memory_bytes() - std::min(resident, gpu_memory_bytes());
}

const FlatAllocation* Plan::find(int32_t device, uint32_t ordinal) const {
  const FlatAllocation* end = allocations_ + header_->num_allocations;
  const auto wanted = std::make_tuple(device, ordinal);
  const FlatAllocation* found = std::lower_bound(
      allocations_, end, wanted,
      [](const FlatAllocation& a, const auto& key) { return key_of(a) < key; });
  return found != end && key_of(*found) == wanted ? found : nullptr;
}

}  // namespace transit
