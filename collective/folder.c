/* A folder as the store of groups: a file for each key.  Who waits for a key watches the folder. */
#include "core.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <unistd.h>

#define LOOK_AGAIN 500               /* ms: changes made on another machine wake nobody here */
#define LONGEST 4096

static int path_of(char *to, size_t n, const char *folder, const char *key, rgc_error *err) {
  int at = snprintf(to, n, "%s/key.", folder);
  for (; *key && at + 4 < (int)n; key++) at += snprintf(to + at, n - (size_t)at, *key == '/' || *key == '%' ? "%%%02x" : "%c", *key);
  return *key ? rgc_fail(err, RAYGO_EINVAL, -1, "The folder of a group's store has too long a path: %.200s…", folder) : 0;
}

static int failed(rgc_error *err, const char *what, const char *path) {
  int e = errno;
  return rgc_fail(err, RAYGO_EINVAL, -1, "A group's store could not %s %s: %s. Give a folder that exists and that all ranks can write to.", what, path, strerror(e));
}

static int folder_set(void *arg, const char *key, const void *data, size_t len, rgc_error *err) {
  char path[LONGEST], part[LONGEST + 40];
  int r = path_of(path, sizeof path, arg, key, err);
  if (r) return r;
  snprintf(part, sizeof part, "%s.%d.%llx", path, (int)getpid(), (unsigned long long)rgc_now());
  int fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return failed(err, "write", part);
  const uint8_t *p = data;
  while (len) {
    ssize_t n = write(fd, p, len);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    p += n;
    len -= (size_t)n;
  }
  if (close(fd) || len || rename(part, path)) {
    r = failed(err, "write", part);
    unlink(part);
  }
  return r;
}

/* -1: it is not there. */
static int read_file(const char *path, void **data, size_t *len, rgc_error *err) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno == ENOENT ? -1 : failed(err, "read", path);
  size_t n = 0, room = 4096;
  uint8_t *p = malloc(room);
  for (ssize_t got = 1; p && got;) {
    if (n == room) {
      uint8_t *more = realloc(p, room *= 2);
      if (!more) free(p);
      p = more;
      if (!p) break;
    }
    got = read(fd, p + n, room - n);
    if (got < 0 && errno != EINTR) {
      free(p);
      close(fd);
      return failed(err, "read", path);
    }
    if (got > 0) n += (size_t)got;
    else if (got < 0) got = 1;
  }
  close(fd);
  if (!p) return rgc_fail(err, RAYGO_ENOMEM, -1, "There was no memory to read %s.", path);
  *data = p;
  *len = n;
  return 0;
}

static int folder_get(void *arg, const char *key, int64_t timeout_ns, void **data, size_t *len, rgc_error *err) {
  char path[LONGEST];
  int r = path_of(path, sizeof path, arg, key, err);
  if (r) return r;
  int64_t deadline = timeout_ns < 0 ? -1 : rgc_now() + timeout_ns;
  int watch = -1;
  while ((r = read_file(path, data, len, err)) < 0) {
    int64_t left = deadline < 0 ? INT64_MAX : (deadline - rgc_now()) / 1000000;
    if (left <= 0) {
      r = rgc_fail(err, RAYGO_ETIMEDOUT, -1, "Nobody wrote %s in time.", path);
      break;
    }
    /* Begun after the first look, so it looks once more before it waits. */
    if (watch < 0) {
      watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
      if (watch >= 0) inotify_add_watch(watch, arg, IN_MOVED_TO | IN_ONLYDIR);
      if (watch >= 0) continue;
    }
    struct pollfd p = {watch, POLLIN, 0};
    char events[4096];
    poll(&p, watch >= 0, (int)(left < LOOK_AGAIN ? left + 1 : LOOK_AGAIN));
    while (watch >= 0 && read(watch, events, sizeof events) > 0) {}
  }
  if (watch >= 0) close(watch);
  return r;
}

int rgc_folder_store(const char *folder, rgc_store *out, rgc_error *err) {
  *out = (rgc_store){0};
  if (access(folder, R_OK | W_OK | X_OK)) return failed(err, "use", folder);
  *out = (rgc_store){strdup(folder), folder_set, folder_get};
  return out->arg ? 0 : rgc_fail(err, RAYGO_ENOMEM, -1, "There was no memory to make a store.");
}

void rgc_folder_store_free(rgc_store *store) {
  free(store->arg);
  store->arg = NULL;
}

/* ------------------------------------------------------------------------------------------------ for the C ABI */

static const struct rgc_api api = {rgc_open, rgc_close, rgc_drop, rgc_hold, rgc_abort, rgc_split, rgc_rank, rgc_size, rgc_local_size, rgc_node_count, rgc_alloc, rgc_free,
                                   rgc_run, rgc_start, rgc_work_wait, rgc_work_done, rgc_work_cancel, rgc_work_free, rgc_folder_store, rgc_folder_store_free};

const struct rgc_api *rgc_functions(void) { return &api; }
