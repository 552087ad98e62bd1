/* Life of a client, sending, and the monitor thread. */
#include "client_int.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

_Atomic int rg_forked;

int64_t rg_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

bool rg_vec_room(struct rg_vec *v, size_t more) {
  if (v->cap - v->n >= more) return true;
  size_t cap = v->cap ? v->cap : 1024;
  while (cap - v->n < more) cap *= 2;
  uint8_t *p = realloc(v->p, cap);
  if (!p) return false;
  v->p = p;
  v->cap = cap;
  return true;
}

bool rg_vec_add(struct rg_vec *v, const void *p, size_t n) {
  if (!rg_vec_room(v, n)) return false;
  if (n) memcpy(v->p + v->n, p, n);
  v->n += n;
  return true;
}

int rg_dead_code(rg_client *c) {
  if (atomic_load(&rg_forked)) return E_FORKED;
  return atomic_load(&c->closed) ? E_SHUTDOWN : E_CONNECTION;
}

/* ------------------------------------------------------------------------------------------------ descriptors and forks */

static struct { pthread_mutex_t mu; uint8_t *on; size_t cap; } fds = {PTHREAD_MUTEX_INITIALIZER, NULL, 0};

void rg_fork_register_fd(int fd, int on) {
  if (fd < 0) return;
  pthread_mutex_lock(&fds.mu);
  if ((size_t)fd >= fds.cap) {
    size_t cap = (size_t)fd * 2 + 64;
    uint8_t *p = realloc(fds.on, cap);
    if (p) {
      memset(p + fds.cap, 0, cap - fds.cap);
      fds.on = p;
      fds.cap = cap;
    }
  }
  if ((size_t)fd < fds.cap) fds.on[fd] = (uint8_t)on;
  pthread_mutex_unlock(&fds.mu);
}

void rg_fork_child(void) {
  /* Without the lock: its holder may not exist in this process.  A torn read at worst closes a descriptor too few. */
  if (atomic_exchange(&rg_forked, 1)) return;
  for (size_t i = 0; i < fds.cap; i++)
    if (fds.on[i]) close((int)i);
}

static void forget_fd(int *fd) {
  if (*fd < 0) return;
  rg_fork_register_fd(*fd, 0);
  close(*fd);
  *fd = -1;
}

/* ------------------------------------------------------------------------------------------------ sending */

/* Embedded: a frame is built here and handed over in one call.  One buffer per thread, so that threads do not wait for each other. */
static __thread struct rg_vec scratch;
static pthread_key_t scratch_key;   /* frees it with the thread */

static void free_scratch(void *p) {
  (void)p;
  free(scratch.p);
  scratch = (struct rg_vec){0};
}

/* wmu held: appends an ADDREF frame; the bytes of references taken.  Whoever sees the count at 0 may send at once, so the caller lowers it after the
 * frame went out, or stands before all others in c->out. */
static size_t take_addrefs(rg_client *c, struct rg_vec *to) {
  pthread_mutex_lock(&c->rmu);
  size_t n = c->addrefs.n;
  bool ok = rg_vec_room(to, sizeof(struct rg_hdr) + n);
  if (ok) {
    struct rg_hdr h = {(uint32_t)n, RG_ADDREF, 0, 0};
    rg_vec_add(to, &h, sizeof h);
    rg_vec_add(to, c->addrefs.p, n);
    c->addrefs.n = 0;
  }
  pthread_mutex_unlock(&c->rmu);
  return ok ? n : 0;
}

uint8_t *rg_out_begin(rg_client *c, size_t n) {
  if (c->fd < 0) {
    if (atomic_load(&c->naddrefs)) {
      struct rg_vec v = {0};
      pthread_mutex_lock(&c->wmu);
      size_t k = take_addrefs(c, &v);
      if (k) c->input(c->conn, v.p, v.n);
      atomic_fetch_sub(&c->naddrefs, k);
      pthread_mutex_unlock(&c->wmu);
      free(v.p);
    }
    scratch.n = 0;
    if (scratch.cap > (1u << 20) && n < (1u << 16)) {
      free(scratch.p);
      scratch = (struct rg_vec){0};
    }
    if (!scratch.p) pthread_setspecific(scratch_key, &scratch);
    return rg_vec_room(&scratch, n ? n : 1) ? scratch.p : NULL;
  }
  pthread_mutex_lock(&c->wmu);
  if (atomic_load(&c->naddrefs)) atomic_fetch_sub(&c->naddrefs, take_addrefs(c, &c->out));
  if (!rg_vec_room(&c->out, n)) {
    pthread_mutex_unlock(&c->wmu);
    return NULL;
  }
  return c->out.p + c->out.n;
}

