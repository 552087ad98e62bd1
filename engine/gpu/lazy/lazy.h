/* Functions of a library that may be absent: a file that includes this defines all that names.h lists, each as a jump through a slot.
   Until LAZY_LOAD has found the library a slot leads to LAZY_MISSING, which answers with a code of that library's.

   A program that names NVIDIA's functions directly does not start where there is no driver; one that defines them itself does.

   LAZY_NAMES    the list: lines LAZY(function); macros of headers that were included before, such as those that choose a version, count
   LAZY_SLOTS    a name for the slots
   LAZY_CODE     what an absent function returns */
#ifndef RAYGO_LAZY_H
#define RAYGO_LAZY_H
#include <dlfcn.h>
#include <stddef.h>

#if defined(__x86_64__)
#define LAZY_JUMP(slots) "  endbr64\n  jmp *" slots "+8*lazy_n(%rip)\n"
#elif defined(__aarch64__)
#define LAZY_JUMP(slots) "  hint #34\n  adrp x16, " slots "+8*lazy_n\n  ldr x16, [x16, :lo12:" slots "+8*lazy_n]\n  br x16\n"
#else
#error "no jump is written for this machine"
#endif

#define LAZY_STRING_(x) #x
#define LAZY_STRING(x) LAZY_STRING_(x)
#define LAZY_ENTRY(slots, name) \
  ".globl " name "\n.hidden " name "\n.type " name ", %function\n" name ":\n" LAZY_JUMP(slots) ".size " name ", .-" name "\n.set lazy_n, lazy_n+1\n"
#endif

static const char *const lazy_names[] = {
#define LAZY(name) LAZY_STRING(name),
#include LAZY_NAMES
#undef LAZY
};
enum { LAZY_COUNT = sizeof lazy_names / sizeof *lazy_names };

__attribute__((visibility("hidden"), used)) void *LAZY_SLOTS[LAZY_COUNT];

__asm__(".text\n.set lazy_n, 0\n"
#define LAZY(name) LAZY_ENTRY(LAZY_STRING(LAZY_SLOTS), LAZY_STRING(name))
#include LAZY_NAMES
#undef LAZY
);

/* The arguments of whichever function it stands for are in registers that it leaves alone. */
static int lazy_missing(void) { return LAZY_CODE; }

__attribute__((constructor)) static void lazy_empty(void) {
  for (size_t i = 0; i < LAZY_COUNT; i++) LAZY_SLOTS[i] = (void *)lazy_missing;
}

/* lazy_fill leads every function that the library has to it. */
static void lazy_fill(void *library) {
  for (size_t i = 0; i < LAZY_COUNT; i++) {
    void *found = dlsym(library, lazy_names[i]);
    LAZY_SLOTS[i] = found ? found : (void *)lazy_missing;
  }
}
