// Moves chunks between host and GPU, beside the job's work.
//
//   at home --load--> on the GPU --release--> at home
//
// or, when nobody needs it in between, nowhere (chunk.h) in the place of at home.
// The moves of one chunk take turns and are numbered: it is known by their number what
// was asked for and what is done. From a move's start to its end nobody may use the
// chunk: streams wait for the number. Loads are begun when the job got as far as asked
// for and there is room, now and for all that is needed before them, the most urgent
// first; what is copied out is so in turn, and what is not leaves in turn, when the job
// is done with it. One thread does it all, and looks again and again what is due: that
// costs less than to be told by the driver.
#pragma once

#include <stdint.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "runtime/native/windows/chunk.h"
#include "runtime/native/windows/events.h"
#include "runtime/native/windows/reservations.h"
#include "runtime/native/windows/spare_memory.h"

namespace transit {

// What the driver has given to others, in whole pieces.
uint64_t driver_bytes();

// A chunk and its moves.
struct Seat {
  Seat(CUdevice device, CUdeviceptr address, uint64_t bytes)
      : chunk(device, address, bytes) {}

  bool will_be_on_gpu() const { return num_asked % 2 == 1; }
  uint32_t done() const { return __atomic_load_n(num_done, __ATOMIC_ACQUIRE); }
  bool has_done(uint32_t number) const {
    return static_cast<int32_t>(done() - number) >= 0;
  }
  bool is_settled() const { return has_done(num_asked); }

  Chunk chunk;                          // of the thread that moves it
  bool is_home_stale = false;           // likewise: what was to leave, and could not
  uint32_t num_asked = 0;               // of those that ask
  uint32_t* num_done = nullptr;         // in pinned memory
  uint32_t num_stores_asked = 0;        // of those that ask
  std::atomic<uint32_t> num_stored{0};  // of these
  uint64_t early_from = 0, early_until = 0;  // reserved; of the thread that moves it
};

class Transfers {
 public:
  // What is on the GPU never exceeds the budget: a chunk for which no room comes to be
  // stays at home. `own_bytes` of it are never for anything but chunks and what the
  // driver has; loads in turn take no more.
  Transfers(CUcontext context, CUdevice device, uint64_t budget_bytes,
            uint64_t own_bytes, Reservations reservations);

  // One caller at a time asks for moves; a seat's loads and releases alternate. Times
  // count launches of the iteration.
  struct Load {
    Seat* seat;
    uint64_t issue;        // when it is asked for
    uint64_t due;          // when it is needed
    bool copies;           // else what is at home is not needed
    bool may_begin_early;  // before `after`, if there is room: nobody uses it at home
    bool is_in_turn;       // nothing that is due as early or later begins before it
    Events after;
  };
  void load(Load load);
  enum class To { kHome, kNowhere };
  void release(Seat* seat, To to, bool copies, uint64_t time, Events after);

  // Copies out what is on the GPU, while it is read, before it is released.
  void store(Seat* seat, Events after);

  // Takes back the seat's last move if that is a load which was not begun, and for
  // which no stream waits.
  std::optional<Load> withdraw(Seat* seat);

  // What the stream does from now on waits for the seat's moves up to this one.
  void gate(const Seat& seat, uint32_t number, CUstream stream);

  // Nothing of the seat is on its way, or on the GPU, when it returns.
  void end(Seat& seat);

  // Lets a seat that is not asked to the GPU be used where it is, once it is there.
  static void bring_home(Seat* seat);

  // As `gate`, for the caller.
  static void wait(const Seat& seat, uint32_t number);

  // Gives memory that no chunk has back to the driver, which is to be asked for so
  // much.
  void make_room(uint64_t bytes);

  // For Seat::num_done; null if there is no pinned memory.
  uint32_t* take_counter();
  void give_back(uint32_t* counter);

 private:
  using Clock = std::chrono::steady_clock;

  struct QueuedLoad : Load {
    uint32_t number;
    std::optional<Clock::time_point> gated;  // a stream waits for it since
  };
  struct Outgoing {
    Seat* seat;
    uint32_t number;  // of the move, or for a store of the one before it
    bool is_release;
    To to;
    uint32_t num_stores;  // of the seat, which come before
    uint64_t time;
    Events after;
  };
  struct Copy {
    Seat* seat;
    bool is_release;
    bool leaves;  // the GPU when it is copied
    To to;
    std::shared_ptr<const Event> end;  // null: nothing is copied
  };
  struct Milestone {
    uint64_t time;
    Events after;
  };
  using Lock = std::unique_lock<std::mutex>;

  void work();
  bool begin_load(Lock& lock);
  bool begin_copy_out(Lock& lock);
  bool drop(Lock& lock);
  bool end_copies(Lock& lock);
  static bool may_begin(const Outgoing& outgoing);

  void look_where_the_job_is();
  std::deque<QueuedLoad>::iterator choose_load();
  bool has_room(const QueuedLoad& load) const;
  uint64_t awaited_before(const QueuedLoad& load) const;
  bool is_hopeless(const QueuedLoad& load) const;

  void enter(const QueuedLoad& load);
  Outcome bring_memory(Chunk& chunk);
  Outcome make_memory(uint64_t bytes, PhysicalMemory* memory);
  uint64_t bytes_to_spare(uint64_t wanted_bytes) const;
  void leave(Seat* seat, To to);
  uint64_t begin_of(const QueuedLoad& load) const;
  static void done(Seat* seat);

  const CUcontext context_;
  const CUdevice device_;
  const uint64_t budget_bytes_, own_bytes_;
  Reservations reservations_;  // of the thread that moves chunks

  std::mutex mutex_;
  std::condition_variable asked_;
  std::deque<QueuedLoad> loads_;  // by due
  std::deque<Outgoing> to_copy_out_, to_drop_;
  std::deque<Milestone> milestones_;  // which the job has not reached
  std::vector<uint32_t*> spare_counters_;

  SpareMemory spare_;
  std::atomic<uint64_t> bytes_here_{0};  // of chunks on the GPU; of the working thread

  // Of the working thread.
  CUstream load_stream_ = nullptr, store_stream_ = nullptr;
  std::deque<Copy> copies_in_, copies_out_;
  uint64_t reached_ = 0;  // by the job, at least
  Clock::time_point last_progress_;
};

}  // namespace transit