int rg_out_write(rg_client *c) {
  size_t done = 0;
  int r = 0;
  while (done < c->out.n) {
    /* Blocking: the engine never stops reading, so this always gets on. */
    ssize_t k = send(c->fd, c->out.p + done, c->out.n - done, MSG_NOSIGNAL);
    if (k < 0 && errno == EINTR) continue;
    if (k < 0 && errno == EAGAIN) {
      struct pollfd p = {c->fd, POLLOUT, 0};
      poll(&p, 1, 1000);
      continue;
    }
    if (k < 0) {
      r = E_CONNECTION;
      break;
    }
    done += (size_t)k;
  }
  c->out.n = 0;
  if (c->out.cap > (4u << 20)) {
    free(c->out.p);
    c->out = (struct rg_vec){0};
  }
  atomic_store(&c->out_pending, 0);
  return r;
}

int rg_out_end(rg_client *c, size_t n, bool flush) {
  if (c->fd < 0) return c->input(c->conn, scratch.p, n);
  c->out.n += n;
  int r = 0;
  if (flush || c->out.n > (32u << 10)) r = rg_out_write(c);
  else atomic_store(&c->out_pending, c->out.n);
  pthread_mutex_unlock(&c->wmu);
  return r;
}

uint8_t *rg_frame_begin(rg_client *c, uint16_t type, uint16_t flags, uint64_t id, size_t payload) {
  if (payload > RG_MAX_FRAME) return NULL;
  uint8_t *p = rg_out_begin(c, sizeof(struct rg_hdr) + RG_PAD8(payload));
  if (!p) return NULL;
  *(struct rg_hdr *)p = (struct rg_hdr){(uint32_t)RG_PAD8(payload), type, flags, id};
  if (payload & 7) memset(p + sizeof(struct rg_hdr) + (payload & ~(size_t)7), 0, 8);
  return p + sizeof(struct rg_hdr);
}

int rg_send(rg_client *c, uint16_t type, uint16_t flags, uint64_t id, const void *p1, size_t n1, const void *p2, size_t n2) {
  if (rg_dead(c)) return rg_dead_code(c);
  uint8_t *p = rg_frame_begin(c, type, flags, id, n1 + n2);
  if (!p) return rg_no_frame(n1 + n2);
  if (n1) memcpy(p, p1, n1);
  if (n2) memcpy(p + n1, p2, n2);
  return rg_out_end(c, sizeof(struct rg_hdr) + RG_PAD8(n1 + n2), true);
}

int rg_flush(rg_client *c) {
  if (rg_dead(c)) return rg_dead_code(c);
  if (c->fd < 0 || !atomic_load(&c->out_pending)) return 0;
  pthread_mutex_lock(&c->wmu);
  int r = rg_out_write(c);
  pthread_mutex_unlock(&c->wmu);
  return r;
}

/* Dispatch runs inside the engine's call when embedded and must not call it again: such frames wait for the monitor. */
void rg_defer(rg_client *c, uint16_t type, uint16_t flags, uint64_t id, const void *p, size_t n) {
  struct rg_hdr h = {(uint32_t)RG_PAD8(n), type, flags, id};
  static const uint8_t zeros[8];
  pthread_mutex_lock(&c->rmu);
  if (rg_vec_add(&c->deferred, &h, sizeof h)) {
    rg_vec_add(&c->deferred, p, n);
    rg_vec_add(&c->deferred, zeros, RG_PAD8(n) - n);
    atomic_store(&c->ndeferred, c->deferred.n);
  }
  pthread_mutex_unlock(&c->rmu);
  if (c->fd < 0) rg_kick(c);   /* on a socket the reader sends it itself */
}

int rg_send_deferred(rg_client *c) {
  if (!atomic_load(&c->ndeferred)) return 0;
  pthread_mutex_lock(&c->rmu);
  struct rg_vec v = c->deferred;
  c->deferred = (struct rg_vec){0};
  atomic_store(&c->ndeferred, 0);
  pthread_mutex_unlock(&c->rmu);
  int r = 0;
  if (v.n && !rg_dead(c)) {
    uint8_t *p = rg_out_begin(c, v.n);
    if (p) {
      memcpy(p, v.p, v.n);
      r = rg_out_end(c, v.n, true);
    }
  }
  free(v.p);
  return r;
}

int rg_template(rg_client *c, uint64_t number, const void *map, size_t len) { return rg_send(c, RG_TEMPLATE, 0, number, map, len, NULL, 0); }

