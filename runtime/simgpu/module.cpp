#include "module.h"

#include <cstdio>
#include <cstring>
#include <deque>
#include <fstream>
#include <iterator>
#include <mutex>
#include <unordered_map>

#include "call.h"
#include "context.h"
#include "process.h"

namespace simgpu {

struct Module {
  std::vector<FunctionRef> functions;
};

namespace {

struct Modules {
  std::mutex mutex;
  std::unordered_map<const void*, std::unique_ptr<Module>> loaded;
  std::unordered_map<CUfunction, FunctionRef> functions;
  std::vector<FunctionRef> unloaded;  // profilers may still hold their names
  struct alignas(64) Handle {};
  std::deque<Handle> handles;  // what they point to
  std::vector<CUfunction> free_handles;

  CUfunction take_handle() {
    if (free_handles.empty()) {
      return reinterpret_cast<CUfunction>(&handles.emplace_back());
    }
    const CUfunction handle = free_handles.back();
    free_handles.pop_back();
    return handle;
  }
};

Modules& modules() {
  static auto* instance = new Modules;
  return *instance;
}

bool is_binary(const void* image) {
  const auto* text = static_cast<const char*>(image);
  return std::strncmp(text,
                      "\x7f"
                      "ELF",
                      4) == 0 ||
         std::strncmp(text, "\x50\xed\x55\xba", 4) == 0;  // fatbin
}

Module* load(const void* image) {
  require(image);
  if (is_binary(image)) {
    std::fprintf(stderr,
                 "transit simulated GPU: a module of machine code was loaded; only PTX "
                 "text can be\n");
    fail(CUDA_ERROR_NO_BINARY_FOR_GPU);
  }
  std::vector<Entry> entries;
  require(parse_ptx(static_cast<const char*>(image), entries), CUDA_ERROR_INVALID_PTX);
  auto module = std::make_unique<Module>();
  const std::lock_guard lock(modules().mutex);
  for (Entry& entry : entries) {
    const KnownKernel* kernel = find_kernel(entry);
    const CUfunction handle = modules().take_handle();
    module->functions.push_back(std::make_shared<Function>(
        Function{std::move(entry), kernel, module.get(), handle}));
    modules().functions[handle] = module->functions.back();
  }
  Module* loaded = module.get();
  modules().loaded[loaded] = std::move(module);
  return loaded;
}

Module& find_module(const void* handle) {
  const auto found = modules().loaded.find(handle);
  require(found != modules().loaded.end(), CUDA_ERROR_INVALID_HANDLE);
  return *found->second;
}

void check_loaded(const void* handle) {
  const std::lock_guard lock(modules().mutex);
  find_module(handle);
}

void unload(const void* handle) {
  const std::lock_guard lock(modules().mutex);
  for (const FunctionRef& function : find_module(handle).functions) {
    modules().functions.erase(function->handle);
    modules().free_handles.push_back(function->handle);
    modules().unloaded.push_back(function);
  }
  modules().loaded.erase(handle);
}

CUfunction function_named(const void* module, const char* name) {
  require(name);
  const std::lock_guard lock(modules().mutex);
  for (const FunctionRef& function : find_module(module).functions)
    if (function->entry.name == name) return function->handle;
  fail(CUDA_ERROR_NOT_FOUND);
}

CUfunction as_function(CUkernel kernel) { return reinterpret_cast<CUfunction>(kernel); }

void get_parameter(CUfunction handle, size_t index, size_t* offset, size_t* bytes) {
  require(offset);
  const FunctionRef function = find_function(handle);
  const auto& parameters = function->entry.parameters;
  require(index < parameters.size());
  *offset = parameters[index].offset;
  if (bytes) *bytes = parameters[index].bytes;
}

int attribute_of(CUfunction handle, CUfunction_attribute attribute) {
  find_function(handle);
  require(attribute < CU_FUNC_ATTRIBUTE_MAX);
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      return 1024;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      return 32;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      return 90;
    default:
      return 0;
  }
}

}  // namespace

FunctionRef find_function(CUfunction handle) {
  const std::lock_guard lock(modules().mutex);
  const auto found = modules().functions.find(handle);
  require(found != modules().functions.end(), CUDA_ERROR_INVALID_HANDLE);
  return found->second;
}

DRIVER_API(cuModuleLoadData, (CUmodule * module, const void* image), (module, image)) {
  require(module);
  current_context();
  *module = reinterpret_cast<CUmodule>(load(image));
}

