// Looks closer at the launches of one iteration, after those that are only watched.
#pragma once

#include <cupti.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "recorder/native/spool_format.h"

namespace transit {

// A launch in the making: between the two callbacks of its call, on its thread.
struct SubmittedLaunch {
  uint64_t launch_id;
  LaunchKind kind;
  CUcontext context;
  CUstream stream;
  const AccessRecord* accesses;  // of a graph: those of all its nodes
  size_t num_accesses;
};

// What it submits to the GPU is not seen by the recorder.
class Inspector {
 public:
  virtual ~Inspector() = default;

  virtual Purpose purpose() const = 0;

  // Between two iterations, outside of callbacks. Returns why the iteration cannot be
  // inspected, empty if it can.
  virtual std::string begin() = 0;

  // Around each launch of the iteration. In callbacks: not to wait for the GPU, which
  // may wait for another rank's.
  virtual void before(const SubmittedLaunch& launch) = 0;
  virtual void after(const SubmittedLaunch& launch) = 0;

  // After the iteration, outside of callbacks and with the GPU idle.
  virtual void end() = 0;
};

}  // namespace transit
