// Devices and contexts. Both live as long as the process: a handle stays readable after
// its context is destroyed, and says so.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "stream.h"

namespace simgpu {

struct Device;

struct Context {
  Context(Device& owner, unsigned context_flags);

  CUcontext handle() { return reinterpret_cast<CUcontext>(this); }

  // Enqueues behind what the default stream orders before it.
  uint64_t submit(Stream& stream, Task task);
  StreamRef create_stream(unsigned stream_flags, int priority);
  StreamRef per_thread_stream();
  // Waits for every stream, then throws what went wrong on the device, if anything.
  void synchronize();
  void check() const;

  Device& device;
  const uint32_t id;
  unsigned flags;
  std::atomic<bool> alive{true};
  std::atomic<CUresult> error{CUDA_SUCCESS};  // sticky, as on a GPU
  StreamRef legacy;

 private:
  std::vector<StreamRef> open_streams();

  std::mutex mutex_;
  std::vector<StreamRef> streams_;
};

struct Device {
  int ordinal;
  size_t memory_bytes;
  std::mutex mutex;  // guards the primary context
  std::unique_ptr<Context> primary;
  unsigned primary_flags = 0;
  int primary_references = 0;
};

// The devices of the process, made at the first call.
const std::vector<std::unique_ptr<Device>>& devices();
Device& find_device(CUdevice ordinal);

// TRANSIT_SIM_CONTEXT_MEMORY: what a context takes of its device.
void take_context_memory(const Device& device);
void give_back_context_memory(const Device& device);

// Every context there ever was, in order of creation.
std::vector<Context*> all_contexts();
Context& find_context(CUcontext handle);

// The current context of this thread: usable, or an Error.
Context& current_context();
CUcontext current_handle();

}  // namespace simgpu