int rg_cancel(rg_client *c, uint64_t task, int force, int recursive) {
  return rg_send(c, RG_CANCEL, (uint16_t)((force ? RG_F_FORCE : 0) | (recursive ? RG_F_RECURSIVE : 0)), task, NULL, 0, NULL, 0);
}

int rg_kill(rg_client *c, uint64_t actor, int no_restart) { return rg_send(c, RG_KILL, no_restart ? RG_F_NO_RESTART : 0, actor, NULL, 0, NULL, 0); }

int rg_consumed(rg_client *c, uint64_t task, uint64_t count) { return rg_send(c, RG_CONSUMED, 0, task, &count, sizeof count, NULL, 0); }

/* ------------------------------------------------------------------------------------------------ the monitor */

/* It ticks every millisecond while something goes on, and parks in poll when nothing has for 20 ms; then only rg_kick, or traffic while a
 * task runs, wakes it.  So an idle process costs nothing and a busy one about a wake-up per millisecond. */

void rg_kick(rg_client *c) {
  if (atomic_load_explicit(&c->mon_state, memory_order_seq_cst) == MON_PARKED && atomic_exchange(&c->mon_state, MON_TICKING) == MON_PARKED) {
    uint64_t one = 1;
    ssize_t r = write(c->mon_fd, &one, sizeof one);
    (void)r;
  }
}

void rg_busy(rg_client *c) {
  uint32_t n = atomic_fetch_add_explicit(&c->busy_seq, 1, memory_order_relaxed) + 1;
  atomic_store_explicit(&c->busy, n ? n : 1, memory_order_seq_cst);
  rg_kick(c);
}

static bool mon_should_read(rg_client *c, uint32_t busy_before) {   /* mu */
  if (c->fd < 0 || c->reading || c->pumped || !atomic_load(&c->alive)) return false;
  uint32_t b = atomic_load(&c->busy);
  return c->async_waiting > 0 || (b && b == busy_before);
}

static void mon_flush(rg_client *c) {
  rg_send_deferred(c);
  rg_drain(c);
  if (atomic_load(&c->naddrefs)) rg_refs_flush(c);
  rg_flush(c);
}

static bool mon_has_work(rg_client *c) {
  return atomic_load(&c->released) || atomic_load(&c->unpinned) || atomic_load(&c->out_pending) || atomic_load(&c->ndeferred) || atomic_load(&c->naddrefs);
}

void *rg_monitor_main(void *arg) {
  rg_client *c = arg;
  uint32_t before = 0, cuts = 0;
  int quiet = 0;
  while (!atomic_load(&c->closed)) {
    bool read_role = false;
    pthread_mutex_lock(&c->mu);
    if (mon_should_read(c, before)) c->reading = read_role = true;
    pthread_mutex_unlock(&c->mu);
    before = atomic_load(&c->busy);

    int timeout = 1;
    if (quiet >= 20) {
      rg_give_back(c);
      /* Park, then look again: what came before the store is seen here, what comes after it kicks.  Busy with the role not ours and unread means
       * a task began just now, which needs one more tick to count as long. */
      atomic_store_explicit(&c->mon_state, MON_PARKED, memory_order_seq_cst);
      bool watch = false;
      pthread_mutex_lock(&c->mu);
      watch = !read_role && c->fd >= 0 && !c->reading && !c->pumped && (atomic_load(&c->busy) || c->async_waiting);
      pthread_mutex_unlock(&c->mu);
      if (mon_has_work(c) || atomic_load(&c->has_chunk) || watch || atomic_load(&c->busy) != before) {
        atomic_store(&c->mon_state, MON_TICKING);
        quiet = 0;
      } else {
        timeout = -1;
      }
    }
    struct pollfd p[2] = {{c->mon_fd, POLLIN, 0}, {c->fd, POLLIN, 0}};
    int k = poll(p, read_role ? 2 : 1, timeout);
    bool active = k > 0;
    if (timeout < 0) atomic_store(&c->mon_state, MON_TICKING);
    if (k > 0 && p[0].revents) {
      uint64_t junk;
      ssize_t r = read(c->mon_fd, &junk, sizeof junk);
      (void)r;
    }
    if (read_role) {
      bool interrupted;
      if (k > 0 && p[1].revents && rg_read_some(c, 0, &interrupted) == E_CONNECTION) rg_lost(c);
      pthread_mutex_lock(&c->mu);
      c->reading = false;
      rg_promote(c);
      pthread_mutex_unlock(&c->mu);
    }
    uint32_t cut = atomic_load_explicit(&c->ncuts, memory_order_relaxed);
    if (mon_has_work(c) || cut != cuts) active = true;
    cuts = cut;
    if (!atomic_load(&c->closed)) mon_flush(c);
    quiet = active || (atomic_load(&c->busy) && atomic_load(&c->busy) != before) ? 0 : quiet + 1;
  }
  return NULL;
}

