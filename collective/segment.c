/* The memory that ranks of a node share: making it, joining it, and arrays in it.
 *
 * The file has no name: the ranks open it through /proc/<pid of the first>/fd.  It goes with the last process that has it, however that ends.  A forked
 * child gets a copy of it in place of the memory itself, page by page as it writes: nothing that it does with its parent's arrays reaches a rank. */
#include "core.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC UINT64_C(0x31706f6f72676172)
#define VERSION 1u
#define PAGE 4096u
#define REGION (2u << 20)
#define ARENA (UINT64_C(16) << 30)
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static uint64_t up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

/* Slots hold what a rank gives to one chunk.  For few ranks all slots together should stay in the caches; many ranks share cores, so that each step costs
 * many switches, and few large chunks are better. */
static uint64_t slot_bytes(int nlocal) { return nlocal <= 4 ? 256u << 10 : 1u << 20; }

static int no_memory(rgc_group *g, uint64_t bytes, const char *what, rgc_error *err) {
  int e = errno;
  return rgc_fail(err, RAYGO_ENOMEM, -1,
                  "Rank %d of group %s could not %s %llu MiB of shared address space (%s). Raise ulimit -v, or give the group a smaller arena (arena_bytes, now %llu MiB a rank).",
                  g->rank, g->name, what, (unsigned long long)(bytes >> 20), strerror(e), (unsigned long long)(g->arena_option >> 20));
}

static pthread_mutex_t mapped_mu = PTHREAD_MUTEX_INITIALIZER;
static rgc_group *mapped;            /* those whose memory is there, open or closed */

static void before_fork(void) { pthread_mutex_lock(&mapped_mu); }
static void after_in_parent(void) { pthread_mutex_unlock(&mapped_mu); }

static void after_in_child(void) {
  for (rgc_group *g = mapped; g; g = g->next_mapped) {
    void *own = mmap(g->seg, g->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, g->fd, 0);
    /* Where the kernel lends no memory (vm.overcommit_memory = 2): better that the child ends when it writes than that a rank computes with what it wrote. */
    if (own == MAP_FAILED) mprotect(g->seg, g->map_bytes, PROT_READ);
    close(g->fd);
    g->fd = -1;
  }
  mapped = NULL;
  pthread_mutex_unlock(&mapped_mu);
}

static void care_for_children(void) { pthread_atfork(before_fork, after_in_parent, after_in_child); }

static void unlist(rgc_group *g) {
  pthread_mutex_lock(&mapped_mu);
  for (rgc_group **at = &mapped; *at; at = &(*at)->next_mapped)
    if (*at == g) {
      *at = g->next_mapped;
      break;
    }
  pthread_mutex_unlock(&mapped_mu);
}

/* Keeps the descriptor. */
static int map(rgc_group *g, int fd, uint64_t bytes, rgc_error *err) {
  static pthread_once_t first = PTHREAD_ONCE_INIT;
  pthread_once(&first, care_for_children);
  void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (p == MAP_FAILED) return no_memory(g, bytes, "map", err);
  g->map_bytes = bytes;
  atomic_store(&g->map_refs, 1);
  pthread_mutex_lock(&mapped_mu);
  g->seg = p;
  g->fd = fd;
  g->next_mapped = mapped;
  mapped = g;
  pthread_mutex_unlock(&mapped_mu);
  return 0;
}

static int touched_maps(rgc_group *g, rgc_error *err) {
  for (int i = 0; i < g->nlocal; i++)
    if (i != g->me && !(g->touched[i] = calloc(g->seg->arena_bytes / REGION, 1))) return rgc_fail(err, RAYGO_ENOMEM, -1, "There was no memory for group %s.", g->name);
  return 0;
}

int rgc_segment_make(rgc_group *g, uint64_t nonce, rgc_error *err) {
  struct rgc_seg s = {.magic = MAGIC, .nonce = nonce, .nlocal = (uint32_t)g->nlocal, .version = VERSION, .slot_bytes = slot_bytes(g->nlocal)};
  uint64_t n = (uint64_t)g->nlocal;
  /* Slots of equal places within a page make loads wait for unrelated stores, so each begins a little further into its page. */
  s.slot_stride = s.slot_bytes + PAGE + 320;
  s.slots_at = up(sizeof s, PAGE);
  s.results_at = up(s.slots_at + n * 2 * s.slot_stride, PAGE) + 1600;
  s.results_at = up(s.results_at, 64);
  s.rings_at = up(s.results_at + 2 * s.slot_stride, PAGE);
  s.arenas_at = up(s.rings_at + n * n * sizeof(struct rgc_ring), REGION);
  s.arena_bytes = up(g->arena_option ? g->arena_option : ARENA, REGION);
  s.bytes = s.arenas_at + n * s.arena_bytes;
  int fd = memfd_create("raygo-group", MFD_CLOEXEC);
  if (fd < 0) return rgc_fail(err, RAYGO_EINTERNAL, g->rank, "Rank %d of group %s could not make a memory file: %s.", g->rank, g->name, strerror(errno));
  int r = ftruncate(fd, (off_t)s.bytes) ? no_memory(g, s.bytes, "reserve", err) : map(g, fd, s.bytes, err);
  if (r) {
    close(fd);
    return r;
  }
  *g->seg = s;
  for (int i = 0; i < g->nlocal; i++) g->seg->line[i].rank = g->rank_of[i];
  return touched_maps(g, err);
}

