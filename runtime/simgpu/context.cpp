#include "context.h"

#include <algorithm>
#include <unordered_map>

#include "call.h"
#include "capture.h"
#include "memory.h"
#include "process.h"

namespace simgpu {
namespace {

// CUPTI numbers the default stream 7 and counts on from 13.
constexpr uint32_t kLegacyStreamId = 7;
std::atomic<uint32_t> next_stream_id{13};

struct Contexts {
  std::recursive_mutex mutex;  // an observer called under it may call the driver
  std::vector<std::unique_ptr<Context>> created;  // by cuCtxCreate
  std::vector<Context*> all;                      // and the primary ones
};

Contexts& contexts() {
  static auto* instance = new Contexts;
  return *instance;
}

// Needs no destructor: handlers of the program's exit, a recorder's for instance, call
// the driver after this thread's other variables are gone.
class ContextStack {
 public:
  bool empty() const { return depth_ == 0; }
  Context* back() const { return contexts_[depth_ - 1]; }
  void push_back(Context* context) {
    require(depth_ < kMaxDepth, CUDA_ERROR_OUT_OF_MEMORY);
    contexts_[depth_++] = context;
  }
  void pop_back() { --depth_; }

 private:
  static constexpr size_t kMaxDepth = 64;
  Context* contexts_[kMaxDepth] = {};
  size_t depth_ = 0;
};

thread_local ContextStack context_stack;

void tell_of(Context& context) {
  notify(&Observer::context_created, context.handle(), context.id,
         context.device.ordinal);
}

Context& add_context(std::unique_ptr<Context>& owner, Device& device, unsigned flags) {
  take_context_memory(device);
  owner = std::make_unique<Context>(device, flags);
  Context& context = *owner;
  {
    const std::lock_guard lock(contexts().mutex);
    contexts().all.push_back(&context);
  }
  tell_of(context);
  return context;
}

// What the default stream orders: it waits for every blocking stream, and they for it.
Task wait_for(const StreamRef& other) {
  return [other, number = other->submitted()](Stream& self) {
    other->wait(number);
    self.occupied_until(other->last_end_ns());
  };
}

void destroy(Context& context) {
  context.synchronize();
  {
    const std::lock_guard lock(contexts().mutex);
    notify(&Observer::context_destroyed, context.handle());
  }
  release_memory_of(context);
  give_back_context_memory(context.device);
  context.alive = false;
}

void create_context(CUcontext* handle, unsigned flags, CUdevice ordinal) {
  require(handle);
  std::unique_ptr<Context> owner;
  Context& context = add_context(owner, find_device(ordinal), flags);
  const std::lock_guard lock(contexts().mutex);
  contexts().created.push_back(std::move(owner));
  context_stack.push_back(&context);
  *handle = context.handle();
}

}  // namespace

Context::Context(Device& owner, unsigned context_flags)
    : device(owner),
      id([] {
        static std::atomic<uint32_t> next{1};
        return next.fetch_add(1);
      }()),
      flags(context_flags),
      legacy(std::make_shared<Stream>(*this, kLegacyStreamId, CU_STREAM_DEFAULT, 0)) {
  streams_.push_back(legacy);
}

uint64_t Context::submit(Stream& stream, Task task) {
  const std::lock_guard lock(mutex_);
  if (&stream == legacy.get()) {
    for (const StreamRef& other : streams_)
      if (other != legacy && other->blocking() && !other->idle())
        stream.push(wait_for(other));
  } else if (stream.blocking() && !legacy->idle()) {
    stream.push(wait_for(legacy));
  }
  return stream.push(std::move(task));
}

StreamRef Context::create_stream(unsigned stream_flags, int priority) {
  auto stream = std::make_shared<Stream>(*this, next_stream_id.fetch_add(1),
                                         stream_flags, priority);
  const std::lock_guard lock(mutex_);
  streams_.push_back(stream);
  return stream;
}

StreamRef Context::per_thread_stream() {
  struct Streams {
    std::unordered_map<Context*, StreamRef> of_context;
    ~Streams() {
      for (const auto& [context, stream] : of_context) stream->close();
    }
  };
  thread_local Streams mine;
  StreamRef& stream = mine.of_context[this];
  if (!stream) stream = create_stream(CU_STREAM_DEFAULT, 0);
  return stream;
}

// Destroyed streams stay until their last task is done.
std::vector<StreamRef> Context::open_streams() {
  const std::lock_guard lock(mutex_);
  const auto done = [](const StreamRef& s) { return s->closed() && s->idle(); };
  streams_.erase(std::remove_if(streams_.begin(), streams_.end(), done),
                 streams_.end());
  return streams_;
}

void Context::synchronize() {
  for (const StreamRef& stream : open_streams()) stream->drain();
  check();
}

void Context::check() const {
  require(alive, CUDA_ERROR_CONTEXT_IS_DESTROYED);
  const CUresult failure = error;
  require(failure == CUDA_SUCCESS, failure);
}

std::vector<Context*> all_contexts() {
  const std::lock_guard lock(contexts().mutex);
  return contexts().all;
}

Context& find_context(CUcontext handle) {
  auto* context = reinterpret_cast<Context*>(handle);
  const std::vector<Context*> known = all_contexts();
  require(std::find(known.begin(), known.end(), context) != known.end(),
          CUDA_ERROR_INVALID_CONTEXT);
  return *context;
}

Context& current_context() {
  require(!context_stack.empty() && context_stack.back(), CUDA_ERROR_INVALID_CONTEXT);
  context_stack.back()->check();
  return *context_stack.back();
}

CUcontext current_handle() {
  return context_stack.empty() ? nullptr
                               : reinterpret_cast<CUcontext>(context_stack.back());
}

DRIVER_API(cuDevicePrimaryCtxRetain, (CUcontext * handle, CUdevice ordinal),
           (handle, ordinal)) {
  require(handle);
  Device& device = find_device(ordinal);
  const std::lock_guard lock(device.mutex);
  if (!device.primary) {
    add_context(device.primary, device, device.primary_flags);
  } else if (!device.primary->alive.exchange(true)) {
    take_context_memory(device);
    tell_of(*device.primary);
  }
  ++device.primary_references;
  *handle = device.primary->handle();
}

DRIVER_API(cuDevicePrimaryCtxRelease_v2, (CUdevice ordinal), (ordinal)) {
  Device& device = find_device(ordinal);
  const std::lock_guard lock(device.mutex);
  require(device.primary_references > 0, CUDA_ERROR_INVALID_CONTEXT);
  if (--device.primary_references == 0) destroy(*device.primary);
}

DRIVER_API(cuDevicePrimaryCtxReset_v2, (CUdevice ordinal), (ordinal)) {
  Device& device = find_device(ordinal);
  const std::lock_guard lock(device.mutex);
  if (device.primary && device.primary->alive) destroy(*device.primary);
}

DRIVER_API(cuDevicePrimaryCtxSetFlags_v2, (CUdevice ordinal, unsigned flags),
           (ordinal, flags)) {
  Device& device = find_device(ordinal);
  const std::lock_guard lock(device.mutex);
  device.primary_flags = flags;
  if (device.primary) device.primary->flags = flags;
}

DRIVER_API(cuDevicePrimaryCtxGetState, (CUdevice ordinal, unsigned* flags, int* active),
           (ordinal, flags, active)) {
  Device& device = find_device(ordinal);
  const std::lock_guard lock(device.mutex);
  if (flags) *flags = device.primary_flags;
  if (active) *active = device.primary && device.primary->alive;
}

DRIVER_API(cuCtxCreate_v2, (CUcontext * handle, unsigned flags, CUdevice ordinal),
           (handle, flags, ordinal)) {
  create_context(handle, flags, ordinal);
}

DRIVER_API(cuCtxCreate_v4,
           (CUcontext * handle, CUctxCreateParams* parameters, unsigned flags,
            CUdevice ordinal),
           (handle, parameters, flags, ordinal)) {
  require(!parameters || !parameters->execAffinityParams, CUDA_ERROR_NOT_SUPPORTED);
  create_context(handle, flags, ordinal);
}

DRIVER_API(cuCtxDestroy_v2, (CUcontext handle), (handle)) {
  Context& context = find_context(handle);
  require(context.device.primary.get() != &context, CUDA_ERROR_INVALID_CONTEXT);
  destroy(context);
  if (current_handle() == handle) context_stack.pop_back();
}

DRIVER_API(cuCtxSetCurrent, (CUcontext handle), (handle)) {
  if (!context_stack.empty()) context_stack.pop_back();
  if (handle) context_stack.push_back(&find_context(handle));
}

DRIVER_API(cuCtxGetCurrent, (CUcontext * handle), (handle)) {
  require(handle);
  *handle = current_handle();
}

DRIVER_API(cuCtxPushCurrent_v2, (CUcontext handle), (handle)) {
  context_stack.push_back(&find_context(handle));
}

DRIVER_API(cuCtxPopCurrent_v2, (CUcontext * handle), (handle)) {
  require(!context_stack.empty(), CUDA_ERROR_INVALID_CONTEXT);
  if (handle) *handle = current_handle();
  context_stack.pop_back();
}

DRIVER_API(cuCtxGetDevice, (CUdevice * ordinal), (ordinal)) {
  require(ordinal);
  *ordinal = current_context().device.ordinal;
}

DRIVER_API(cuCtxGetId, (CUcontext handle, unsigned long long* id), (handle, id)) {
  require(id);
  *id = handle ? find_context(handle).id : current_context().id;
}

DRIVER_API(cuCtxGetFlags, (unsigned* flags), (flags)) {
  require(flags);
  *flags = current_context().flags;
}

DRIVER_API(cuCtxGetApiVersion, (CUcontext handle, unsigned* version),
           (handle, version)) {
  require(version);
  if (handle) find_context(handle);
  *version = 3020;
}

DRIVER_API(cuCtxGetStreamPriorityRange, (int* least, int* greatest),
           (least, greatest)) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
}

DRIVER_API(cuCtxGetLimit, (size_t* value, CUlimit limit), (value, limit)) {
  require(value && limit < CU_LIMIT_MAX);
  current_context();
  *value = 0;
}

DRIVER_API(cuCtxSetLimit, (CUlimit limit, size_t value), (limit, value)) {
  static_cast<void>(value);
  require(limit < CU_LIMIT_MAX);
}

DRIVER_API(cuCtxEnablePeerAccess, (CUcontext peer, unsigned flags), (peer, flags)) {
  require(flags == 0);
  find_context(peer);
}

DRIVER_API_0(cuCtxSynchronize) {
  Context& context = current_context();
  refuse_during_capture();
  context.synchronize();
}

DRIVER_API_0(cuProfilerStart) {}
DRIVER_API_0(cuProfilerStop) {}

}  // namespace simgpu

SIMGPU_EXPORT void simgpu_synchronize() {
  if (simgpu::process().forked) return;
  for (simgpu::Context* context : simgpu::all_contexts()) {
    try {
      context->synchronize();
    } catch (const simgpu::Error&) {
      // The streams are idle all the same.
    }
  }
}