static int start_monitor(rg_client *c) {
  pthread_attr_t a;
  sigset_t all, old;
  pthread_attr_init(&a);
  /* With the engine embedded this thread enters Go, whose callbacks want some stack. */
  pthread_attr_setstacksize(&a, c->fd < 0 ? 512 << 10 : 128 << 10);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);   /* signals are for the user's threads */
  int r = pthread_create(&c->monitor, &a, rg_monitor_main, c);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  pthread_attr_destroy(&a);
  c->has_monitor = r == 0;
  return r ? E_INTERNAL : 0;
}

/* ------------------------------------------------------------------------------------------------ life */

static void once_per_process(void) {
  pthread_key_create(&scratch_key, free_scratch);
  pthread_atfork(NULL, NULL, rg_fork_child);
}

rg_client *rg_client_new(const struct rg_callbacks *cb) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  rg_client *c = calloc(1, sizeof *c);
  if (!c) return NULL;
  pthread_once(&once, once_per_process);
  if (cb) c->cb = *cb;
  pthread_mutex_init(&c->mu, NULL);
  pthread_mutex_init(&c->wmu, NULL);
  pthread_mutex_init(&c->rmu, NULL);
  c->fd = c->cq_fd = c->arena_fd = -1;
  c->mon_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  rg_fork_register_fd(c->mon_fd, 1);
  c->nbucket = 256;
  c->bucket = calloc(c->nbucket, sizeof *c->bucket);
  atomic_store(&c->users, 1);
  atomic_store(&c->alive, true);
  if (!c->bucket || c->mon_fd < 0) {
    rg_free_client(c);
    return NULL;
  }
  return c;
}

int rg_client_embed(rg_client *c, rg_input_fn input, uint64_t conn) {
  c->input = input;
  c->conn = conn;
  return start_monitor(c);
}

void rg_client_set_prefix(rg_client *c, uint32_t prefix) { atomic_store(&c->number, (uint64_t)prefix << 32); }

uint64_t rg_next_number(rg_client *c) {
  uint64_t n = atomic_fetch_add_explicit(&c->number, 1, memory_order_relaxed) + 1;
  return (n & 0xfffffff0u) == 0xfffffff0u || n >> 32 == 0 || (uint32_t)n == 0 ? 0 : n;
}

static int await_welcome(rg_client *c, int64_t timeout_ns) {
  int64_t deadline = timeout_ns < 0 ? -1 : rg_now() + timeout_ns;
  int r = 0;
  pthread_mutex_lock(&c->mu);
  c->reading = true;   /* nobody else knows the client yet */
  while (!c->welcome && !c->refusal && !r) {
    pthread_mutex_unlock(&c->mu);
    bool interrupted;
    r = rg_read_some(c, deadline, &interrupted);
    pthread_mutex_lock(&c->mu);
    if (!r && !c->welcome && deadline >= 0 && rg_now() >= deadline) r = E_TIMEDOUT;
  }
  c->reading = false;
  if (c->refusal) r = E_VERSION;
  pthread_mutex_unlock(&c->mu);
  return r;
}

const char *rg_client_refusal(rg_client *c) { return c->refusal; }

int rg_client_adopt(rg_client *c, int fd, int arena_fd, int64_t timeout_ns) {
  c->fd = fd;
  c->worker = true;
  c->arena_fd = arena_fd;
  rg_fork_register_fd(fd, 1);
  int r = await_welcome(c, timeout_ns);
  return r ? r : start_monitor(c);
}

/* The arena's descriptor rides on the first byte of WELCOME. */
static int recv_arena(rg_client *c, int64_t timeout_ns) {
  struct pollfd p = {c->fd, POLLIN, 0};
  int k = poll(&p, 1, timeout_ns < 0 ? -1 : (int)(timeout_ns / 1000000));
  if (k <= 0) return k == 0 ? E_TIMEDOUT : E_CONNECTION;
  char ctl[CMSG_SPACE(sizeof(int))];
  if (!rg_vec_room(&c->in, 1 << 16)) return E_NOMEM;
  struct iovec io = {c->in.p, 1 << 16};
  struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = ctl, .msg_controllen = sizeof ctl};
  ssize_t n = recvmsg(c->fd, &m, MSG_CMSG_CLOEXEC);
  if (n <= 0) return E_CONNECTION;
  for (struct cmsghdr *h = CMSG_FIRSTHDR(&m); h; h = CMSG_NXTHDR(&m, h))
    if (h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS) memcpy(&c->arena_fd, CMSG_DATA(h), sizeof(int));
  if (c->arena_fd >= 0) rg_fork_register_fd(c->arena_fd, 1);
  c->in.n = (size_t)n;
  pthread_mutex_lock(&c->mu);
  size_t used = 0;
  int r = rg_dispatch(c, c->in.p, c->in.n, &used);
  memmove(c->in.p, c->in.p + used, c->in.n - used);
  c->in.n -= used;
  pthread_mutex_unlock(&c->mu);
  return r;
}

