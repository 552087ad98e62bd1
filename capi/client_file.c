/* Objects outside the arena lie in files that the engine keeps open and this process maps: those that are larger than the arena, and those that
 * found no room in it.  A file has no name but that of the engine's descriptor, which stays open while the object is pinned or being written. */
#include "client_int.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>

struct rg_filemap {               /* an object this process writes */
  struct rg_filemap *next;
  struct rg_oid oid;
  void *map;
  size_t len;
};

static pid_t engine_pid(rg_client *c) {
  struct ucred who;
  socklen_t n = sizeof who;
  if (c->fd < 0) return getpid();
  return getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &who, &n) ? 0 : who.pid;
}

void *rg_file_map(rg_client *c, uint32_t file, uint64_t offset, uint64_t len, bool write, size_t *maplen, uint8_t **data) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/fd/%u", (int)engine_pid(c), file - 1);
  int fd = open(path, (write ? O_RDWR : O_RDONLY) | O_CLOEXEC);
  if (fd < 0) return NULL;
  uint64_t skip = offset % (uint64_t)sysconf(_SC_PAGESIZE);
  void *map = mmap(NULL, len + skip, write ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, (off_t)(offset - skip));
  close(fd);
  if (map == MAP_FAILED) return NULL;
  *maplen = len + skip;
  *data = (uint8_t *)map + skip;
  return map;
}

int rg_file_create(rg_client *c, struct rg_oid oid, uint32_t file, uint64_t offset, uint64_t size, uint8_t **data) {
  struct rg_filemap *f = malloc(sizeof *f);
  if (!f || !(f->map = rg_file_map(c, file, offset, size, true, &f->len, data))) {
    free(f);
    return E_NOMEM;
  }
  f->oid = oid;
  pthread_mutex_lock(&c->mu);
  f->next = c->filemaps;
  c->filemaps = f;
  pthread_mutex_unlock(&c->mu);
  atomic_fetch_add(&c->nfilemaps, 1);
  return 0;
}

void rg_file_done(rg_client *c, struct rg_oid oid) {
  if (!atomic_load_explicit(&c->nfilemaps, memory_order_relaxed)) return;
  pthread_mutex_lock(&c->mu);
  struct rg_filemap **at = &c->filemaps;
  while (*at && ((*at)->oid.task != oid.task || (*at)->oid.index != oid.index)) at = &(*at)->next;
  struct rg_filemap *f = *at;
  if (f) *at = f->next;
  pthread_mutex_unlock(&c->mu);
  if (!f) return;
  atomic_fetch_sub(&c->nfilemaps, 1);
  munmap(f->map, f->len);
  free(f);
}

void rg_file_free_all(rg_client *c) {
  for (struct rg_filemap *f = c->filemaps, *next; f; f = next) {
    next = f->next;
    munmap(f->map, f->len);
    free(f);
  }
}