DRIVER_API(cuModuleLoadDataEx,
           (CUmodule * module, const void* image, unsigned num_options,
            CUjit_option* options, void** values),
           (module, image, num_options, options, values)) {
  require(module);
  current_context();
  *module = reinterpret_cast<CUmodule>(load(image));
}

DRIVER_API(cuModuleLoad, (CUmodule * module, const char* path), (module, path)) {
  require(module && path);
  current_context();
  std::ifstream file(path, std::ios::binary);
  require(file.good(), CUDA_ERROR_FILE_NOT_FOUND);
  const std::string image(std::istreambuf_iterator<char>(file), {});
  *module = reinterpret_cast<CUmodule>(load(image.c_str()));
}

DRIVER_API(cuModuleUnload, (CUmodule module), (module)) {
  check_loaded(module);
  notify(&Observer::module_unloaded);
  unload(module);
}

DRIVER_API(cuModuleGetFunction,
           (CUfunction * function, CUmodule module, const char* name),
           (function, module, name)) {
  require(function);
  *function = function_named(module, name);
}

DRIVER_API(cuModuleGetLoadingMode, (CUmoduleLoadingMode * mode), (mode)) {
  require(mode);
  *mode = CU_MODULE_EAGER_LOADING;
}

DRIVER_API(cuLibraryLoadData,
           (CUlibrary * library, const void* image, CUjit_option* options,
            void** option_values, unsigned num_options,
            CUlibraryOption* library_options, void** library_values,
            unsigned num_library_options),
           (library, image, options, option_values, num_options, library_options,
            library_values, num_library_options)) {
  require(library);
  *library = reinterpret_cast<CUlibrary>(load(image));
}

DRIVER_API(cuLibraryUnload, (CUlibrary library), (library)) { unload(library); }

DRIVER_API(cuLibraryGetKernel, (CUkernel * kernel, CUlibrary library, const char* name),
           (kernel, library, name)) {
  require(kernel);
  *kernel = reinterpret_cast<CUkernel>(function_named(library, name));
}

DRIVER_API(cuLibraryGetModule, (CUmodule * module, CUlibrary library),
           (module, library)) {
  require(module);
  *module = reinterpret_cast<CUmodule>(library);
}

DRIVER_API(cuKernelGetFunction, (CUfunction * function, CUkernel kernel),
           (function, kernel)) {
  require(function);
  find_function(as_function(kernel));
  *function = as_function(kernel);
}

DRIVER_API(cuFuncGetParamInfo,
           (CUfunction function, size_t index, size_t* offset, size_t* bytes),
           (function, index, offset, bytes)) {
  get_parameter(function, index, offset, bytes);
}

DRIVER_API(cuKernelGetParamInfo,
           (CUkernel kernel, size_t index, size_t* offset, size_t* bytes),
           (kernel, index, offset, bytes)) {
  get_parameter(as_function(kernel), index, offset, bytes);
}

DRIVER_API(cuFuncGetName, (const char** name, CUfunction function), (name, function)) {
  require(name);
  *name = find_function(function)->entry.name.c_str();
}

DRIVER_API(cuKernelGetName, (const char** name, CUkernel kernel), (name, kernel)) {
  require(name);
  *name = find_function(as_function(kernel))->entry.name.c_str();
}

DRIVER_API(cuFuncGetModule, (CUmodule * module, CUfunction function),
           (module, function)) {
  require(module);
  *module = reinterpret_cast<CUmodule>(find_function(function)->module);
}

DRIVER_API(cuFuncGetAttribute,
           (int* value, CUfunction_attribute attribute, CUfunction function),
           (value, attribute, function)) {
  require(value);
  *value = attribute_of(function, attribute);
}

DRIVER_API(cuKernelGetAttribute,
           (int* value, CUfunction_attribute attribute, CUkernel kernel,
            CUdevice device),
           (value, attribute, kernel, device)) {
  require(value);
  find_device(device);
  *value = attribute_of(as_function(kernel), attribute);
}

DRIVER_API(cuFuncSetAttribute,
           (CUfunction function, CUfunction_attribute attribute, int value),
           (function, attribute, value)) {
  static_cast<void>(value);
  attribute_of(function, attribute);
}

DRIVER_API(cuFuncLoad, (CUfunction function), (function)) { find_function(function); }

DRIVER_API(cuFuncIsLoaded, (CUfunctionLoadingState * state, CUfunction function),
           (state, function)) {
  require(state);
  find_function(function);
  *state = CU_FUNCTION_LOADING_STATE_LOADED;
}

}  // namespace simgpu