int rgc_segment_join(rgc_group *g, uint64_t nonce, int pid, int remote, rgc_error *err) {
  char path[64];
  struct stat st;
  snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, remote);
  int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) {
    return rgc_fail(err, RAYGO_EGROUP, g->rank_of[0],
                    "Rank %d of group %s could not open the group's memory at rank %d (%s: %s). That process has ended, or this one may not look into it: run all "
                    "ranks of a node as one user, with /proc mounted.", g->rank, g->name, g->rank_of[0], path, strerror(errno));
  }
  bool long_enough = !fstat(fd, &st) && (uint64_t)st.st_size >= sizeof(struct rgc_seg);
  int r = long_enough ? map(g, fd, (uint64_t)st.st_size, err) : 0;
  if (!g->seg) close(fd);
  if (r) return r;
  if (!g->seg || g->seg->magic != MAGIC || g->seg->nonce != nonce || g->seg->version != VERSION || g->seg->nlocal != (uint32_t)g->nlocal) {
    return rgc_fail(err, RAYGO_EVERSION, g->rank_of[0],
                    "What rank %d shows as the memory of group %s is something else: its process was replaced meanwhile, or has another version of raygo.", g->rank_of[0], g->name);
  }
  return touched_maps(g, err);
}

/* ------------------------------------------------------------------------------------------------ arrays in it */

/* A list of all pieces in order of place, used and free: there are few, and they live long. */
struct rgc_piece { struct rgc_piece *next; size_t at, bytes; bool used; };

void rgc_drop(rgc_group *g) {
  if (atomic_fetch_sub(&g->map_refs, 1) != 1) return;
  if (g->seg) {
    unlist(g);
    munmap(g->seg, g->map_bytes);
  }
  if (g->fd >= 0) close(g->fd);
  for (int i = 0; i < g->nlocal; i++) free((void *)g->touched[i]);
  while (g->pieces) {
    struct rgc_piece *p = g->pieces;
    g->pieces = p->next;
    free(p);
  }
  pthread_mutex_destroy(&g->arena_mu);
  pthread_mutex_destroy(&g->p2p_mu);
  pthread_mutex_destroy(&g->mu);
  pthread_cond_destroy(&g->more);
  pthread_cond_destroy(&g->room);
  pthread_cond_destroy(&g->out);
  free(g->name);
  free(g->node_name);
  free(g);
}

int rgc_alloc(rgc_group *g, size_t bytes, void **out, rgc_error *err) {
  *out = NULL;
  int r = rgc_enter(g, err);
  if (r) return r;
  size_t want = up(bytes ? bytes : 1, PAGE);
  pthread_mutex_lock(&g->arena_mu);
  if (!g->pieces && (g->pieces = calloc(1, sizeof *g->pieces))) g->pieces->bytes = g->seg->arena_bytes;
  struct rgc_piece *p = g->pieces;
  while (p && (p->used || p->bytes < want)) p = p->next;
  struct rgc_piece *rest = p && p->bytes > want ? calloc(1, sizeof *rest) : NULL;
  if (p && (rest || p->bytes == want)) {
    if (rest) {
      *rest = (struct rgc_piece){p->next, p->at + want, p->bytes - want, false};
      p->next = rest;
      p->bytes = want;
    }
    p->used = true;
    atomic_fetch_add(&g->map_refs, 1);
    *out = rgc_arena(g, g->me) + p->at;
  }
  pthread_mutex_unlock(&g->arena_mu);
  /* Faults one by one cost more than what is done with the memory.  What cannot be populated now is faulted in later. */
  if (*out) madvise(*out, want, MADV_POPULATE_WRITE);
  else r = rgc_fail(err, RAYGO_ENOMEM, g->rank, "The arena of rank %d in group %s has no room for %zu bytes. Free arrays, or make the group with more (arena_bytes, now %llu MiB a rank).",
                    g->rank, g->name, bytes, (unsigned long long)(g->seg->arena_bytes >> 20));
  rgc_leave(g);
  return r;
}

void rgc_free(rgc_group *g, void *at) {
  /* A forked child has a list of pieces of its own, but the same pages as its parent. */
  if (!at || g->fork_count != atomic_load(&rgc_forks)) return;
  size_t off = (size_t)((uint8_t *)at - rgc_arena(g, g->me));
  struct rgc_piece *before = NULL, *p;
  pthread_mutex_lock(&g->arena_mu);
  for (p = g->pieces; p && p->at != off; p = p->next) before = p;
  bool ok = p && p->used;
  if (ok) {
    /* The pages go back; a new piece begins with zeros again. */
    madvise(at, p->bytes, MADV_REMOVE);
    p->used = false;
    if (p->next && !p->next->used) {
      struct rgc_piece *n = p->next;
      p->bytes += n->bytes;
      p->next = n->next;
      free(n);
    }
    if (before && !before->used) {
      before->bytes += p->bytes;
      before->next = p->next;
      free(p);
    }
  }
  pthread_mutex_unlock(&g->arena_mu);
  if (ok) rgc_drop(g);
}

uint64_t rgc_arena_at(const rgc_group *g, const void *p, size_t n) {
  const uint8_t *a = rgc_arena(g, g->me), *q = p;
  return q >= a && q < a + g->seg->arena_bytes && n <= (size_t)(a + g->seg->arena_bytes - q) ? (uint64_t)(q - a) + 1 : 0;
}

uint8_t *rgc_peer(rgc_group *g, int local, uint64_t at, size_t n) {
  size_t from = at - 1;
  for (size_t i = from / REGION, end = (from + n + REGION - 1) / REGION; local != g->me && i < end; i++)
    if (!atomic_exchange_explicit(&g->touched[local][i], 1, memory_order_relaxed)) madvise(rgc_arena(g, local) + i * REGION, REGION, MADV_POPULATE_WRITE);
  return rgc_arena(g, local) + from;
}
