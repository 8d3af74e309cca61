#include "runtime/native/windows/transfers.h"

#include <pthread.h>
#include <sys/prctl.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "runtime/native/interpose/driver.h"
#include "runtime/native/lifecycle/log.h"
#include "runtime/native/status/status.h"

namespace transit {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;

constexpr auto kPause = microseconds(20);  // a chunk takes 600 to copy
constexpr size_t kMostCopies = 2;          // one is copied, the next one waits for it
constexpr auto kPatience = seconds(10);
constexpr size_t kCountersPerPage = 1024;

void report(const char* action, const Outcome& outcome) {
  status::add(&StatusFile::transfer_failures);
  log::failure("cannot %s a window: %s: %s", action, outcome.what,
               error_name(outcome.result));
}

void go_home_if_nowhere(Chunk& chunk) {
  if (!chunk.is_nowhere()) return;
  const Outcome outcome = chunk.go_home();
  if (!outcome.ok()) report("map", outcome);
}

}  // namespace

uint64_t driver_bytes() {
  return round_up_to_piece(status::get(&StatusFile::passed_bytes));
}

Transfers::Transfers(CUcontext context, CUdevice device, uint64_t budget_bytes,
                     uint64_t own_bytes, Reservations reservations)
    : context_(context),
      device_(device),
      budget_bytes_(budget_bytes),
      own_bytes_(own_bytes),
      reservations_(std::move(reservations)),
      spare_(device) {
  std::thread([this] { work(); }).detach();
}

void Transfers::load(Load load) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const uint32_t number = ++load.seat->num_asked;
  const bool is_new = milestones_.empty() || milestones_.back().after != load.after;
  if (is_new && !load.after.empty()) {
    milestones_.push_back({load.issue, load.after});
  }
  const auto later = std::upper_bound(
      loads_.begin(), loads_.end(), load.due,
      [](uint64_t due, const QueuedLoad& queued) { return due < queued.due; });
  loads_.insert(later, {std::move(load), number, std::nullopt});
  asked_.notify_one();
}

void Transfers::release(Seat* seat, To to, bool copies, uint64_t time, Events after) {
  const std::lock_guard<std::mutex> lock(mutex_);
  (copies ? to_copy_out_ : to_drop_)
      .push_back({seat, ++seat->num_asked, true, to, seat->num_stores_asked, time,
                  std::move(after)});
  asked_.notify_one();
}

void Transfers::store(Seat* seat, Events after) {
  const std::lock_guard<std::mutex> lock(mutex_);
  to_copy_out_.push_back({seat, seat->num_asked, false, To::kHome,
                          seat->num_stores_asked++, 0, std::move(after)});
  asked_.notify_one();
}

std::optional<Transfers::Load> Transfers::withdraw(Seat* seat) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto queued =
      std::find_if(loads_.begin(), loads_.end(), [&](const QueuedLoad& load) {
        return load.seat == seat && load.number == seat->num_asked && !load.gated;
      });
  if (queued == loads_.end()) return std::nullopt;
  Load load = std::move(*queued);
  loads_.erase(queued);
  --seat->num_asked;
  return load;
}

void Transfers::gate(const Seat& seat, uint32_t number, CUstream stream) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (QueuedLoad& load : loads_) {
      if (load.seat == &seat && load.number == number && !load.gated) {
        load.gated = Clock::now();
      }
    }
  }
  status::add(&StatusFile::gates);
  const auto address = reinterpret_cast<CUdeviceptr>(seat.num_done);
  const CUresult result = driver().cuStreamWaitValue32_v2(stream, address, number,
                                                          CU_STREAM_WAIT_VALUE_GEQ);
  if (result != CUDA_SUCCESS) wait(seat, number);
}

void Transfers::end(Seat& seat) {
  withdraw(&seat);
  if (seat.will_be_on_gpu()) release(&seat, To::kNowhere, false, 0, {});
  wait(seat, seat.num_asked);
  while (seat.num_stored != seat.num_stores_asked) std::this_thread::sleep_for(kPause);
}

