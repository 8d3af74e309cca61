#include "runtime/native/windows/executor.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "runtime/native/interpose/driver.h"
#include "runtime/native/memory/captures.h"
#include "runtime/native/status/status.h"
#include "runtime/native/windows/functions.h"
#include "runtime/native/windows/signature.h"

namespace transit {
namespace {

// What before() leaves for after().
struct Submission {
  bool is_followed = false;
  bool is_unlocked = false;  // while the call is made
  bool is_captured = false;
  bool is_planned = false;
  bool is_known = false;  // to do what is planned
  uint32_t position = 0;
  CUstream stream = nullptr;
  // Loads that wait for the work at hand, which uses the chunks where they are.
  std::vector<Transfers::Load> postponed;
};
thread_local Submission t_submission;

void count(const Aligner::Step& step) {
  switch (step.where) {
    case Aligner::Where::kPlanned:
      status::add(step.is_exact ? &StatusFile::launches_planned
                                : &StatusFile::launches_elsewhere);
      status::add(&StatusFile::launches_skipped, step.num_skipped);
      break;
    case Aligner::Where::kInserted:
      status::add(&StatusFile::launches_inserted);
      break;
    case Aligner::Where::kUnlocked:
      status::add(&StatusFile::launches_unlocked);
      break;
  }
  if (step.is_newly_locked) status::add(&StatusFile::locks);
}

}  // namespace

Executor::Executor(const Plan& plan, CUdevice device, CUcontext context,
                   CUdeviceptr lowest)
    : plan_(plan),
      device_(device),
      lowest_(lowest),
      timetable_(plan),
      transfers_(context, device, plan.gpu_memory_bytes(),
                 plan.bytes_for_windows(device), Reservations(plan)),
      gates_(transfers_),
      aligner_(plan.launches().first, plan.launches().count),
      live_pieces_(plan.address_span_bytes(device)),
      filter_{lowest, plan.address_span_bytes(device), live_pieces_.words()},
      places_(plan.num_ranges()),
      makeshift_(plan.bytes_for_windows(device), places_, streams_) {}

Outcome Executor::add(const FlatAllocation& allocation) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const CUdeviceptr address = lowest_ + allocation.address_offset;
  std::vector<std::unique_ptr<Place>> created;
  for (const FlatRange& range : plan_.ranges_of(allocation)) {
    if (!is_windowed(range)) continue;
    const auto windows = plan_.windows_of(range);
    created.push_back(std::make_unique<Place>(transfers_, range, windows));
    const Outcome outcome = created.back()->create(device_, address);
    if (!outcome.ok()) return outcome;
  }
  for (auto& place : created) {
    places_[plan_.index_of(place->range())] = std::move(place);
  }
  if (!created.empty()) allocations_[allocation.address_offset] = &allocation;
  if (!aligner_.is_locked()) {
    visit_places_from(allocation.address_offset, [this](Place& place) {
      makeshift_.welcome(place, now_, time_of(position_));
    });
  }
  live_pieces_.set(allocation.address_offset, allocation.bytes, true);
  return {};
}

void Executor::remove(const FlatAllocation& allocation) {
  const std::lock_guard<std::mutex> lock(mutex_);
  live_pieces_.set(allocation.address_offset, allocation.bytes, false);
  allocations_.erase(allocation.address_offset);
  for (const FlatRange& range : plan_.ranges_of(allocation)) {
    auto& place = places_[plan_.index_of(range)];
    if (place == nullptr) continue;
    for (const auto& seat : place->seats()) gates_.forget(*seat);
    place.reset();
  }
}

void Executor::make_room(uint64_t bytes) { transfers_.make_room(bytes); }

void Executor::before(const Work& work) {
  const CUstream stream = stream_of(work);
  if (captures::holds(stream)) return hold_still(work);
  mutex_.lock();
  ++now_;
  gates_.count_work();
  t_submission = {};
  t_submission.is_followed = true;
  t_submission.stream = stream;
  const bool may_load =
      work.kind == Work::Kind::kKernel && !functions::is_known(work.function);
  if (may_load) gates_.await_all();
  follow(work);
  await_named(work);
  if (may_load) gates_.await_all();
  // What it waits for may be another thread's work.
  t_submission.is_unlocked = work.is_blocking && !names_places();
  if (t_submission.is_unlocked) mutex_.unlock();
}

