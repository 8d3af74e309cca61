#include "recorder/native/checksums.h"

#include <algorithm>
#include <utility>

#include "recorder/native/checksum_kernel.h"
#include "recorder/native/failure.h"
#include "recorder/native/spool_records.h"
#include "runtime/native/observer.h"

namespace transit {
namespace {

constexpr uint64_t kSlotBytes = 2 * sizeof(uint64_t);
constexpr uint64_t kMaxSumsBytes = 16 << 20;
constexpr uint64_t kMinSumsBytes = 64 << 10;
constexpr uint64_t kPartOfFreeMemory = 64;
constexpr uint64_t kBytesPerBlock = 64 << 10;  // of threads
constexpr uint64_t kMaxBlocksPerPiece = 1024;

}  // namespace

thread_local Checksums::Pending Checksums::pending_;

void Checksums::on_free(uint64_t address, uint32_t allocation_id) {
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  if (pieces_ != nullptr) pieces_->remove_allocation(address, allocation_id);
}

std::string Checksums::begin() {
  std::string problem;
  uint64_t devices = 0;
  for (const Context& context : contexts_.alive()) {
    const uint64_t bit = uint64_t{1} << (static_cast<uint32_t>(context.device) % 64);
    // A kernel of one context must not touch the memory of another.
    if ((devices & bit) != 0) problem = "a GPU has more than one context";
    devices |= bit;
    sums_.push_back(std::make_unique<Sums>());
    sums_.back()->context = context;
    if (problem.empty()) problem = open(*sums_.back());
  }
  if (!problem.empty()) {
    for (const auto& sums : sums_) close(*sums);
    sums_.clear();
    return "directions are not looked into: " + problem;
  }
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  is_open_ = true;
  return {};
}

std::string Checksums::open(Sums& sums) {
  const CurrentContext current(driver_, sums.context.handle);
  if (!current) return "a context cannot be entered";
  if (driver_.cuModuleLoadData(&sums.module, kChecksumPtx) != CUDA_SUCCESS ||
      driver_.cuModuleGetFunction(&sums.kernel, sums.module, kChecksumKernel) !=
          CUDA_SUCCESS) {
    return "the driver does not load the kernel that hashes memory";
  }
  size_t free_bytes = 0, total_bytes = 0;
  driver_.cuMemGetInfo_v2(&free_bytes, &total_bytes);
  const uint64_t bytes =
      std::clamp(free_bytes / kPartOfFreeMemory, kMinSumsBytes, kMaxSumsBytes);
  sums.num_slots = bytes / kSlotBytes;
  if (driver_.cuMemAlloc_v2(&sums.address, sums.num_slots * kSlotBytes) !=
      CUDA_SUCCESS) {
    sums.address = 0;
    return "the GPU has no memory left for it";
  }
  activities_.ignore_memory(sums.address);
  return warm_up(sums) ? "" : "the kernel that hashes memory does not run";
}

// A kernel is brought to the GPU when it is first launched, and that cannot be done
// while a stream is captured.
bool Checksums::warm_up(const Sums& sums) const {
  ChecksumTable nothing{};
  nothing.sums = sums.address;
  return driver_.cuMemsetD8_v2(sums.address, 0, sums.num_slots * kSlotBytes) ==
             CUDA_SUCCESS &&
         launch(sums, nullptr, nothing) && driver_.cuCtxSynchronize() == CUDA_SUCCESS;
}

void Checksums::close(Sums& sums) {
  const CurrentContext current(driver_, sums.context.handle);
  if (!current) return;
  if (sums.address != 0) driver_.cuMemFree_v2(sums.address);
  if (sums.module != nullptr) driver_.cuModuleUnload(sums.module);
}

void Checksums::before(const SubmittedLaunch& launch) {
  pending_.sums = nullptr;
  const bool is_exact =
      launch.kind == LaunchKind::kCopy || launch.kind == LaunchKind::kSet;
  if (is_exact) return;
  find_pieces();
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  if (!is_open_ || pieces_ == nullptr) return;
  Sums* sums = sums_of(launch.context);
  if (sums == nullptr) return;
  Hashed hashed{
      launch.launch_id, 0,
      pieces_->named_by(launch.accesses, launch.num_accesses, sums->context.device)};
  if (hashed.pieces.empty()) return;
  hashed.first_slot = sums->next_slot.fetch_add(hashed.pieces.size());
  if (hashed.first_slot + hashed.pieces.size() > sums->num_slots ||
      !hash(*sums, kBefore, launch.stream, hashed)) {
    num_unchecked_ += hashed.pieces.size();
    return;
  }
  pending_ = {sums, std::move(hashed)};
}

void Checksums::after(const SubmittedLaunch& launch) {
  if (pending_.sums == nullptr || pending_.hashed.launch_id != launch.launch_id) return;
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  if (!is_open_) return;
  Sums& sums = *pending_.sums;
  pending_.sums = nullptr;
  Hashed hashed = std::move(pending_.hashed);
  if (!are_alive(hashed.pieces) || !hash(sums, kAfter, launch.stream, hashed)) {
    num_unchecked_ += hashed.pieces.size();
    return;
  }
  const std::lock_guard<std::mutex> hashed_lock(sums.mutex);
  sums.hashed.push_back(std::move(hashed));
}

void Checksums::end() {
  {
    const std::unique_lock<std::shared_mutex> lock(mutex_);
    is_open_ = false;  // for threads that are still on their way into a launch
    pieces_.reset();
  }
  contexts_.synchronize(driver_);
  for (const auto& sums : sums_) {
    if (!contexts_.is_alive(sums->context)) continue;
    read_back(*sums);
    close(*sums);
  }
  sums_.clear();
  if (num_unchecked_ == 0) return;
  say("directions: " + std::to_string(num_unchecked_) +
      " pieces of memory that launches name could not be hashed, and stay unknown");
}

void Checksums::read_back(Sums& sums) {
  const CurrentContext current(driver_, sums.context.handle);
  std::vector<uint64_t> values(2 * std::min(sums.next_slot.load(), sums.num_slots));
  if (values.empty()) return;
  if (!current ||
      driver_.cuMemcpyDtoH_v2(values.data(), sums.address,
                              values.size() * sizeof(uint64_t)) != CUDA_SUCCESS) {
    return say("directions: the sums could not be read back");
  }
  for (const Hashed& hashed : sums.hashed) write(hashed, values);
}

void Checksums::write(const Hashed& hashed, const std::vector<uint64_t>& values) {
  const uint64_t* value = &values[2 * hashed.first_slot];
  for (const MemoryPiece& piece : hashed.pieces) {
    spool_.checksums.append({hashed.launch_id, piece.address, piece.bytes,
                             uint32_t{value[kBefore] != value[kAfter]}, 0});
    value += 2;
  }
}

// At the first launch: by then the framework has told what its allocator did.
void Checksums::find_pieces() {
  {
    const std::shared_lock<std::shared_mutex> lock(mutex_);
    if (pieces_ != nullptr || !is_open_) return;
  }
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  if (pieces_ != nullptr || !is_open_) return;
  pieces_ = std::make_unique<MemoryPieces>(read_pieces());
}

MemoryPieces Checksums::read_pieces() const {
  const std::string& folder = spool_.folder();
  std::vector<MemoryPieces::Allocation> allocations;
  for_each_record<AllocationRecord>(folder, "allocation", [&](const auto& a) {
    if (!is_hashable(a)) return;
    allocations.push_back(
        {{a.address, a.address + a.bytes}, a.allocation_id, a.device, true});
  });
  return {std::move(allocations), MemoryReach::of_spool(folder)};
}

// Plain memory of a GPU, and still there: whoever destroys a context frees unseen.
bool Checksums::is_hashable(const AllocationRecord& allocation) const {
  const bool is_plain = allocation.api == TRANSIT_API_MEM_ALLOC ||
                        allocation.api == TRANSIT_API_PITCH ||
                        allocation.api == TRANSIT_API_AUDITED;
  if (!is_plain) return false;
  {
    const LiveAllocations::View live(live_);
    const LiveRange* range = live.find(allocation.address);
    const bool is_live =
        range != nullptr && range->allocation_id == allocation.allocation_id;
    if (!is_live) return false;
  }
  for (const auto& sums : sums_) {
    if (sums->context.device != allocation.device) continue;
    if (!contexts_.is_alive(sums->context)) return false;
    const CurrentContext current(driver_, sums->context.handle);
    CUdeviceptr begin = 0;
    size_t bytes = 0;
    return current &&
           driver_.cuMemGetAddressRange_v2(&begin, &bytes, allocation.address) ==
               CUDA_SUCCESS &&
           allocation.address + allocation.bytes <= begin + bytes;
  }
  return false;
}

bool Checksums::are_alive(const std::vector<MemoryPiece>& pieces) const {
  return std::all_of(pieces.begin(), pieces.end(), [&](const MemoryPiece& piece) {
    return pieces_->is_alive(piece);
  });
}

Checksums::Sums* Checksums::sums_of(CUcontext context) {
  const uint64_t serial = contexts_.find(context).serial;
  for (const auto& sums : sums_) {
    if (sums->context.serial == serial) return sums.get();
  }
  return nullptr;
}

bool Checksums::hash(const Sums& sums, Side side, CUstream stream,
                     const Hashed& hashed) const {
  if (!contexts_.is_alive(sums.context)) return false;
  const CurrentContext current(driver_, sums.context.handle);
  if (!current) return false;
  const size_t num_pieces = hashed.pieces.size();
  for (size_t first = 0; first < num_pieces; first += ChecksumTable::kMaxPieces) {
    ChecksumTable table{};
    table.sums = sums.address + (hashed.first_slot + first) * kSlotBytes +
                 side * sizeof(uint64_t);
    const size_t count = std::min<size_t>(num_pieces - first, table.kMaxPieces);
    std::copy_n(&hashed.pieces[first], count, table.pieces);
    if (!launch(sums, stream, table)) return false;
  }
  return true;
}

bool Checksums::launch(const Sums& sums, CUstream stream, ChecksumTable& table) const {
  unsigned num_pieces = 0;
  uint64_t most_bytes = 0;
  for (const MemoryPiece& piece : table.pieces) {
    num_pieces += piece.bytes != 0;
    most_bytes = std::max(most_bytes, piece.bytes);
  }
  const auto blocks_per_piece = static_cast<unsigned>(
      std::clamp<uint64_t>(most_bytes / kBytesPerBlock, 1, kMaxBlocksPerPiece));
  void* parameters[] = {&table};
  return driver_.cuLaunchKernel(sums.kernel, blocks_per_piece, std::max(num_pieces, 1u),
                                1, kChecksumBlockThreads, 1, 1, 0, stream, parameters,
                                nullptr) == CUDA_SUCCESS;
}

}  // namespace transit
