#include "runtime/native/paging/pager.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "runtime/native/interpose/driver.h"
#include "runtime/native/memory/captures.h"
#include "runtime/native/status/status.h"
#include "runtime/native/windows/signature.h"

namespace transit {
namespace {

// More are seldom submitted before the GPU gets to them.
constexpr uint64_t kPiecesAhead = 128;

// What before() leaves for after().
struct Submission {
  bool is_followed = false;
  bool is_unlocked = false;  // while the call is made
  CUstream stream = nullptr;
};
thread_local Submission t_submission;

bool overlap(const Page& page, const Work& work) {
  const CUdeviceptr begin = page.seat->chunk.address();
  for (uint32_t i = 0; i < work.num_ranges && i < std::size(work.ranges); ++i) {
    const auto [address, bytes] = work.ranges[i];
    if (address < begin + page.bytes() && begin < address + bytes) return true;
  }
  return false;
}

}  // namespace

Pager::Pager(const Options& options, CUdevice device, CUcontext context,
             CUdeviceptr lowest_address, uint64_t span_bytes)
    : options_(options),
      device_(device),
      transfers_(context, device, options.budget_bytes, options.budget_bytes, {}),
      space_(lowest_address, span_bytes),
      gates_(transfers_) {}

Outcome Pager::add(uint64_t bytes, CUdeviceptr* address) {
  auto paged = std::make_unique<Paged>();
  paged->bytes = round_up_to_piece(bytes);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    paged->address = space_.take(bytes);
  }
  if (paged->address == 0) return {CUDA_ERROR_OUT_OF_MEMORY, "no addresses are left"};
  const Outcome opened =
      open_seats(transfers_, device_, paged->address, paged->bytes, &paged->seats);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!opened.ok()) {
    close_seats(transfers_, paged->seats);
    space_.give_back(paged->address);
    return opened;
  }
  for (const auto& seat : paged->seats) {
    paged->pages.push_back({seat.get(), paged.get(), past_.now()});
  }
  for (Page& page : paged->pages) {
    if (has_room(page.bytes())) load(page, past_.now(), false, {});
  }
  *address = paged->address;
  allocations_.emplace(paged->address, std::move(paged));
  return {};
}

void Pager::remove(CUdeviceptr address) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = allocations_.find(address);
  Paged& paged = *found->second;
  for (const Page& page : paged.pages) {
    if (page.seat->will_be_on_gpu()) asked_bytes_ -= page.bytes();
    gates_.forget(*page.seat);
  }
  const auto is_gone = [&](const Page* page) { return page->paged == &paged; };
  moving_.erase(std::remove_if(moving_.begin(), moving_.end(), is_gone), moving_.end());
  close_seats(transfers_, paged.seats);
  space_.give_back(address);
  allocations_.erase(found);
}

void Pager::make_room(uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  find_room(bytes, 0);
  for (const Page* page : moving_) {
    const Seat& seat = *page->seat;
    if (!seat.will_be_on_gpu()) Transfers::wait(seat, seat.num_asked);
  }
  transfers_.make_room(bytes);
}

void Pager::before(const Work& work) {
  const CUstream stream = stream_of(work);
  mutex_.lock();
  if (captures::holds(stream)) {
    await(work);  // the driver looks up what it is told of
    mutex_.unlock();
    return;
  }
  t_submission = {true, false, stream};
  gates_.count_work();
  find_room(0, 0);  // the driver may have given memory to others
  note(work);
  if (work.kind == Work::Kind::kKernel) bring();
  if (options_.moves_ahead) bring_ahead();
  gate(stream);
  await(work);
  // The job may be about to load more of its code: the driver would wait for a gate,
  // and let nobody open it meanwhile.
  gates_.await_all();
  // What it waits for may be another thread's work.
  t_submission.is_unlocked = work.is_blocking && named_.is_whole() && touched_.empty();
  if (t_submission.is_unlocked) mutex_.unlock();
}

