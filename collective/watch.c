/* Who died: one thread per process watches the processes of all its groups. */
#include "core.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

/* Numbers are used again, of processes and of descriptors: `start` tells the former apart, `id` is what an event carries. */
struct watched { struct watched *next; uint64_t start, id; int pid, fd, refs; bool dead; };

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;   /* guards all below */
static rgc_group *groups;
static struct watched *processes;
static pthread_t thread;
static bool running;
static int poll_fd = -1, stop_fd = -1;
static uint64_t last_id;             /* 0: stop_fd */
static _Atomic int unwatched;        /* processes for which there is no pidfd */

bool rgc_all_watched(void) { return !atomic_load_explicit(&unwatched, memory_order_relaxed); }

/* Fields after the name, which may hold blanks and brackets. */
static bool stat_of(int pid, char *state, uint64_t *start) {
  char path[48], text[1024];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0) return false;
  text[n] = 0;
  char *p = strrchr(text, ')');
  unsigned long long t = 0;
  if (!p || sscanf(p + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", state, &t) != 2) return false;
  *start = t;
  return true;
}

uint64_t rgc_start_time(int pid) {
  char state;
  uint64_t start;
  return stat_of(pid, &state, &start) ? start : 0;
}

char rgc_process_state(int pid) {
  char state;
  uint64_t start;
  return stat_of(pid, &state, &start) ? state : 0;
}

static void mark_dead(rgc_group *g, int local) {
  rgc_depart(g, local, RGC_DEAD);
  if (!g->has_net || atomic_load(&g->seg->line[local].state) != RGC_DEAD) return;   /* who left may end */
  char who[160], text[400];
  rgc_who(g, local, who, sizeof who);
  snprintf(text, sizeof text, "%s of group %s died. Make a new group with the ranks that live.", who, g->name);
  rgc_break(g, RAYGO_EGROUP, g->rank_of[local], text);   /* the other nodes must hear of it */
}

static void died(const struct watched *w) {   /* mu */
  for (rgc_group *g = groups; g; g = g->next_group)
    for (int i = 0; i < g->nlocal; i++)
      if (g->seg->line[i].pid == w->pid && g->seg->line[i].start == w->start) mark_dead(g, i);
}

void rgc_look_at_pids(rgc_group *g) {
  for (int i = 0; i < g->nlocal; i++) {
    struct rgc_line *l = &g->seg->line[i];
    char state = 'Z';
    uint64_t start = 0;
    if (l->pid && l->pid != (int)getpid() && (!stat_of(l->pid, &state, &start) || start != l->start || state == 'Z')) mark_dead(g, i);
  }
}

static void *watch(void *arg) {
  int epoll = *(int *)arg;
  free(arg);
  for (;;) {
    struct epoll_event e[16];
    int n = epoll_wait(epoll, e, 16, -1);
    if (n < 0 && errno != EINTR) return NULL;
    pthread_mutex_lock(&mu);
    for (int i = 0; i < n; i++) {
      if (!e[i].data.u64) {
        pthread_mutex_unlock(&mu);
        return NULL;
      }
      for (struct watched *w = processes; w; w = w->next) {
        if (w->id != e[i].data.u64 || w->dead) continue;
        w->dead = true;
        epoll_ctl(epoll, EPOLL_CTL_DEL, w->fd, NULL);
        died(w);
      }
    }
    pthread_mutex_unlock(&mu);
  }
}

/* ------------------------------------------------------------------------------------------------ forks */

static void before_fork(void) { pthread_mutex_lock(&mu); }
static void after_in_parent(void) { pthread_mutex_unlock(&mu); }

/* The child has the parent's memory but not its threads: it forgets all groups, and gives the descriptors back. */
static void after_in_child(void) {
  atomic_fetch_add(&rgc_forks, 1);
  for (struct watched *w = processes, *next; w; w = next) {
    next = w->next;
    if (w->fd >= 0) close(w->fd);
    free(w);
  }
  if (poll_fd >= 0) close(poll_fd);
  if (stop_fd >= 0) close(stop_fd);
  processes = NULL;
  groups = NULL;
  running = false;
  poll_fd = stop_fd = -1;
  atomic_store(&unwatched, 0);
  pthread_mutex_unlock(&mu);
}

/* A process that ends in order leaves its groups; the others then know that it did not crash. */
static void at_exit(void) {
  if (pthread_mutex_trylock(&mu)) return;   /* some thread is about to do so, or never will */
  for (rgc_group *g = groups; g; g = g->next_group) rgc_depart(g, g->me, RGC_LEFT);
  pthread_mutex_unlock(&mu);
}

static void once(void) {
  pthread_atfork(before_fork, after_in_parent, after_in_child);
  atexit(at_exit);
}

/* ------------------------------------------------------------------------------------------------ beginning and end */

static int start(rgc_error *err) {   /* mu */
  if (running) return 0;
  int *arg = malloc(sizeof *arg);
  poll_fd = epoll_create1(EPOLL_CLOEXEC);
  stop_fd = eventfd(0, EFD_CLOEXEC);
  struct epoll_event e = {.events = EPOLLIN, .data.u64 = 0};
  bool ok = arg && poll_fd >= 0 && stop_fd >= 0 && !epoll_ctl(poll_fd, EPOLL_CTL_ADD, stop_fd, &e);
  if (ok) {
    sigset_t all, old;
    *arg = poll_fd;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    ok = !pthread_create(&thread, NULL, watch, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
  }
  running = ok;
  if (ok) return 0;
  int e2 = errno;
  free(arg);
  if (poll_fd >= 0) close(poll_fd);
  if (stop_fd >= 0) close(stop_fd);
  poll_fd = stop_fd = -1;
  return rgc_fail(err, RAYGO_ENOMEM, -1, "The thread that watches the ranks' processes could not be started (%s). Raise ulimit -n or -u.", strerror(e2));
}

static int watch_process(int pid, uint64_t began, rgc_error *err) {   /* mu */
  for (struct watched *w = processes; w; w = w->next)
    if (w->pid == pid && w->start == began && !w->dead) {
      w->refs++;
      return 0;
    }
  struct watched *w = calloc(1, sizeof *w);
  if (!w) return rgc_fail(err, RAYGO_ENOMEM, -1, "There was no memory to watch process %d.", pid);
  int fd = (int)syscall(SYS_pidfd_open, pid, 0);
  *w = (struct watched){processes, began, ++last_id, pid, fd, 1, false};
  if (fd < 0 && errno != ENOSYS && errno != EPERM) {
    int e = errno;
    free(w);
    if (e == ESRCH) return 1;
    return rgc_fail(err, RAYGO_ENOMEM, -1, "Process %d of a group cannot be watched (%s). Raise the limit on open files (ulimit -n): each process of a group needs one.", pid, strerror(e));
  }
  if (fd >= 0 && rgc_start_time(pid) != began) {   /* the number was given to another process */
    close(fd);
    free(w);
    return 1;
  }
  processes = w;
  struct epoll_event e = {.events = EPOLLIN, .data.u64 = w->id};
  if (fd >= 0 && epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &e)) {   /* too many watches of this user's */
    close(fd);
    w->fd = -1;
  }
  if (w->fd < 0) atomic_fetch_add(&unwatched, 1);
  return 0;
}

static void forget_process(int pid, uint64_t start) {   /* mu */
  for (struct watched **at = &processes; *at; at = &(*at)->next) {
    struct watched *w = *at;
    if (w->pid != pid || w->start != start) continue;
    if (--w->refs) return;
    *at = w->next;
    if (w->fd >= 0) close(w->fd);
    else atomic_fetch_sub(&unwatched, 1);
    free(w);
    return;
  }
}

int rgc_watch(rgc_group *g, rgc_error *err) {
  static pthread_once_t first = PTHREAD_ONCE_INIT;
  pthread_once(&first, once);
  int r = 0, self = (int)getpid();
  pthread_mutex_lock(&mu);
  g->next_group = groups;
  groups = g;
  for (int i = 0; i < g->nlocal; i++) {
    struct rgc_line *l = &g->seg->line[i];
    if (l->pid == self) continue;
    if (!(r = start(err))) r = watch_process(l->pid, l->start, err);
    if (r == 1) {
      mark_dead(g, i);               /* it was quicker to end than this one to watch it */
      r = 0;
    } else if (!r) {
      g->watched[i] = true;
    } else {
      break;
    }
  }
  pthread_mutex_unlock(&mu);
  return r;
}

void rgc_unwatch(rgc_group *g) {
  pthread_mutex_lock(&mu);
  bool listed = false;
  for (rgc_group **at = &groups; *at && !listed; at = &(*at)->next_group)
    if (*at == g) {
      *at = g->next_group;
      listed = true;
      break;
    }
  for (int i = 0; listed && i < g->nlocal; i++)
    if (g->watched[i]) forget_process(g->seg->line[i].pid, g->seg->line[i].start);
  bool last = listed && running && !groups;
  pthread_t t = thread;
  int p = poll_fd, s = stop_fd;
  if (last) {
    uint64_t n = 1;
    running = false;
    poll_fd = stop_fd = -1;
    if (write(s, &n, sizeof n) < 0) last = false;
  }
  pthread_mutex_unlock(&mu);
  if (!last) return;
  pthread_join(t, NULL);
  close(p);
  close(s);
}
