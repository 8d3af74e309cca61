// dlsym, for the whole process. libc finds the caller by its return address (RTLD_NEXT
// and RTLD_DEFAULT depend on it), so whatever is not ours to answer is *jumped* to
// libc's dlsym, as if this one were not there. Exported without a version, it serves
// programs linked against either of libc's two (GLIBC_2.2.5 or 2.17, and 2.34).
#include <dlfcn.h>

#include "runtime/native/interpose/driver.h"
#include "runtime/native/interpose/hook_table.h"

namespace transit {
namespace {

// `jump` with the arguments untouched, or if that is null return `value`.
struct Answer {
  DlsymFn jump;
  void* value;
};

Answer answer_cuda_symbol(void* handle, const char* name) {
  const Answer pass{real_dlsym(), nullptr};
  // The next library's, after an interposer that asks: libcuda's own is what it wants.
  if (handle == RTLD_NEXT) return pass;
  const Hook* hook = find_hook_by_symbol(name);
  if (hook == nullptr) return pass;
  if (handle == RTLD_DEFAULT && is_libcuda_loaded()) return pass;
  void* found = real_dlsym()(handle, name);
  if (found == hook->replacement && !is_libcuda_loaded()) {
    // Our exported hooks must not make a job believe that there is a libcuda.
    return {nullptr, real_dlsym()(RTLD_NEXT, name)};
  }
  if (found == nullptr || !is_from_libcuda(found)) return {nullptr, found};
  return {nullptr, hook->replacement};
}

}  // namespace

// Not instrumented up to here for names of others: see real_dlsym.
extern "C" __attribute__((used, visibility("hidden"),
                          no_sanitize("address", "thread", "undefined"))) Answer
transit_answer_dlsym(void* handle, const char* name) {
  if (name[0] != 'c' || name[1] != 'u') return {real_dlsym(), nullptr};
  return answer_cuda_symbol(handle, name);
}

}  // namespace transit

#if defined(__x86_64__)
asm(R"(
    .text
    .globl dlsym
    .type dlsym, @function
dlsym:
    .cfi_startproc
    endbr64
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    subq $8, %rsp
    .cfi_adjust_cfa_offset 8
    call transit_answer_dlsym
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    testq %rax, %rax
    jz 1f
    jmp *%rax
1:  movq %rdx, %rax
    ret
    .cfi_endproc
    .size dlsym, . - dlsym
)");
#elif defined(__aarch64__)
asm(R"(
    .text
    .globl dlsym
    .type dlsym, %function
dlsym:
    .cfi_startproc
    stp x29, x30, [sp, #-32]!
    .cfi_def_cfa_offset 32
    .cfi_offset x29, -32
    .cfi_offset x30, -24
    stp x0, x1, [sp, #16]
    bl transit_answer_dlsym
    mov x16, x0
    mov x17, x1
    ldp x0, x1, [sp, #16]
    ldp x29, x30, [sp], #32
    .cfi_def_cfa_offset 0
    .cfi_restore x29
    .cfi_restore x30
    cbz x16, 1f
    br x16
1:  mov x0, x17
    ret
    .cfi_endproc
    .size dlsym, . - dlsym
)");
#else
#error "transit runs on x86-64 and aarch64"
#endif
