#include "capture.h"

#include <algorithm>
#include <atomic>
#include <set>

#include "call.h"
#include "context.h"
#include "graph.h"
#include "process.h"

namespace simgpu {

struct Capture {
  uint64_t id;
  CUstreamCaptureMode mode;
  Stream* origin;
  const void* thread;
  Graph* graph;
  bool valid = true;
  bool ended = false;
  std::vector<StreamRef> streams;
  std::vector<CUgraphEdgeData> edges;  // plain ones, for who asks
};

namespace {

using CaptureRef = std::shared_ptr<Capture>;

struct Captures {
  std::mutex mutex;  // also of every stream's capture and tail
  std::vector<CaptureRef> active;
  uint64_t next_id = 1;
};

Captures& captures() {
  static auto* instance = new Captures;
  return *instance;
}

thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

const void* this_thread() { return &thread_mode; }

bool forbids(const Capture& capture) {
  const bool mine = capture.thread == this_thread();
  switch (thread_mode) {
    case CU_STREAM_CAPTURE_MODE_RELAXED:
      return false;
    case CU_STREAM_CAPTURE_MODE_THREAD_LOCAL:
      return mine && capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    default:
      return capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL ||
             (mine && capture.mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  }
}

void record(Stream& stream, Work work) {
  Capture& capture = *stream.capture;
  require(capture.valid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  stream.capture_tail = {&capture.graph->add(std::move(work), stream.capture_tail)};
}

// The default stream would have to wait for a stream that does not run.
void refuse_implicit_order(Stream& stream) {
  if (&stream != stream.context.legacy.get()) return;
  for (const CaptureRef& capture : captures().active)
    for (const StreamRef& member : capture->streams)
      if (&member->context == &stream.context && member->blocking()) {
        capture->valid = false;
        fail(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
      }
}

bool all_joined(const Capture& capture) {
  std::set<const Node*> loose;
  for (const auto& node : capture.graph->nodes) loose.insert(node.get());
  for (const auto& node : capture.graph->nodes)
    for (const Node* dependency : node->dependencies) loose.erase(dependency);
  for (const Node* node : capture.origin->capture_tail) loose.erase(node);
  return loose.empty();
}

void close_capture(const CaptureRef& capture) {
  for (const StreamRef& stream : capture->streams) {
    stream->capture.reset();
    stream->capture_tail.clear();
  }
  capture->streams.clear();
  capture->ended = true;
  auto& active = captures().active;
  active.erase(std::remove(active.begin(), active.end(), capture), active.end());
}

CUstreamCaptureStatus status_of(const Stream& stream) {
  if (!stream.capture) return CU_STREAM_CAPTURE_STATUS_NONE;
  return stream.capture->valid ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                               : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
}

void get_capture_info(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                      CUgraph* graph, const CUgraphNode** dependencies,
                      const CUgraphEdgeData** edges, size_t* num_dependencies) {
  require(status);
  const StreamRef stream = find_stream(handle);
  const std::lock_guard lock(captures().mutex);
  *status = status_of(*stream);
  if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return;
  if (id) *id = stream->capture->id;
  if (graph) *graph = reinterpret_cast<CUgraph>(stream->capture->graph);
  if (dependencies)
    *dependencies = reinterpret_cast<const CUgraphNode*>(stream->capture_tail.data());
  stream->capture->edges.resize(stream->capture_tail.size());
  if (edges) *edges = stream->capture->edges.data();
  if (num_dependencies) *num_dependencies = stream->capture_tail.size();
}

}  // namespace

bool submit(Stream& stream, Work work, const GraphPlace& place) {
  const std::lock_guard lock(captures().mutex);
  if (stream.capture) {
    record(stream, std::move(work));
    return false;
  }
  refuse_implicit_order(stream);
  const Submission submission = {now_ns(), Call::current().correlation_id, place};
  stream.context.submit(stream, [work = std::move(work), submission](Stream& self) {
    execute(work, self, submission);
  });
  return true;
}

void refuse_during_capture() {
  const std::lock_guard lock(captures().mutex);
  bool refused = false;
  for (const CaptureRef& capture : captures().active) {
    if (!forbids(*capture)) continue;
    capture->valid = false;
    refused = true;
  }
  require(!refused, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

void refuse_capturing(Stream& stream) {
  const std::lock_guard lock(captures().mutex);
  if (!stream.capture) return;
  stream.capture->valid = false;
  fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

bool is_capturing(Stream& stream) {
  const std::lock_guard lock(captures().mutex);
  return stream.capture != nullptr;
}

void abandon_capture(Stream& stream) {
  const std::lock_guard lock(captures().mutex);
  if (!stream.capture) return;
  const CaptureRef capture = stream.capture;
  capture->valid = false;
  if (capture->origin != &stream) return;
  delete capture->graph;
  close_capture(capture);
}

CapturePoint capture_point(Stream& stream) {
  const std::lock_guard lock(captures().mutex);
  return {stream.capture, stream.capture_tail};
}

void join_capture(Stream& stream, const CapturePoint& point) {
  const std::lock_guard lock(captures().mutex);
  require(!point.capture->ended, CUDA_ERROR_CAPTURED_EVENT);
  if (!stream.capture) {
    stream.capture = point.capture;
    point.capture->streams.push_back(stream.shared_from_this());
  }
  require(stream.capture == point.capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
  for (Node* node : point.tail)
    if (std::find(stream.capture_tail.begin(), stream.capture_tail.end(), node) ==
        stream.capture_tail.end())
      stream.capture_tail.push_back(node);
}

STREAM_API(cuStreamBeginCapture_v2, ptsz, (CUstream handle, CUstreamCaptureMode mode),
           (handle, mode)) {
  const StreamRef stream = find_stream(handle);
  require(mode <= CU_STREAM_CAPTURE_MODE_RELAXED);
  require(stream != stream->context.legacy, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  const std::lock_guard lock(captures().mutex);
  require(!stream->capture, CUDA_ERROR_ILLEGAL_STATE);
  auto capture = std::make_shared<Capture>();
  capture->id = captures().next_id++;
  capture->mode = mode;
  capture->origin = stream.get();
  capture->thread = this_thread();
  capture->graph = new Graph;
  capture->streams = {stream};
  stream->capture = capture;
  captures().active.push_back(std::move(capture));
}

STREAM_API(cuStreamEndCapture, ptsz, (CUstream handle, CUgraph* graph),
           (handle, graph)) {
  require(graph);
  *graph = nullptr;
  const StreamRef stream = find_stream(handle);
  const std::lock_guard lock(captures().mutex);
  const CaptureRef capture = stream->capture;
  require(capture != nullptr, CUDA_ERROR_ILLEGAL_STATE);
  require(capture->origin == stream.get(), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  require(capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED ||
              capture->thread == this_thread(),
          CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  const bool joined = all_joined(*capture);
  const bool valid = capture->valid;
  close_capture(capture);
  if (valid && joined) {
    *graph = publish_graph(std::unique_ptr<Graph>(capture->graph));
    return;
  }
  delete capture->graph;
  fail(valid ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
             : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

STREAM_API(cuStreamIsCapturing, ptsz, (CUstream handle, CUstreamCaptureStatus* status),
           (handle, status)) {
  require(status);
  const StreamRef stream = find_stream(handle);
  const std::lock_guard lock(captures().mutex);
  *status = status_of(*stream);
}

STREAM_API(cuStreamGetCaptureInfo_v2, ptsz,
           (CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
            CUgraph* graph, const CUgraphNode** dependencies, size_t* num_dependencies),
           (handle, status, id, graph, dependencies, num_dependencies)) {
  get_capture_info(handle, status, id, graph, dependencies, nullptr, num_dependencies);
}

STREAM_API(cuStreamGetCaptureInfo_v3, ptsz,
           (CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
            CUgraph* graph, const CUgraphNode** dependencies,
            const CUgraphEdgeData** edges, size_t* num_dependencies),
           (handle, status, id, graph, dependencies, edges, num_dependencies)) {
  get_capture_info(handle, status, id, graph, dependencies, edges, num_dependencies);
}

DRIVER_API(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode), (mode)) {
  require(mode && *mode <= CU_STREAM_CAPTURE_MODE_RELAXED);
  std::swap(*mode, thread_mode);
}

}  // namespace simgpu