void Pager::after() {
  Submission& submission = t_submission;
  if (!submission.is_followed) return;
  submission.is_followed = false;
  if (submission.is_unlocked) mutex_.lock();
  streams_.note(submission.stream, past_.now());
  for (Page* page : wanted_) {
    page->is_wanted = false;
    page->last_use = past_.now();
  }
  for (Paged* paged : touched_) {
    for (Page& page : paged->pages) page.is_used = true;
  }
  wanted_.clear();
  touched_.clear();
  wanted_bytes_ = 0;
  mutex_.unlock();
}

// Copies and sets use memory where it is: to bring it takes as long.
void Pager::note(const Work& work) {
  named_.collect(work, space_.filter());
  const bool brings = work.kind == Work::Kind::kKernel;
  past_.note(signature_of(work) + named_.hash(), named_.begin(),
             brings ? named_.end() : named_.begin());
  if (!named_.is_whole()) last_unknown_ = past_.now();
  for (uint32_t i = 0; i < work.num_ranges; ++i) {
    want(work.ranges[i].address, work.ranges[i].bytes);
  }
  if (!brings) return;
  for (const CUdeviceptr address : named_) want(address, UINT64_MAX);
}

// How far what is named extends is not known: to the allocation's end at most.
void Pager::want(CUdeviceptr address, uint64_t bytes) {
  Paged* paged = find(address);
  if (paged == nullptr) return;
  if (std::find(touched_.begin(), touched_.end(), paged) == touched_.end()) {
    touched_.push_back(paged);
    paged->note_use(past_.now());
  }
  const uint64_t begin = address - paged->address;
  const uint64_t end = begin + std::min(bytes, paged->bytes - begin);
  for (uint64_t i = begin / Chunk::kMostBytes; i * Chunk::kMostBytes < end; ++i) {
    Page& page = paged->pages[i];
    if (page.is_wanted) continue;
    page.is_wanted = true;
    wanted_.push_back(&page);
    if (page.seat->will_be_on_gpu()) wanted_bytes_ += page.bytes();
  }
}

void Pager::bring() {
  for (Page* page : wanted_) {
    if (page->seat->will_be_on_gpu()) continue;
    if (fits(*page) && find_room(page->bytes(), 0)) {
      load(*page, past_.now(), true, users_of(*page));
    } else {
      status::add(&StatusFile::loads_without_room);
    }
  }
}

void Pager::bring_ahead() {
  const uint64_t then = past_.then();
  if (then == 0) return;
  const uint64_t end = std::min(then + kPiecesAhead, past_.now());
  if (looked_ahead_to_ < then || looked_ahead_to_ > end) looked_ahead_to_ = then;
  while (looked_ahead_to_ < end && bring_ahead(looked_ahead_to_ + 1)) {
    ++looked_ahead_to_;
  }
}

// False if there is no room that is used later.
bool Pager::bring_ahead(uint64_t time) {
  const uint64_t ahead = time - past_.then();
  for (const CUdeviceptr address : past_.named_at(time)) {
    Paged* paged = find(address);
    if (paged == nullptr) continue;
    const uint64_t first = (address - paged->address) / Chunk::kMostBytes;
    for (uint64_t i = first; i < paged->pages.size(); ++i) {
      Page& page = paged->pages[i];
      if (page.seat->will_be_on_gpu()) continue;
      if (!find_room(page.bytes(), ahead + 1)) return false;
      load(page, past_.now() + ahead, true, users_of(page));
    }
  }
  return true;
}

void Pager::gate(CUstream stream) {
  const auto is_settled = [](const Page* page) { return page->seat->is_settled(); };
  moving_.erase(std::remove_if(moving_.begin(), moving_.end(), is_settled),
                moving_.end());
  const bool uses_any = !options_.moves_ahead || !named_.is_whole();
  for (Page* page : moving_) {
    const bool is_touched =
        std::find(touched_.begin(), touched_.end(), page->paged) != touched_.end();
    if (!uses_any && !is_touched) continue;
    if (options_.moves_ahead) hasten(*page);
    gates_.close(*page->seat, stream);
  }
}