void Transfers::wait(const Seat& seat, uint32_t number) {
  if (seat.has_done(number)) return;
  const auto begin = Clock::now();
  while (!seat.has_done(number)) std::this_thread::sleep_for(kPause);
  const std::chrono::nanoseconds waited = Clock::now() - begin;
  status::add(&StatusFile::held_back_ns, static_cast<uint64_t>(waited.count()));
}

void Transfers::bring_home(Seat* seat) {
  wait(*seat, seat->num_asked);
  go_home_if_nowhere(seat->chunk);
}

uint32_t* Transfers::take_counter() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (spare_counters_.empty()) {
    void* page = nullptr;
    constexpr size_t kBytes = kCountersPerPage * sizeof(uint32_t);
    const CUresult result = driver().cuMemHostAlloc(
        &page, kBytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    if (result != CUDA_SUCCESS) return nullptr;
    auto* counters = static_cast<uint32_t*>(page);
    for (size_t i = 0; i < kCountersPerPage; ++i)
      spare_counters_.push_back(counters + i);
  }
  uint32_t* counter = spare_counters_.back();
  spare_counters_.pop_back();
  __atomic_store_n(counter, 0, __ATOMIC_RELEASE);
  return counter;
}

void Transfers::give_back(uint32_t* counter) {
  const std::lock_guard<std::mutex> lock(mutex_);
  spare_counters_.push_back(counter);
}

void Transfers::work() {
  pthread_setname_np(pthread_self(), "transit");
  prctl(PR_SET_TIMERSLACK, 1000UL);  // ns; else a pause is three times as long
  driver().cuCtxPushCurrent_v2(context_);
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  driver().cuThreadExchangeStreamCaptureMode(&mode);
  driver().cuStreamCreate(&load_stream_, CU_STREAM_NON_BLOCKING);
  driver().cuStreamCreate(&store_stream_, CU_STREAM_NON_BLOCKING);
  Lock lock(mutex_);
  for (;;) {
    look_where_the_job_is();
    bool is_busy = end_copies(lock);
    is_busy = begin_copy_out(lock) || is_busy;
    is_busy = drop(lock) || is_busy;
    is_busy = begin_load(lock) || is_busy;
    if (is_busy) {
      last_progress_ = Clock::now();
      continue;
    }
    const bool is_idle = loads_.empty() && to_copy_out_.empty() && to_drop_.empty() &&
                         copies_in_.empty() && copies_out_.empty();
    if (is_idle) {
      asked_.wait(lock);
    } else {
      asked_.wait_for(lock, kPause);
    }
  }
}

void Transfers::look_where_the_job_is() {
  while (!milestones_.empty() && have_passed(milestones_.front().after)) {
    reached_ = std::max(reached_, milestones_.front().time);
    milestones_.pop_front();
  }
}

// The most urgent one that can begin.
std::deque<Transfers::QueuedLoad>::iterator Transfers::choose_load() {
  const Events* not_passed = nullptr;  // loads that are asked for together share them
  for (auto load = loads_.begin(); load != loads_.end(); ++load) {
    const bool waits = !load->may_begin_early;
    const bool is_known_to_wait =
        waits && not_passed != nullptr && load->after == *not_passed;
    if (!is_known_to_wait && load->seat->done() == load->number - 1) {
      if (waits && !have_passed(load->after)) {
        not_passed = &load->after;
      } else if (has_room(*load) || is_hopeless(*load)) {
        return load;
      }
    }
    if (load->is_in_turn) break;
  }
  return loads_.end();
}

// Now, and for what the plan needs until the load is due. If a stream waits for it, the
// job has come so far: of that only what is waited for may not be there yet.
bool Transfers::has_room(const QueuedLoad& load) const {
  const uint64_t bytes = load.seat->chunk.bytes();
  const uint64_t passed = driver_bytes();
  const uint64_t taken = status::get(&StatusFile::resident_bytes) + passed;
  if (taken + bytes > budget_bytes_) return false;
  if (load.is_in_turn) return bytes_here_ + passed + bytes <= own_bytes_;
  if (load.gated) return taken + bytes + awaited_before(load) <= budget_bytes_;
  const uint64_t others = taken - std::min(taken, bytes_here_.load());
  return reservations_.is_free(bytes, begin_of(load), load.due, budget_bytes_ - others);
}

