#include "runtime/native/paging/managed_pager.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "runtime/native/backend/managed_memory.h"
#include "runtime/native/interpose/driver.h"
#include "runtime/native/lifecycle/log.h"
#include "runtime/native/memory/captures.h"
#include "runtime/native/status/status.h"
#include "runtime/native/windows/transfers.h"

namespace transit {
namespace {

constexpr uint64_t kAddressSpanBytes = uint64_t{1} << 48;  // of a process
constexpr uint64_t kPartBytes = uint64_t{32} << 20;

// What before() leaves for after().
struct Submission {
  bool is_followed = false;
  bool is_blocking = false;
  CUstream stream = nullptr;
};
thread_local Submission t_submission;

// The calls of a move hold the job's thread up.
class HeldBack {
 public:
  ~HeldBack() {
    const std::chrono::nanoseconds taken = Clock::now() - begin_;
    status::add(&StatusFile::held_back_ns, static_cast<uint64_t>(taken.count()));
  }

 private:
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin_ = Clock::now();
  const captures::Relaxed relaxed_;
};

void report(const char* action, CUresult result) {
  status::add(&StatusFile::transfer_failures);
  log::failure("managed memory: %s: %s", action, error_name(result));
}

}  // namespace

ManagedPager::ManagedPager(const Options& options, CUdevice device)
    : options_(options), device_(device), moves_(device), live_(kAddressSpanBytes) {}

Outcome ManagedPager::add(uint64_t bytes, CUdeviceptr* address) {
  const std::lock_guard<std::mutex> lock(mutex_);
  bytes = round_up_to_piece(bytes);
  CUdeviceptr base = 0;
  const CUresult allocated =
      driver().cuMemAllocManaged(&base, bytes, CU_MEM_ATTACH_GLOBAL);
  if (allocated != CUDA_SUCCESS) return {allocated, "no memory (cuMemAllocManaged)"};
  const Coming comes = choose(bytes);
  const bool is_held = comes != Coming::kByFaults;
  const CUresult advised =
      is_held ? managed::prefer_host(device_, base, bytes) : CUDA_SUCCESS;
  if (advised != CUDA_SUCCESS) {
    driver().cuMemFree_v2(base);
    return {advised, "advice was refused (cuMemAdvise)"};
  }
  if (!is_held) faulting_bytes_ += bytes;
  Managed& managed = allocations_[base];
  managed = {bytes, comes, {}};
  for (uint64_t at = 0; at < bytes; at += kPartBytes) {
    const uint64_t part_bytes = std::min(kPartBytes, bytes - at);
    managed.parts.push_back(
        {&managed, base + at, part_bytes, is_held, 0, false, on_gpu_.end()});
  }
  live_.set(base, bytes, true);
  status::add_bytes(&StatusFile::windowed_bytes, &StatusFile::windowed_peak_bytes,
                    bytes);
  *address = base;
  return {};
}

ManagedPager::Coming ManagedPager::choose(uint64_t bytes) const {
  if (options_.prefetches) return Coming::kByPrefetches;
  const bool fits = faulting_bytes_ + driver_bytes() + bytes <= options_.card_bytes;
  return fits ? Coming::kByFaults : Coming::kNotAtAll;
}

void ManagedPager::remove(CUdeviceptr address) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = allocations_.find(address);
  Managed& managed = found->second;
  for (Part& part : managed.parts) set_on_gpu(part, false);
  wanted_.clear();
  if (managed.comes == Coming::kByFaults) faulting_bytes_ -= managed.bytes;
  live_.set(address, managed.bytes, false);
  status::subtract_bytes(&StatusFile::windowed_bytes, managed.bytes);
  allocations_.erase(found);
  driver().cuMemFree_v2(address);
}

void ManagedPager::make_room(uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (has_room(bytes)) return;
  const HeldBack held_back;
  ++now_;  // nothing is wanted
  find_room(bytes);
  moves_.finish();
}

// Work that blocks is not submitted under the lock: what it waits for may be another
// thread's.
void ManagedPager::before(const Work& work) {
  const CUstream stream = stream_of(work);
  if (captures::holds(stream)) return;
  mutex_.lock();
  t_submission = {true, work.is_blocking, stream};
  ++now_;
  note(work);
  bring();
  moves_.precede(stream);
  if (work.is_blocking) mutex_.unlock();
}

void ManagedPager::after() {
  Submission& submission = t_submission;
  if (!submission.is_followed) return;
  submission.is_followed = false;
  if (submission.is_blocking) mutex_.lock();
  streams_.note(submission.stream, now_);
  mutex_.unlock();
}

void ManagedPager::note(const Work& work) {
  wanted_.clear();
  for (uint32_t i = 0; i < work.num_ranges; ++i) {
    want(work.ranges[i].address, work.ranges[i].bytes);
  }
  if (work.kind != Work::Kind::kKernel) return;
  named_.collect(work, {0, kAddressSpanBytes, live_.words()});
  for (const CUdeviceptr address : named_) want(address, UINT64_MAX);
}

