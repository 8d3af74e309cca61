#include "runtime/simgpu/cupti_driver.h"

#include <dlfcn.h>
#include <unistd.h>

#include "runtime/simgpu/cupti_observer.h"

namespace simgpu::cupti {
namespace {

template <typename Function>
bool resolve(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

struct Connection {
  DriverApi api{};
  pid_t pid = getpid();
  bool ok = false;

  Connection() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    SetObserverFn set_observer = nullptr;
    if (!library || !resolve(library, "simgpu_set_observer", set_observer)) return;
    ok = resolve(library, "cuCtxGetCurrent", api.ctx_get_current) &&
         resolve(library, "cuCtxPushCurrent_v2", api.ctx_push_current) &&
         resolve(library, "cuCtxPopCurrent_v2", api.ctx_pop_current) &&
         resolve(library, "cuCtxGetDevice", api.ctx_get_device) &&
         resolve(library, "cuCtxGetId", api.ctx_get_id) &&
         resolve(library, "cuFuncGetName", api.func_get_name) &&
         resolve(library, "cuStreamGetId", api.stream_get_id) &&
         resolve(library, "simgpu_graph_id", api.graph_id) &&
         resolve(library, "simgpu_graph_exec_id", api.graph_exec_id) &&
         resolve(library, "simgpu_graph_node_id", api.graph_node_id);
    if (ok) set_observer(observer());
  }
};

}  // namespace

thread_local int OwnCalls::depth_ = 0;

const DriverApi* connect() {
  static const Connection connection;
  return connection.ok && connection.pid == getpid() ? &connection.api : nullptr;
}

}  // namespace simgpu::cupti