uint64_t Transfers::awaited_before(const QueuedLoad& load) const {
  uint64_t bytes = 0;
  for (const QueuedLoad& other : loads_) {
    if (other.due >= load.due) break;
    if (other.gated) bytes += other.seat->chunk.bytes();
  }
  return bytes;
}

uint64_t Transfers::begin_of(const QueuedLoad& load) const {
  return load.may_begin_early ? reached_ : std::max(load.issue, reached_);
}

// The job waits for it, and nothing happens that would make room.
bool Transfers::is_hopeless(const QueuedLoad& load) const {
  return load.gated && Clock::now() - std::max(*load.gated, last_progress_) > kPatience;
}

bool Transfers::begin_load(Lock& lock) {
  if (copies_in_.size() >= kMostCopies) return false;
  const auto chosen = choose_load();
  if (chosen == loads_.end()) return false;
  const QueuedLoad load = std::move(*chosen);
  loads_.erase(chosen);
  if (!has_room(load)) {
    status::add(&StatusFile::loads_without_room);
    go_home_if_nowhere(load.seat->chunk);
    done(load.seat);
    return true;
  }
  lock.unlock();
  enter(load);
  lock.lock();
  return true;
}

void Transfers::enter(const QueuedLoad& load) {
  Chunk& chunk = load.seat->chunk;
  if (chunk.is_on_gpu()) return done(load.seat);
  const Outcome entered = bring_memory(chunk);
  if (!entered.ok()) {
    report("load", entered);
    go_home_if_nowhere(chunk);
    return done(load.seat);
  }
  bytes_here_ += chunk.bytes();
  load.seat->early_from = begin_of(load);
  load.seat->early_until = std::max(load.seat->early_from, load.due);
  reservations_.add(chunk.bytes(), load.seat->early_from, load.seat->early_until);
  if (!load.copies) return done(load.seat);
  const CUresult copied = chunk.copy_in(load_stream_);
  if (copied != CUDA_SUCCESS) {
    report("load", {copied, "the copy failed (cuMemcpyDtoDAsync)"});
    leave(load.seat, To::kHome);
    return done(load.seat);
  }
  status::add(&StatusFile::h2d_bytes, chunk.bytes());
  copies_in_.push_back(
      {load.seat, false, false, To::kHome, Event::record(load_stream_)});
}

Outcome Transfers::bring_memory(Chunk& chunk) {
  PhysicalMemory memory;
  if (!spare_.take(chunk.bytes(), &memory)) {
    const Outcome made = make_memory(chunk.bytes(), &memory);
    if (!made.ok()) return made;
  }
  const Outcome entered = chunk.go_to_gpu(std::move(memory));
  if (!entered.ok()) {
    status::subtract_gpu_bytes(device_, &StatusFile::resident_bytes, chunk.bytes());
  }
  return entered;
}

// Counted before it is there, and not there any more before others may have it.
Outcome Transfers::make_memory(uint64_t bytes, PhysicalMemory* memory) {
  spare_.keep(bytes_to_spare(bytes));
  status::add_gpu_bytes(device_, &StatusFile::resident_bytes,
                        &StatusFile::resident_peak_bytes, bytes);
  const Outcome created = memory->create(Location::kDevice, device_, bytes);
  if (!created.ok()) {
    status::subtract_gpu_bytes(device_, &StatusFile::resident_bytes, bytes);
  }
  return created;
}

void Transfers::make_room(uint64_t bytes) { spare_.keep(bytes_to_spare(bytes)); }

