// A windowed range of an allocation that is alive: its chunks, and what is known of
// what they hold.
#pragma once

#include <algorithm>

#include "runtime/native/plan/plan.h"
#include "runtime/native/windows/seats.h"

namespace transit {

class Place {
 public:
  Place(Transfers& transfers, const FlatRange& range, Entries<FlatWindow> windows)
      : transfers_(transfers), range_(range), windows_(windows) {}
  // Waits for its moves; nobody uses it any more.
  ~Place() { close_seats(transfers_, seats_); }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  // To be called once. The range is at home then.
  Outcome create(CUdevice device, CUdeviceptr allocation);

  const FlatRange& range() const { return range_; }
  Entries<FlatWindow> windows() const { return windows_; }
  const Seats& seats() const { return seats_; }

  // Since when, in pieces of work, it is where it was last asked to be.
  uint64_t since() const { return since_; }

  // `now` is the number of the piece of work at hand. What is there already stays.
  void load(const FlatWindow& window, Transfers::Load times, uint64_t now);
  void release(const FlatWindow& window, uint64_t time, const Events& after,
               uint64_t now);
  void store(const Events& after);

  // In turn, at a time that is now. Whatever it holds is known to nobody.
  void come(Transfers::Load times, uint64_t now);
  void go(const Events& after, uint64_t now, uint64_t time);

  // There, or on the way.
  uint64_t bytes_on_gpu() const;

  // The last piece of work that named it while nothing was planned.
  uint64_t last_use() const { return last_use_; }
  void note_use(uint64_t now) { last_use_ = now; }

  // Takes back loads that have not begun, if nothing waits for them.
  void withdraw();

  // Until some piece of work the plan does not know what it holds: all of it is copied,
  // both ways.
  void doubt(uint64_t until) { doubtful_until_ = std::max(doubtful_until_, until); }

  // It may be written now, though it is not planned to be.
  void suspect();

  // It may be used in host memory from now on. Waits for what moves it there.
  void bring_home();

 private:
  Transfers& transfers_;
  const FlatRange& range_;
  const Entries<FlatWindow> windows_;
  Seats seats_;
  uint64_t since_ = 0;
  uint64_t last_use_ = 0;
  uint64_t doubtful_until_ = 0;
  bool is_nowhere_ = false;  // when it is not on the GPU
  bool is_stored_ = false;   // since it was last written
  bool is_suspect_ = false;  // since it was loaded
};

}  // namespace transit