void Executor::after() {
  Submission& submission = t_submission;
  if (!submission.is_followed) return;
  submission.is_followed = false;
  if (submission.is_unlocked) mutex_.lock();
  if (!submission.is_captured) streams_.note(submission.stream, now_);
  for (Transfers::Load& load : submission.postponed) {
    if (load.seat->will_be_on_gpu()) continue;
    for (auto& mark : streams_.marks_since(now_)) load.after.push_back(mark);
    transfers_.load(std::move(load));
  }
  if (submission.is_planned) leave(submission.position, submission.is_known);
  mutex_.unlock();
}

// Nothing is done yet, but the driver looks up what it is told of.
void Executor::hold_still(const Work& work) {
  if (work.num_ranges == 0 && !work.has_more_ranges) return;
  mutex_.lock();
  t_submission = {};
  t_submission.is_followed = true;
  t_submission.is_captured = true;
  visit_ranges(work, [this](Place& place, CUdeviceptr, CUdeviceptr) {
    for (const auto& seat : place.seats()) {
      auto load = transfers_.withdraw(seat.get());
      if (load) t_submission.postponed.push_back(std::move(*load));
    }
    place.bring_home();
  });
  await_named(work);
}

void Executor::follow(const Work& work) {
  const CUstream stream = t_submission.stream;
  const bool is_graph = work.kind == Work::Kind::kGraph;
  const uint64_t signature = signature_of(work);
  // Unused words of parameters hold what was there before, which may be an address: no
  // recorded launch had one there.
  Entries<uint32_t> words{};
  const bool is_recorded = plan_.find_words(signature, &words);
  named_.collect(work, filter_, is_recorded ? &words : nullptr);
  const bool was_locked = aligner_.is_locked();
  const Aligner::Step step =
      aligner_.next(signature, is_graph ? kAnyAddresses : named_.hash());
  count(step);
  count_copies(was_locked);
  // Of other launches with this signature nothing was recorded.
  if (is_recorded && step.where != Aligner::Where::kPlanned) {
    named_.collect(work, filter_);
  }
  gates_.close_all(stream);
  if (was_locked && !aligner_.is_locked()) stop_loading();
  const bool is_kernel = work.kind == Work::Kind::kKernel;
  if (step.where == Aligner::Where::kUnlocked && is_kernel && named_.is_whole()) {
    return bring_named(stream);
  }
  if (step.where != Aligner::Where::kPlanned) {
    return use_unplanned(stream, {nullptr, 0}, false, doubtful_until());
  }
  const auto planned = plan_.addresses_of(plan_.launches().first[step.position]);
  // Another graph may look the same when it is launched.
  const bool is_known = !is_graph && (step.is_exact || names_all_of(planned));
  begin_planned(step, stream, is_known);
  if (step.is_exact && !is_graph) return;
  // The plan's own launch on other memory will be so every time: what it names lies
  // where the plan takes what was there for dead.
  use_unplanned(stream, planned, is_known, UINT64_MAX);
}

void Executor::begin_planned(const Aligner::Step& step, CUstream stream,
                             bool is_known) {
  if (step.is_newly_locked) begin_iteration_at(step.position, stream);
  const uint32_t num_launches = timetable_.num_launches();
  for (uint32_t left = step.num_skipped; left > 0; --left) {
    const uint32_t skipped = (step.position + num_launches - left) % num_launches;
    advance_to(skipped);
    enter(skipped, stream, false);
    leave(skipped, false);
  }
  advance_to(step.position);
  enter(step.position, stream, is_known);
  t_submission.is_planned = true;
  t_submission.is_known = is_known;
  t_submission.position = step.position;
}

// Of those in memory that is there.
bool Executor::names_all_of(const Entries<uint64_t>& planned) const {
  return named_.is_whole() &&
         std::all_of(planned.begin(), planned.end(), [this](uint64_t offset) {
           const CUdeviceptr address = lowest_ + offset;
           return named_.contains(address) || !filter_.accepts(address);
         });
}

// Time never goes back: the lap only counts up.
void Executor::advance_to(uint32_t position) {
  if (position < position_) {
    ++lap_;
    laps_.begin(t_submission.stream);
  }
  position_ = position;
}