// Of what is never for anything else, and of the budget, beside all that is there and
// so much more.
uint64_t Transfers::bytes_to_spare(uint64_t wanted_bytes) const {
  const uint64_t others = driver_bytes() + wanted_bytes;
  const uint64_t own = bytes_here_ + others;
  const uint64_t all = status::get(&StatusFile::resident_bytes) + others;
  return std::min(own_bytes_ - std::min(own_bytes_, own),
                  budget_bytes_ - std::min(budget_bytes_, all));
}

bool Transfers::may_begin(const Outgoing& outgoing) {
  const uint32_t number = outgoing.is_release ? outgoing.number - 1 : outgoing.number;
  return outgoing.seat->done() == number &&
         outgoing.seat->num_stored == outgoing.num_stores &&
         have_passed(outgoing.after);
}

bool Transfers::drop(Lock& lock) {
  if (to_drop_.empty() || !may_begin(to_drop_.front())) return false;
  Outgoing outgoing = std::move(to_drop_.front());
  to_drop_.pop_front();
  if (outgoing.seat->is_home_stale) {
    to_copy_out_.push_front(std::move(outgoing));
    return true;
  }
  reached_ = std::max(reached_, outgoing.time + 1);
  lock.unlock();
  leave(outgoing.seat, outgoing.to);
  done(outgoing.seat);
  lock.lock();
  return true;
}

bool Transfers::begin_copy_out(Lock& lock) {
  if (to_copy_out_.empty() || copies_out_.size() >= kMostCopies) return false;
  if (!may_begin(to_copy_out_.front())) return false;
  const Outgoing outgoing = std::move(to_copy_out_.front());
  to_copy_out_.pop_front();
  // All work up to that time is done.
  if (outgoing.is_release) reached_ = std::max(reached_, outgoing.time + 1);
  lock.unlock();
  const Chunk& chunk = outgoing.seat->chunk;
  Copy copy{outgoing.seat, outgoing.is_release, outgoing.is_release, outgoing.to,
            nullptr};
  if (chunk.is_on_gpu()) {
    const CUresult copied = chunk.copy_out(store_stream_);
    if (copied == CUDA_SUCCESS) {
      status::add(&StatusFile::d2h_bytes, chunk.bytes());
      copy.end = Event::record(store_stream_);
      outgoing.seat->is_home_stale = false;
    } else {
      report("release", {copied, "the copy failed (cuMemcpyDtoDAsync)"});
      copy.leaves = false;
      outgoing.seat->is_home_stale = true;
    }
  }
  copies_out_.push_back(std::move(copy));
  lock.lock();
  return true;
}

// In turn: a chunk must not go while it is still copied.
bool Transfers::end_copies(Lock& lock) {
  const auto has_ended = [](const std::deque<Copy>& copies) {
    return !copies.empty() &&
           (copies.front().end == nullptr || copies.front().end->has_passed());
  };
  bool any = false;
  lock.unlock();
  while (has_ended(copies_in_)) {
    done(copies_in_.front().seat);
    copies_in_.pop_front();
    any = true;
  }
  while (has_ended(copies_out_)) {
    const Copy& copy = copies_out_.front();
    if (copy.leaves) leave(copy.seat, copy.to);
    if (copy.is_release) {
      done(copy.seat);
    } else {
      ++copy.seat->num_stored;
    }
    copies_out_.pop_front();
    any = true;
  }
  lock.lock();
  return any;
}

void Transfers::leave(Seat* seat, To to) {
  if (!seat->chunk.is_on_gpu()) return;
  Chunk& chunk = seat->chunk;
  const Outcome left = to == To::kHome ? chunk.go_home() : chunk.go_nowhere();
  // It stays, and what is done to it at home is done on the GPU.
  seat->is_home_stale = !left.ok();
  if (!left.ok()) return report("release", left);
  const uint64_t bytes = chunk.bytes();
  bytes_here_ -= bytes;
  spare_.put(chunk.take_memory());
  spare_.keep(bytes_to_spare(0));
  reservations_.remove(bytes, seat->early_from, seat->early_until);
}

void Transfers::done(Seat* seat) {
  __atomic_fetch_add(seat->num_done, 1, __ATOMIC_RELEASE);
}

}  // namespace transit
