#include <time.h>

#include <algorithm>
#include <mutex>
#include <type_traits>
#include <unordered_map>

#include "call.h"
#include "capture.h"
#include "context.h"
#include "memory.h"
#include "process.h"

namespace simgpu {
namespace {

constexpr int kLowestPriority = 0;
constexpr int kHighestPriority = -5;

template <class Word>
bool reached(Word current, Word wanted, unsigned condition) {
  using Signed = std::make_signed_t<Word>;
  switch (condition) {
    case CU_STREAM_WAIT_VALUE_EQ:
      return current == wanted;
    case CU_STREAM_WAIT_VALUE_AND:
      return (current & wanted) != 0;
    case CU_STREAM_WAIT_VALUE_NOR:
      return static_cast<Word>(~(current | wanted)) != 0;
    default:
      return static_cast<Signed>(current - wanted) >= 0;  // GEQ, cyclic
  }
}

void pause_briefly() {
  const timespec duration = {0, 20000};
  nanosleep(&duration, nullptr);
}

template <class Word>
void wait_value(CUstream handle, CUdeviceptr address, Word value, unsigned flags) {
  const StreamRef stream = find_stream(handle);
  require(address % sizeof(Word) == 0);
  range_of(address, sizeof(Word));
  refuse_capturing(*stream);
  stream->context.submit(*stream, [address, value, flags](Stream& self) {
    const auto* word = reinterpret_cast<const Word*>(address);
    const unsigned condition = flags & ~unsigned{CU_STREAM_WAIT_VALUE_FLUSH};
    while (self.context.error == CUDA_SUCCESS &&
           !reached(__atomic_load_n(word, __ATOMIC_ACQUIRE), value, condition)) {
      pause_briefly();
      self.occupied_until(now_ns());
    }
  });
}

template <class Word>
void write_value(CUstream handle, CUdeviceptr address, Word value) {
  const StreamRef stream = find_stream(handle);
  require(address % sizeof(Word) == 0);
  range_of(address, sizeof(Word));
  refuse_capturing(*stream);
  stream->context.submit(*stream, [address, value](Stream&) {
    __atomic_store_n(reinterpret_cast<Word*>(address), value, __ATOMIC_RELEASE);
  });
}

struct Streams {
  std::mutex mutex;
  std::unordered_map<CUstream, StreamRef> by_handle;
};

Streams& streams() {
  static auto* instance = new Streams;
  return *instance;
}

// With the lock held.
auto find_created(CUstream handle) {
  const auto found = streams().by_handle.find(handle);
  require(found != streams().by_handle.end(), CUDA_ERROR_INVALID_HANDLE);
  return found;
}

void create(CUstream* handle, unsigned flags, int priority) {
  require(handle && (flags & ~unsigned{CU_STREAM_NON_BLOCKING}) == 0);
  const int clamped = std::min(std::max(priority, kHighestPriority), kLowestPriority);
  const StreamRef stream = current_context().create_stream(flags, clamped);
  *handle = stream->handle();
  const std::lock_guard lock(streams().mutex);
  streams().by_handle[*handle] = stream;
}

}  // namespace

StreamRef find_stream(CUstream handle) {
  Context& context = current_context();
  if (handle == nullptr)
    return Call::current().api.per_thread_stream ? context.per_thread_stream()
                                                 : context.legacy;
  if (handle == CU_STREAM_LEGACY) return context.legacy;
  if (handle == CU_STREAM_PER_THREAD) return context.per_thread_stream();
  const std::lock_guard lock(streams().mutex);
  return find_created(handle)->second;
}

DRIVER_API(cuStreamCreate, (CUstream * handle, unsigned flags), (handle, flags)) {
  create(handle, flags, kLowestPriority);
}

DRIVER_API(cuStreamCreateWithPriority,
           (CUstream * handle, unsigned flags, int priority),
           (handle, flags, priority)) {
  create(handle, flags, priority);
}

DRIVER_API(cuStreamDestroy_v2, (CUstream handle), (handle)) {
  StreamRef stream;
  {
    const std::lock_guard lock(streams().mutex);
    const auto found = find_created(handle);
    stream = found->second;
    streams().by_handle.erase(found);
  }
  abandon_capture(*stream);
  stream->close();
}

STREAM_API(cuStreamSynchronize, ptsz, (CUstream handle), (handle)) {
  const StreamRef stream = find_stream(handle);
  refuse_capturing(*stream);
  refuse_during_capture();
  stream->drain();
  // The default stream's own work waits for the others; an empty one does so here.
  if (stream == stream->context.legacy)
    stream->wait(stream->context.submit(*stream, [](Stream&) {}));
  stream->context.check();
}

STREAM_API(cuStreamQuery, ptsz, (CUstream handle), (handle)) {
  const StreamRef stream = find_stream(handle);
  refuse_capturing(*stream);
  refuse_during_capture();
  require(stream->idle(), CUDA_ERROR_NOT_READY);
  stream->context.check();
}

STREAM_API(cuStreamGetCtx, ptsz, (CUstream handle, CUcontext* context),
           (handle, context)) {
  require(context);
  *context = find_stream(handle)->context.handle();
}

STREAM_API(cuStreamGetDevice, ptsz, (CUstream handle, CUdevice* device),
           (handle, device)) {
  require(device);
  *device = find_stream(handle)->context.device.ordinal;
}

STREAM_API(cuStreamGetFlags, ptsz, (CUstream handle, unsigned* flags),
           (handle, flags)) {
  require(flags);
  *flags = find_stream(handle)->flags;
}

STREAM_API(cuStreamGetPriority, ptsz, (CUstream handle, int* priority),
           (handle, priority)) {
  require(priority);
  *priority = find_stream(handle)->priority;
}

STREAM_API(cuStreamGetId, ptsz, (CUstream handle, unsigned long long* id),
           (handle, id)) {
  require(id);
  *id = find_stream(handle)->id;
}

STREAM_API(cuLaunchHostFunc, ptsz, (CUstream handle, CUhostFn function, void* data),
           (handle, function, data)) {
  require(function);
  submit(*find_stream(handle), HostWork{function, data});
}

STREAM_API(cuStreamAddCallback, ptsz,
           (CUstream handle, CUstreamCallback callback, void* data, unsigned flags),
           (handle, callback, data, flags)) {
  require(callback && flags == 0);
  const StreamRef stream = find_stream(handle);
  refuse_capturing(*stream);
  stream->context.submit(*stream, [callback, data, handle](Stream& self) {
    callback(handle, self.context.error, data);
  });
}

STREAM_API(cuStreamWaitValue32_v2, ptsz,
           (CUstream handle, CUdeviceptr address, cuuint32_t value, unsigned flags),
           (handle, address, value, flags)) {
  wait_value<uint32_t>(handle, address, value, flags);
}

STREAM_API(cuStreamWaitValue64_v2, ptsz,
           (CUstream handle, CUdeviceptr address, cuuint64_t value, unsigned flags),
           (handle, address, value, flags)) {
  wait_value<uint64_t>(handle, address, value, flags);
}

STREAM_API(cuStreamWriteValue32_v2, ptsz,
           (CUstream handle, CUdeviceptr address, cuuint32_t value, unsigned flags),
           (handle, address, value, flags)) {
  write_value<uint32_t>(handle, address, value);
}

STREAM_API(cuStreamWriteValue64_v2, ptsz,
           (CUstream handle, CUdeviceptr address, cuuint64_t value, unsigned flags),
           (handle, address, value, flags)) {
  write_value<uint64_t>(handle, address, value);
}

// The first version of these, which drivers still export.
STREAM_API(cuStreamWaitValue32, ptsz,
           (CUstream handle, CUdeviceptr address, cuuint32_t value, unsigned flags),
           (handle, address, value, flags)) {
  wait_value<uint32_t>(handle, address, value, flags);
}

STREAM_API(cuStreamWriteValue32, ptsz,
           (CUstream handle, CUdeviceptr address, cuuint32_t value, unsigned flags),
           (handle, address, value, flags)) {
  write_value<uint32_t>(handle, address, value);
}

}  // namespace simgpu