void Executor::count_copies(bool was_locked) {
  const uint64_t before = copied_bytes_;
  copied_bytes_ =
      status::get(&StatusFile::h2d_bytes) + status::get(&StatusFile::d2h_bytes);
  if (!was_locked) {
    status::add(&StatusFile::unlocked_copied_bytes, copied_bytes_ - before);
  }
}

// Brings everything to where the plan has it at this launch. Nothing is known of what
// is where.
void Executor::begin_iteration_at(uint32_t position, CUstream stream) {
  stop_loading();
  ++lap_;
  position_ = position;
  for (const auto& place : places_) {
    if (place == nullptr) continue;
    bool is_wanted = false;
    for (const FlatWindow& window : place->windows()) {
      if (!is_between(window.issue, position, window.last)) continue;
      is_wanted = true;
      place->load(window, times_of(window, position, *place), now_);
      if (!is_between(window.first, position, window.last)) break;
      gate(*place, stream);
      break;
    }
    if (is_wanted) continue;
    const FlatWindow& any = *place->windows().begin();
    place->release(any, time_of(position) - 1, streams_.marks_since(place->since()),
                   now_);
  }
}

Transfers::Load Executor::times_of(const FlatWindow& window, uint32_t position,
                                   const Place& place) {
  const uint32_t count = timetable_.num_launches();
  const uint32_t ahead = is_between(window.first, position, window.last)
                             ? 0
                             : (window.first + count - position) % count;
  const uint64_t issue = time_of(position);
  return {nullptr,
          issue,
          issue + ahead,
          true,
          false,
          false,
          streams_.marks_since(place.since())};
}

// Unless the launch is known to do what is planned, it may not overwrite what it
// should.
void Executor::enter(uint32_t position, CUstream stream, bool is_known) {
  for (const FlatWindow* window : timetable_.at(Timetable::kHome, position)) {
    Place* place = find(*window);
    if (place == nullptr) continue;
    gate(*place, stream);
  }
  for (const FlatWindow* window : timetable_.at(Timetable::kIssue, position)) {
    Place* place = find(*window);
    if (place == nullptr) continue;
    if (!is_known && window->first == position) place->doubt(now_ + 1);
    place->load(*window, times_of(*window, position, *place), now_);
  }
  for (const FlatWindow* window : timetable_.at(Timetable::kFirst, position)) {
    Place* place = find(*window);
    if (place == nullptr) continue;
    gate(*place, stream);
  }
}

// If its last launch is another than is planned, or has not come at all, what the plan
// has for dead may be read still.
void Executor::leave(uint32_t position, bool is_known) {
  for (const FlatWindow* window : timetable_.at(Timetable::kWritten, position)) {
    Place* place = find(*window);
    const bool is_read_after = window->written != window->last;
    if (place == nullptr || !is_read_after || (window->flags & kWritesBack) == 0) {
      continue;
    }
    place->store(streams_.marks_since(place->since()));
  }
  for (const FlatWindow* window : timetable_.at(Timetable::kLast, position)) {
    Place* place = find(*window);
    if (place == nullptr) continue;
    if (!is_known) place->doubt(now_ + 1);
    place->release(*window, time_of(position), streams_.marks_since(place->since()),
                   now_);
  }
}

// The job does something else now: what it needs next is not known.
void Executor::stop_loading() {
  laps_.abandon();
  for (const auto& place : places_) {
    if (place == nullptr) continue;
    place->doubt(doubtful_until());
    place->withdraw();
    place->bring_home();
  }
}

// Copies and sets use memory where it is: to bring it takes as long.
void Executor::bring_named(CUstream stream) {
  const auto visit_named = [this](const auto& visit) {
    for (const CUdeviceptr address : named_) {
      visit_places_from(address - lowest_, visit);
    }
  };
  visit_named([this](Place& place) { place.note_use(now_); });
  visit_named([&](Place& place) {
    makeshift_.bring(place, now_, time_of(position_));
    place.doubt(doubtful_until());
    place.suspect();
    gate(place, stream);
    place.bring_home();
  });
  // The job may be about to load more of its code, and not by launches alone.
  gates_.await_all();
}

