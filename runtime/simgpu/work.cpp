#include "work.h"

#include <time.h>

#include <algorithm>
#include <cstring>

#include "call.h"
#include "context.h"
#include "faults.h"
#include "memory.h"
#include "process.h"

namespace simgpu {
namespace {

constexpr double kCopyNs = 2000;
constexpr double kLinkBytesPerNs = 55;

uint32_t device_of(const Stream& stream) {
  return static_cast<uint32_t>(stream.context.device.ordinal);
}

// Work goes on for as long as its pages fault in.
Span occupy(Stream& stream, uint64_t submitted_ns, uint64_t duration_ns,
            uint64_t faulted_ns) {
  Span span = stream.occupy(submitted_ns, duration_ns);
  span.end_ns = std::max(span.end_ns, faulted_ns);
  stream.occupied_until(span.end_ns);
  return span;
}

void run(const KernelWork& work, Stream& stream, const Submission& submission) {
  const KnownKernel& kernel = *work.function->kernel;
  const Footprint footprint = kernel.footprint(work.arguments.data());
  uint64_t faulted_ns = 0;
  for (const Access& access : footprint.accesses)
    faulted_ns = std::max(faulted_ns, touch(stream.context.device.ordinal, access));
  kernel.run(work.arguments.data());
  const Span span =
      occupy(stream, submission.time_ns, footprint.duration_ns, faulted_ns);
  notify(&Observer::kernel,
         KernelActivity{span.start_ns,
                        span.end_ns,
                        submission.correlation_id,
                        device_of(stream),
                        stream.context.id,
                        stream.id,
                        {work.grid[0], work.grid[1], work.grid[2]},
                        {work.block[0], work.block[1], work.block[2]},
                        work.function->entry.name.c_str(),
                        submission.place.graph_id,
                        submission.place.node_id});
}

// Memory the driver does not know is the host's own.
uint64_t touch_if_known(const Stream& stream, const Access& access) {
  {
    const std::lock_guard lock(memory_mutex());
    if (!find_range(access.address)) return 0;
  }
  return touch(stream.context.device.ordinal, access);
}

void sleep_us(uint64_t microseconds) {
  const timespec duration = {static_cast<time_t>(microseconds / 1000000),
                             static_cast<long>(microseconds % 1000000 * 1000)};
  nanosleep(&duration, nullptr);
}

void run(const CopyWork& work, Stream& stream, const Submission& submission) {
  const uint64_t read_ns =
      touch_if_known(stream, {work.source, work.bytes, true, false});
  const uint64_t written_ns =
      touch_if_known(stream, {work.destination, work.bytes, false, true});
  if (slow_copy_us()) sleep_us(slow_copy_us());
  std::memmove(reinterpret_cast<void*>(work.destination),
               reinterpret_cast<const void*>(work.source), work.bytes);
  const auto duration_ns = static_cast<uint64_t>(
      kCopyNs + static_cast<double>(work.bytes) / kLinkBytesPerNs);
  const Span span =
      occupy(stream, submission.time_ns, duration_ns, std::max(read_ns, written_ns));
  notify(&Observer::copy,
         CopyActivity{span.start_ns, span.end_ns, work.bytes, submission.correlation_id,
                      device_of(stream), stream.context.id, stream.id, work.copy_kind,
                      work.source_kind, work.destination_kind,
                      submission.place.graph_id, submission.place.node_id});
}

template <class Element>
void fill(const SetWork& work) {
  std::fill_n(reinterpret_cast<Element*>(work.destination), work.elements,
              static_cast<Element>(work.value));
}

void run(const SetWork& work, Stream& stream, const Submission& submission) {
  const size_t bytes = work.elements * work.element_bytes;
  const uint64_t faulted_ns =
      touch(stream.context.device.ordinal, {work.destination, bytes, false, true});
  switch (work.element_bytes) {
    case 1:
      fill<uint8_t>(work);
      break;
    case 2:
      fill<uint16_t>(work);
      break;
    default:
      fill<uint32_t>(work);
      break;
  }
  const auto duration_ns =
      static_cast<uint64_t>(kCopyNs + static_cast<double>(bytes) / kLinkBytesPerNs);
  const Span span = occupy(stream, submission.time_ns, duration_ns, faulted_ns);
  notify(&Observer::set,
         SetActivity{span.start_ns, span.end_ns, bytes, submission.correlation_id,
                     device_of(stream), stream.context.id, stream.id, work.value,
                     submission.place.graph_id, submission.place.node_id});
}

void run(const ChildWork&, Stream&, const Submission&) {}

void run(const HostWork& work, Stream&, const Submission&) { work.function(work.data); }

}  // namespace

void execute(const Work& work, Stream& stream, const Submission& submission) {
  if (stream.context.error != CUDA_SUCCESS) return;
  std::visit([&](const auto& kind) { run(kind, stream, submission); }, work);
}

}  // namespace simgpu