// The driver looks up what is copied or set when it is told to.
void Pager::await(const Work& work) {
  for (const Page* page : moving_) {
    if (!work.has_more_ranges && !overlap(*page, work)) continue;
    Transfers::wait(*page->seat, page->seat->num_asked);
  }
}

void Pager::load(Page& page, uint64_t due, bool copies, Events after) {
  transfers_.load({page.seat, past_.now(), due, copies, false, true, std::move(after)});
  asked_bytes_ += page.bytes();
  if (page.is_wanted) wanted_bytes_ += page.bytes();
  set_moving(page);
}

void Pager::release(Page& page) {
  if (take_back(page)) return;
  transfers_.release(page.seat, Transfers::To::kHome, true, past_.now(),
                     streams_.marks_since(page.since));
  asked_bytes_ -= page.bytes();
  set_moving(page);
}

void Pager::set_moving(Page& page) {
  page.since = past_.now();
  page.is_used = false;
  if (std::find(moving_.begin(), moving_.end(), &page) == moving_.end()) {
    moving_.push_back(&page);
  }
}

// Work is about to wait for it. A load that was asked for ahead would begin after those
// that are asked for later and needed sooner, and these may wait for room until that
// work is done.
void Pager::hasten(Page& page) {
  if (page.seat->is_settled()) return;
  auto load = transfers_.withdraw(page.seat);
  if (!load) return;
  load->due = past_.now();
  transfers_.load(std::move(*load));
}

// A load that was asked for ahead, and has not begun.
bool Pager::take_back(Page& page) {
  if (page.seat->is_settled() || !transfers_.withdraw(page.seat)) return false;
  asked_bytes_ -= page.bytes();
  // Who used it at home before may still do so.
  page.since = 0;
  page.is_used = true;
  return true;
}

// What may use it where it is.
Events Pager::users_of(const Page& page) {
  const bool may_be_used =
      !options_.moves_ahead || page.is_used || last_unknown_ >= page.since;
  return may_be_used ? streams_.marks_since(page.since) : Events{};
}

// Beside all else that the work at hand wants.
bool Pager::fits(const Page& page) const {
  return wanted_bytes_ + driver_bytes() + page.bytes() <= options_.budget_bytes;
}

bool Pager::has_room(uint64_t bytes) const {
  return asked_bytes_ + driver_bytes() + bytes <= options_.budget_bytes;
}

// What goes is not used before then, if the past is a guide.
bool Pager::find_room(uint64_t bytes, uint64_t least_time_to_use) {
  while (!has_room(bytes)) {
    Page* victim = choose_victim(least_time_to_use);
    if (victim == nullptr) return false;
    release(*victim);
  }
  return true;
}

Page* Pager::choose_victim(uint64_t least_time_to_use) {
  const uint64_t then = past_.then();
  Page* victim = nullptr;
  uint64_t longest = 0;
  for (const auto& entry : allocations_) {
    Paged& paged = *entry.second;
    const uint64_t time = then == 0 ? 0 : paged.time_to_use(then, past_.now());
    if (time < std::max(longest, least_time_to_use)) continue;
    for (Page& page : paged.pages) {
      if (page.is_wanted || !page.seat->will_be_on_gpu()) continue;
      const bool is_better =
          victim == nullptr || time > longest || page.last_use < victim->last_use;
      if (!is_better) continue;
      victim = &page;
      longest = time;
    }
  }
  return victim;
}

Paged* Pager::find(CUdeviceptr address) {
  const auto next = allocations_.upper_bound(address);
  if (next == allocations_.begin()) return nullptr;
  Paged& paged = *std::prev(next)->second;
  return address - paged.address < paged.bytes ? &paged : nullptr;
}

void Pager::await_moves() {
  const std::lock_guard<std::mutex> lock(mutex_);
  gates_.await_all();
}

void Pager::forget_stream(CUstream stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  streams_.forget(stream);
}

// Room may be needed while it lasts, which takes marks of all streams.
void Pager::prepare_capture(CUstream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  streams_.marks_since(0);
}

}  // namespace transit