int rg_client_connect(rg_client *c, const char *path, const void *hello, size_t len, int64_t timeout_ns) {
  struct sockaddr_un a = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof a.sun_path) return E_INVAL;
  strcpy(a.sun_path, path);
  c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (c->fd < 0) return E_CONNECTION;
  rg_fork_register_fd(c->fd, 1);
  if (connect(c->fd, (struct sockaddr *)&a, sizeof a)) return E_CONNECTION;
  int r = rg_send(c, RG_HELLO, 0, 0, hello, len, NULL, 0);
  if (!r) r = recv_arena(c, timeout_ns);
  if (!r && !c->welcome) r = await_welcome(c, timeout_ns);
  return r ? r : start_monitor(c);
}

int rg_client_arena(rg_client *c, int fd, uint64_t size) {
  if (fd < 0) fd = c->arena_fd;
  if (c->arena_ro && fd == c->arena_fd && size == c->arena_size) return 0;   /* WELCOME did it */
  if (fd < 0 || !size) return E_INVAL;
  /* Read-only for everything handed out; the writable mapping is made by the first rg_create. */
  void *p = mmap(NULL, size, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (p == MAP_FAILED) return E_NOMEM;
  if (c->arena_fd != fd) {
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 3);   /* the engine may close its own before our last view ends */
    if (own < 0) {
      munmap(p, size);
      return E_NOMEM;
    }
    c->arena_fd = own;
    rg_fork_register_fd(own, 1);
  }
  c->arena_ro = p;
  c->arena_size = size;
  return 0;
}

const uint8_t *rg_client_welcome(rg_client *c, size_t *len) {
  *len = c->welcome_len;
  return c->welcome;
}

int rg_client_fd(rg_client *c) { return c->fd; }
int rg_client_alive(rg_client *c) { return !rg_dead(c); }

void rg_client_close(rg_client *c) {
  if (!c || atomic_exchange(&c->closed, true)) return;
  if (!atomic_load(&rg_forked)) {
    atomic_store(&c->mon_state, MON_PARKED);
    rg_kick(c);
    if (c->fd >= 0) shutdown(c->fd, SHUT_RDWR);
    if (c->has_monitor) pthread_join(c->monitor, NULL);
    rg_lost(c);
  }
  forget_fd(&c->mon_fd);
  forget_fd(&c->cq_fd);
  forget_fd(&c->arena_fd);
  /* The socket is shut down but keeps its number until the last handle is gone: no thread can write to a stranger's descriptor. */
  rg_release_counted(c);
  rg_drain(c);
  rg_user_done(c);
}

void rg_user_done(rg_client *c) {
  if (atomic_fetch_sub(&c->users, 1) == 1) rg_free_client(c);
}

void rg_free_client(rg_client *c) {
  while (c->task_head) {
    rg_task *t = c->task_head;
    c->task_head = t->next;
    free(t->top);
    free(t);
  }
  while (c->log_head) {
    struct rg_log *l = c->log_head;
    c->log_head = l->next;
    free(l);
  }
  rg_file_free_all(c);
  if (c->arena_ro) munmap(c->arena_ro, c->arena_size);
  if (c->arena_rw) munmap(c->arena_rw, c->arena_size);
  if (c->leases) munmap((void *)c->leases, RG_LEASES * sizeof *c->leases);
  forget_fd(&c->fd);
  forget_fd(&c->mon_fd);
  rg_chunk_free(c);
  free((void *)c->populated);
  free(c->bucket);
  free(c->out.p);
  free(c->in.p);
  free(c->addrefs.p);
  free(c->deferred.p);
  free(c->cq);
  free(c->welcome);
  free(c->refusal);
  pthread_mutex_destroy(&c->mu);
  pthread_mutex_destroy(&c->wmu);
  pthread_mutex_destroy(&c->rmu);
  free(c);
}