// How far what is named extends is not known: to the allocation's end at most.
void ManagedPager::want(CUdeviceptr address, uint64_t bytes) {
  const auto next = allocations_.upper_bound(address);
  if (next == allocations_.begin()) return;
  const CUdeviceptr base = std::prev(next)->first;
  Managed& managed = std::prev(next)->second;
  const uint64_t begin = address - base;
  if (begin >= managed.bytes || managed.comes == Coming::kNotAtAll) return;
  const uint64_t end = begin + std::min(bytes, managed.bytes - begin);
  for (uint64_t i = begin / kPartBytes; i * kPartBytes < end; ++i) {
    Part& part = managed.parts[i];
    if (part.last_use == now_) continue;
    part.last_use = now_;
    wanted_.push_back(&part);
    if (part.is_on_gpu) on_gpu_.splice(on_gpu_.end(), on_gpu_, part.place);
  }
}

void ManagedPager::bring() {
  uint64_t taken = driver_bytes(), coming_bytes = 0;
  for (const Part* part : wanted_) taken += part->is_on_gpu ? part->bytes : 0;
  Parts coming, staying;
  for (Part* part : wanted_) {
    if (part->is_on_gpu) continue;
    const bool fits = taken + coming_bytes + part->bytes <= options_.budget_bytes;
    (fits ? coming : staying).push_back(part);
    if (fits) coming_bytes += part->bytes;
  }
  if (coming.empty() && staying.empty() && has_room(0)) return;
  const HeldBack held_back;
  for (Part* part : staying) use_in_place(*part);
  find_room(coming_bytes);
  come(coming);
}

// What was wanted last is at the end.
void ManagedPager::find_room(uint64_t bytes) {
  Parts leaving;
  uint64_t left_bytes = 0;
  for (Part* part : on_gpu_) {
    if (part->last_use == now_) break;
    if (gpu_bytes_ - left_bytes + driver_bytes() + bytes <= options_.budget_bytes) {
      break;
    }
    leaving.push_back(part);
    left_bytes += part->bytes;
  }
  if (leaving.empty()) return;
  // What is in use would come back at once.
  moves_.follow(streams_.marks_since(followed_));
  followed_ = now_;
  move(std::move(leaving), Location::kHost);
}

void ManagedPager::use_in_place(Part& part) {
  status::add(&StatusFile::loads_without_room);
  if (part.is_held) return;
  const CUresult advised = managed::prefer_host(device_, part.address, part.bytes);
  if (advised != CUDA_SUCCESS) return report("cuMemAdvise", advised);
  part.is_held = true;
}

// What could not leave keeps its room.
void ManagedPager::come(const Parts& parts) {
  Parts prefetched;
  uint64_t prefetched_bytes = 0;
  for (Part* part : parts) {
    if (!has_room(prefetched_bytes + part->bytes)) {
      use_in_place(*part);
    } else if (part->is_held) {
      prefetched.push_back(part);
      prefetched_bytes += part->bytes;
      if (part->managed->comes == Coming::kByFaults) let_go(*part);
    } else {
      set_on_gpu(*part, true);
    }
  }
  move(std::move(prefetched), Location::kDevice);
}

void ManagedPager::let_go(Part& part) {
  const CUresult advised = managed::prefer_nothing(device_, part.address, part.bytes);
  if (advised != CUDA_SUCCESS) return report("cuMemAdvise", advised);
  part.is_held = false;
}

// One call for parts that lie together: large moves are the fast ones.
void ManagedPager::move(Parts parts, Location to) {
  std::sort(parts.begin(), parts.end(),
            [](const Part* a, const Part* b) { return a->address < b->address; });
  for (auto first = parts.begin(); first != parts.end();) {
    CUdeviceptr end = (*first)->address;
    const auto is_apart = [&](const Part* part) {
      const bool lies_next = part->managed == (*first)->managed && part->address == end;
      end += lies_next ? part->bytes : 0;
      return !lies_next;
    };
    const auto last = std::find_if(first, parts.end(), is_apart);
    const uint64_t bytes = end - (*first)->address;
    const bool goes_to_gpu = to == Location::kDevice;
    const CUresult moved = moves_.move((*first)->address, bytes, to);
    if (moved == CUDA_SUCCESS) {
      status::add(goes_to_gpu ? &StatusFile::h2d_bytes : &StatusFile::d2h_bytes, bytes);
      std::for_each(first, last, [&](Part* part) { set_on_gpu(*part, goes_to_gpu); });
    } else {
      report("cuMemPrefetchAsync", moved);
    }
    first = last;
  }
}

void ManagedPager::set_on_gpu(Part& part, bool is_on_gpu) {
  if (part.is_on_gpu == is_on_gpu) return;
  part.is_on_gpu = is_on_gpu;
  if (is_on_gpu) {
    part.place = on_gpu_.insert(on_gpu_.end(), &part);
    gpu_bytes_ += part.bytes;
    status::add_gpu_bytes(device_, &StatusFile::resident_bytes,
                          &StatusFile::resident_peak_bytes, part.bytes);
  } else {
    on_gpu_.erase(part.place);
    gpu_bytes_ -= part.bytes;
    status::subtract_gpu_bytes(device_, &StatusFile::resident_bytes, part.bytes);
  }
}

bool ManagedPager::has_room(uint64_t bytes) const {
  return gpu_bytes_ + driver_bytes() + bytes <= options_.budget_bytes;
}

// It is waited for: nothing can be recorded in it later.
void ManagedPager::forget_stream(CUstream stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  streams_.forget(stream);
  moves_.forget(stream);
}

// Room may be needed while it lasts, which takes marks of all streams.
void ManagedPager::prepare_capture(CUstream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  streams_.marks_since(0);
}

}  // namespace transit
