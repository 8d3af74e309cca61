// Which windowed ranges are on the GPU while the job does what no plan is for: before
// its iteration is recognised, and in evaluations. What a kernel names is brought
// there, as far as there is room, and what was named least recently goes.
#pragma once

#include <memory>
#include <vector>

#include "runtime/native/windows/place.h"
#include "runtime/native/windows/stream_log.h"

namespace transit {

class Makeshift {
 public:
  using Places = std::vector<std::unique_ptr<Place>>;

  // Places may be null, and come and go. They and what the driver has take up to so
  // many bytes.
  Makeshift(uint64_t bytes, const Places& places, StreamLog& streams)
      : bytes_(bytes), places_(places), streams_(streams) {}

  // It has just been made, and holds nothing.
  void welcome(Place& place, uint64_t now, uint64_t time);

  // For the piece of work at hand, of number `now`, which uses the place. `time` is
  // that of moves.
  void bring(Place& place, uint64_t now, uint64_t time);

 private:
  bool find_room(uint64_t bytes, uint64_t now, uint64_t time);
  bool has_room(uint64_t bytes) const;
  Place* choose_victim(uint64_t now) const;

  const uint64_t bytes_;
  const Places& places_;
  StreamLog& streams_;
};

}  // namespace transit
