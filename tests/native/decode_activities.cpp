// Hands activity buffers to the recorder's decoder, as CUPTI would on a machine with a
// GPU, and leaves the spool: decode_activities RUN_DIR < buffers. The CUPTI that
// TRANSIT_LIBCUPTI names iterates the buffers. Of each there is a header, the buffer,
// texts, and where the buffer is to hold pointers.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "recorder/native/activities.h"

namespace {

struct Header {
  uint32_t buffer_bytes, valid_bytes, text_bytes, num_pointers;
  uint32_t lends_nothing;  // there is no memory when CUPTI asks for the buffer
};

struct Pointer {
  uint32_t place;  // in the buffer
  uint32_t text;   // what it points to; kNewMemory: what the decoder has to free
};
constexpr uint32_t kNewMemory = UINT32_MAX;

CUpti_BuffersCallbackRequestFunc request = nullptr;
CUpti_BuffersCallbackCompleteFunc complete = nullptr;
bool is_out_of_memory = false;

template <typename T>
std::vector<T> read(size_t count) {
  std::vector<T> items(count);
  if (fread(items.data(), sizeof(T), count, stdin) != count) exit(2);
  return items;
}

void deliver(const Header& header) {
  auto content = read<uint8_t>(header.buffer_bytes);
  auto texts = read<char>(header.text_bytes);
  for (const Pointer& pointer : read<Pointer>(header.num_pointers)) {
    void* target = pointer.text == kNewMemory ? malloc(16) : &texts[pointer.text];
    memcpy(&content[pointer.place], &target, sizeof(target));
  }
  uint8_t* buffer = nullptr;
  size_t bytes = 0, max_records = 0;
  is_out_of_memory = header.lends_nothing != 0;
  request(&buffer, &bytes, &max_records);
  is_out_of_memory = false;
  if (buffer == nullptr) return;
  if (bytes < content.size() || max_records != 0) exit(3);
  if (!content.empty()) memcpy(buffer, content.data(), content.size());
  complete(nullptr, 0, buffer, bytes, header.valid_bytes);
}

}  // namespace

// What the decoder lends CUPTI comes from here.
extern "C" void* aligned_alloc(size_t alignment, size_t bytes) {
  void* memory = nullptr;
  if (is_out_of_memory || posix_memalign(&memory, alignment, bytes) != 0) {
    return nullptr;
  }
  return memory;
}

int main(int, char** arguments) {
  transit::CuptiApi cupti;
  const std::string error = cupti.load();
  if (!error.empty()) {
    fprintf(stderr, "%s\n", error.c_str());
    return 1;
  }
  printf("%u\n", cupti.version);
  // Without a driver CUPTI enables nothing.
  cupti.cuptiActivityRegisterCallbacks = [](auto request_function,
                                            auto complete_function) {
    request = request_function;
    complete = complete_function;
    return CUPTI_SUCCESS;
  };
  cupti.cuptiActivityEnable = [](CUpti_ActivityKind) { return CUPTI_SUCCESS; };
  cupti.cuptiActivityFlushAll = [](uint32_t) { return CUPTI_SUCCESS; };
  transit::Spool spool;
  transit::Activities activities(cupti, spool);
  if (!spool.create(arguments[1]).empty() || !activities.enable().empty()) return 4;
  Header header{};
  while (fread(&header, sizeof(header), 1, stdin) == 1) deliver(header);
  activities.flush();
  spool.close();
}