// What the work at hand names beyond what is planned for it; and unless it is known to
// do what is planned, that too.
void Executor::use_unplanned(CUstream stream, const Entries<uint64_t>& planned,
                             bool is_known, uint64_t until) {
  for (const CUdeviceptr address : named_) {
    const uint64_t offset = address - lowest_;
    const bool is_planned = std::binary_search(planned.begin(), planned.end(), offset);
    if (is_planned && is_known) continue;
    visit_places_from(offset, [&](Place& place) {
      use_unplanned(stream, place, is_planned ? 0 : until);
    });
  }
  if (named_.is_whole()) return;
  for (const auto& place : places_) {
    if (place != nullptr) use_unplanned(stream, *place, doubtful_until());
  }
}

// How far what is named extends is not known: to the allocation's end at most.
template <typename Visit>
void Executor::visit_places_from(uint64_t offset, const Visit& visit) {
  const FlatAllocation* allocation = find_allocation(offset);
  if (allocation == nullptr) return;
  const uint64_t within = offset - allocation->address_offset;
  for (const FlatRange& range : plan_.ranges_of(*allocation)) {
    Place* place = places_[plan_.index_of(range)].get();
    if (place != nullptr && range.offset + range.bytes > within) visit(*place);
  }
}

// Where it is settled it stays until the work at hand is done: whoever moves it waits
// for all work since it came there.
void Executor::use_unplanned(CUstream stream, Place& place, uint64_t until) {
  place.doubt(until);
  place.suspect();
  // Without a plan it comes when a kernel names it.
  if (!aligner_.is_locked()) place.withdraw();
  for (const auto& seat : place.seats()) {
    if (seat->is_settled()) continue;
    auto load = transfers_.withdraw(seat.get());
    if (load) {
      load->copies = true;
      load->may_begin_early = false;
      t_submission.postponed.push_back(std::move(*load));
    }
    gates_.close(*seat, stream);
  }
  place.bring_home();
}

// The driver looks up what is copied or set when it is told to.
void Executor::await_named(const Work& work) {
  visit_ranges(work, [](const Place& place, CUdeviceptr begin, CUdeviceptr end) {
    for (const auto& seat : place.seats()) {
      const CUdeviceptr address = seat->chunk.address();
      if (address >= end || address + seat->chunk.bytes() <= begin) continue;
      Transfers::wait(*seat, seat->num_asked);
    }
  });
}

// What copies and sets use, and of its places the first byte and that after the last.
template <typename Visit>
void Executor::visit_ranges(const Work& work, const Visit& visit) {
  if (work.has_more_ranges) {
    for (const auto& place : places_) {
      if (place != nullptr) visit(*place, lowest_, UINT64_MAX);
    }
  }
  for (uint32_t i = 0; i < work.num_ranges; ++i) {
    const auto [address, bytes] = work.ranges[i];
    const FlatAllocation* allocation = find_allocation(address - lowest_);
    if (allocation == nullptr) continue;
    for (const FlatRange& range : plan_.ranges_of(*allocation)) {
      Place* place = places_[plan_.index_of(range)].get();
      if (place != nullptr) visit(*place, address, address + bytes);
    }
  }
}

void Executor::gate(const Place& place, CUstream stream) {
  for (const auto& seat : place.seats()) gates_.close(*seat, stream);
}

bool Executor::names_places() const {
  return !named_.is_whole() ||
         std::any_of(named_.begin(), named_.end(), [this](CUdeviceptr address) {
           return find_allocation(address - lowest_) != nullptr;
         });
}

const FlatAllocation* Executor::find_allocation(uint64_t offset) const {
  const auto next = allocations_.upper_bound(offset);
  if (next == allocations_.begin()) return nullptr;
  const FlatAllocation* found = std::prev(next)->second;
  const uint64_t bytes = round_up_to_piece(found->bytes);
  return offset - found->address_offset < bytes ? found : nullptr;
}

void Executor::await_moves() {
  const std::lock_guard<std::mutex> lock(mutex_);
  gates_.await_all();
}

void Executor::forget_stream(CUstream stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  streams_.forget(stream);
}

void Executor::prepare_capture(CUstream stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  streams_.mark(stream);
}

}  // namespace transit
