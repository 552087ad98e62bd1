/* Making a group and leaving it.
 *
 * Every rank says in the store who and where it is; rank 0 reads all of that and answers with the table of ranks, or with what is wrong.  On each node the
 * lowest rank makes the shared memory and says where the others find it. */
#include "core.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_MAX_BYTES 200
#define DEFAULT_TIMEOUT (INT64_C(1800) * 1000000000)
#define GRACE INT64_C(2000000000)      /* rank 0 gives its verdict before the others stop waiting for it */

struct hello {                        /* what a rank says of itself */
  uint32_t version;
  int32_t rank, size, pid;
  uint32_t uid, zero;
  uint64_t start, pid_space, nonce;
  char boot[40], node[128];
};
struct verdict { int32_t code, rank; char message[1008]; };   /* followed by all hellos when code is 0 */
struct place { uint64_t nonce; int32_t code, pid, fd, rank; char message[1008]; };

enum { HELLO_VERSION = 2 };

static int key_of(char *to, size_t n, const char *name, const char *what, int i) { return snprintf(to, n, "%s/%s%d", name, what, i); }

static void read_line(const char *path, char *to, size_t n) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t got = fd >= 0 ? read(fd, to, n - 1) : 0;
  if (fd >= 0) close(fd);
  to[got > 0 ? got : 0] = 0;
  to[strcspn(to, "\n")] = 0;
}

static void introduce(rgc_group *g, struct hello *h) {
  struct stat st;
  memset(h, 0, sizeof *h);
  h->version = HELLO_VERSION;
  h->rank = g->rank;
  h->size = g->size;
  h->pid = (int32_t)getpid();
  h->uid = (uint32_t)geteuid();
  h->start = rgc_start_time(h->pid);
  h->pid_space = stat("/proc/self/ns/pid", &st) ? 0 : st.st_ino;
  if (getrandom(&h->nonce, sizeof h->nonce, 0) != sizeof h->nonce) h->nonce = (uint64_t)rgc_now() ^ (uint64_t)h->pid << 32;
  read_line("/proc/sys/kernel/random/boot_id", h->boot, sizeof h->boot);
  snprintf(h->node, sizeof h->node, "%s", g->node_name);
}

static bool same_node(const struct hello *a, const struct hello *b) {
  return a->uid == b->uid && a->pid_space == b->pid_space && !strcmp(a->boot, b->boot) && !strcmp(a->node, b->node);
}

static int store_set(rgc_group *g, const char *key, const void *data, size_t len, rgc_error *err) {
  int r = g->store.set(g->store.arg, key, data, len, err);
  if (r && !err->code) rgc_fail(err, r, g->rank, "Rank %d of group %s could not write %s into the store.", g->rank, g->name, key);
  return r;
}

/* Values may come from another version: their length is checked before anything else. */
static int store_get(rgc_group *g, const char *key, int64_t timeout, void *to, size_t least, size_t most, size_t *len, rgc_error *err) {
  void *data = NULL;
  size_t n = 0;
  int r = g->store.get(g->store.arg, key, timeout, &data, &n, err);
  if (!r && (n < least || n > most))
    r = rgc_fail(err, RAYGO_EVERSION, -1, "The store holds under %s what another version of raygo wrote, or something else: use the same version everywhere, and one name once.", key);
  if (r && !err->code) rgc_fail(err, r, g->rank, "Rank %d of group %s could not read %s from the store.", g->rank, g->name, key);
  if (!r) {
    memcpy(to, data, n);
    *len = n;
  }
  free(data);
  return r;
}

struct meeting {
  rgc_group *g;
  const rgc_wait *wait;
  int64_t deadline;                   /* -1: none */
  struct hello me, *all;
  rgc_error *err;
};

static int64_t left(const struct meeting *m) {
  if (m->deadline < 0) return -1;
  int64_t n = m->deadline - rgc_now();
  return n > 1 ? n : 1;
}

static int absent(struct meeting *m, const bool *there, struct verdict *v) {
  rgc_group *g = m->g;
  char list[300];
  size_t at = 0;
  int n = 0;
  for (int i = 0; i < g->size; i++)
    if (!there[i] && n++ < 16) at += (size_t)snprintf(list + at, sizeof list - at, "%s%d", at ? ", " : "", i);
  v->code = RAYGO_ETIMEDOUT;
  v->rank = -1;
  snprintf(v->message, sizeof v->message, "Group %s was not made: of %d ranks, %d did not come in time (%s%s). Start them all with the same name, size and store, or allow more time.", g->name,
           g->size, n, list, n > 16 ? ", …" : "");
  return v->code;
}

static void disagree(struct meeting *m, const struct hello *h, struct verdict *v) {
  v->code = RAYGO_EINVAL;
  v->rank = h->rank;
  if (h->version != HELLO_VERSION) v->code = RAYGO_EVERSION;
  snprintf(v->message, sizeof v->message, "Group %s was not made: rank 0 counts %d ranks, rank %d (pid %d on node %s) counts %d%s.", m->g->name, m->g->size, h->rank, h->pid, h->node, h->size,
           h->version != HELLO_VERSION ? " and has another version of raygo" : "");
}

/* Rank 0: collects everybody and tells them of each other. */
static int preside(struct meeting *m, struct verdict *v) {
  rgc_group *g = m->g;
  bool *there = calloc((size_t)g->size, 1);
  size_t len = sizeof *v + (size_t)g->size * sizeof *m->all, got;
  char key[256];
  uint8_t *answer = malloc(len);
  int r = answer && there ? 0 : RAYGO_ENOMEM;
  memset(v, 0, sizeof *v);
  for (int i = 0; i < g->size && !r; i++) {
    there[i] = !i;
    m->all[0] = m->me;
    if (!i) continue;
    key_of(key, sizeof key, g->name, "rank/", i);
    r = store_get(g, key, left(m), &m->all[i], sizeof m->me, sizeof m->me, &got, m->err);
    there[i] = !r;
    if (r == RAYGO_ETIMEDOUT) {
      /* The others are asked once, without waiting, so that the message names all who are missing. */
      rgc_error ignored;
      for (int j = i + 1; j < g->size; j++) there[j] = !store_get(g, (key_of(key, sizeof key, g->name, "rank/", j), key), 1, &m->all[j], sizeof m->me, sizeof m->me, &got, &ignored);
      r = absent(m, there, v);
      break;
    }
    if (!r && (m->all[i].size != g->size || m->all[i].rank != i || m->all[i].version != HELLO_VERSION)) {
      disagree(m, &m->all[i], v);
      r = v->code;
    }
  }
  if (r && !v->code) {
    v->code = r;
    v->rank = 0;
    snprintf(v->message, sizeof v->message, "%s", r == RAYGO_ENOMEM ? "Rank 0 had no memory to make the group." : m->err->message);
  }
  if (answer) {
    rgc_error e = {0};
    memcpy(answer, v, sizeof *v);
    if (!v->code) memcpy(answer + sizeof *v, m->all, (size_t)g->size * sizeof *m->all);
    key_of(key, sizeof key, g->name, "table/", 0);
    int s = store_set(g, key, answer, v->code ? sizeof *v : len, &e);
    if (s && !v->code) {
      v->code = s;
      snprintf(v->message, sizeof v->message, "%s", e.message);
    }
  }
  free(answer);
  free(there);
  return v->code;
}

static int attend(struct meeting *m, struct verdict *v) {
  rgc_group *g = m->g;
  char key[256];
  size_t len = sizeof *v + (size_t)g->size * sizeof *m->all, got = 0;
  uint8_t *answer = malloc(len);
  if (!answer) return rgc_fail(m->err, RAYGO_ENOMEM, g->rank, "There was no memory to make group %s.", g->name);
  key_of(key, sizeof key, g->name, "rank/", g->rank);
  int r = store_set(g, key, &m->me, sizeof m->me, m->err);
  key_of(key, sizeof key, g->name, "table/", 0);
  int64_t wait = left(m);
  if (!r) r = store_get(g, key, wait < 0 ? -1 : wait + GRACE, answer, sizeof *v, len, &got, m->err);
  if (r == RAYGO_ETIMEDOUT)
    rgc_fail(m->err, r, 0, "Rank %d could not join group %s: rank 0 did not come in time. Start all ranks with the same name, size and store, or allow more time.", g->rank, g->name);
  if (!r) {
    memcpy(v, answer, sizeof *v);
    v->message[sizeof v->message - 1] = 0;
    if (v->code) r = rgc_fail(m->err, v->code, v->rank, "%s", v->message);
    else if (got != len) r = rgc_fail(m->err, RAYGO_EINVAL, 0, "Rank %d counts %d ranks in group %s, rank 0 another number.", g->rank, g->size, g->name);
    else memcpy(m->all, answer + sizeof *v, (size_t)g->size * sizeof *m->all);
  }
  if (!r && (m->all[g->rank].nonce != m->me.nonce))
    r = rgc_fail(m->err, RAYGO_EEXISTS, g->rank, "The store has held a group %s before, or two processes call themselves rank %d: give each group a name of its own.", g->name, g->rank);
  free(answer);
  return r;
}

static int no_room(rgc_group *g, rgc_error *err) { return rgc_fail(err, RAYGO_ENOMEM, g->rank, "There was no memory to make group %s.", g->name); }

/* Numbers the nodes by their lowest rank. */
static int place_ranks(struct meeting *m) {
  rgc_group *g = m->g;
  g->node_of = calloc((size_t)g->size, sizeof *g->node_of);
  g->local_of = calloc((size_t)g->size, sizeof *g->local_of);
  g->leader_of = calloc((size_t)g->size, sizeof *g->leader_of);
  g->node_names = calloc((size_t)g->size, sizeof *g->node_names);
  g->scratch = calloc(2 * (size_t)g->size, sizeof *g->scratch);
  if (!g->node_of || !g->local_of || !g->leader_of || !g->node_names || !g->scratch) return no_room(g, m->err);
  for (int i = 0; i < g->size; i++) {
    int n = 0;
    while (n < g->nodes && !same_node(&m->all[g->leader_of[n]], &m->all[i])) n++;
    if (n == g->nodes) {
      g->leader_of[g->nodes++] = i;
      m->all[i].node[sizeof m->all[i].node - 1] = 0;
      if (!(g->node_names[n] = strdup(m->all[i].node))) return no_room(g, m->err);
    }
    g->node_of[i] = n;
    g->local_of[i] = -1;
  }
  g->node = g->node_of[g->rank];
  for (int i = 0; i < g->size; i++) {
    if (g->node_of[i] != g->node) continue;
    if (g->nlocal == RGC_MAX_LOCAL)
      return rgc_fail(m->err, RAYGO_EINVAL, -1, "Group %s has more than %d ranks on node %s, which is all that one node's memory can join.", g->name, RGC_MAX_LOCAL, g->node_name);
    if (i == g->rank) g->me = g->nlocal;
    g->local_of[i] = g->nlocal;
    g->rank_of[g->nlocal++] = i;
  }
  if (g->nodes > 1 && !g->net_open)
    return rgc_fail(m->err, RAYGO_EINVAL, -1, "Group %s is on %d nodes (%s, %s, …), but was made without a transport between nodes.", g->name, g->nodes, g->node_names[0], g->node_names[1]);
  return 0;
}

/* Says in the store where the node's memory is, or, where `code` is one, why there is none or no longer any. */
static int tell_place(const struct meeting *m, const char *key, int code, rgc_error *err) {
  rgc_group *g = m->g;
  struct place p = {.nonce = m->me.nonce, .code = code, .pid = m->me.pid, .fd = g->fd, .rank = g->rank};
  if (code) {
    p.rank = m->err->rank;
    snprintf(p.message, sizeof p.message, "%s", m->err->message);
  }
  return g->nlocal > 1 ? store_set(g, key, &p, sizeof p, err) : 0;
}

static int get_place(const struct meeting *m, const char *key, struct place *p, rgc_error *err) {
  size_t got;
  int r = store_get(m->g, key, left(m), p, sizeof *p, sizeof *p, &got, err);
  if (r) return r;
  p->message[sizeof p->message - 1] = 0;
  return p->code ? rgc_fail(err, p->code, p->rank, "%s", p->message) : 0;
}

static int join_memory(const struct meeting *m, const char *key) {
  rgc_group *g = m->g;
  struct place p = {0};
  int r = get_place(m, key, &p, m->err);
  if (r == RAYGO_ETIMEDOUT && !p.code)
    return rgc_fail(m->err, r, g->rank_of[0], "Rank %d waited in vain for rank %d to make the memory of group %s.", g->rank, g->rank_of[0], g->name);
  if (r || !(r = rgc_segment_join(g, p.nonce, p.pid, p.fd, m->err))) return r;
  /* Whoever made it may have ended since, and has then said why. */
  rgc_error why = {0};
  int cause = get_place(m, key, &p, &why);
  return cause && p.code ? rgc_fail(m->err, why.code, why.rank, "%s", why.message) : r;
}

/* All of the node have the memory when this is done. */
static int meet_in_memory(const struct meeting *m) {
  rgc_group *g = m->g;
  g->mine = &g->seg->line[g->me];
  for (int i = 0; i < g->nlocal; i++) {   /* each rank writes the same, so that all can be watched from now on */
    struct rgc_line *l = &g->seg->line[i];
    l->pid = m->all[g->rank_of[i]].pid;
    l->start = m->all[g->rank_of[i]].start;
  }
  uint32_t none = RGC_ABSENT;
  atomic_compare_exchange_strong(&g->mine->state, &none, RGC_PRESENT);
  struct rgc_ctx x;
  rgc_wait wait = {left(m), m->wait ? m->wait->check : NULL, m->wait ? m->wait->arg : NULL};
  rgc_ctx_init(&x, g, NULL, &wait, m->err);
  x.seq = 1;                           /* nobody may be missing */
  int r = rgc_watch(g, m->err);
  if (!r) rgc_post(&x);
  return r ? r : rgc_await_all(&x, g->step);
}

static int share_memory(const struct meeting *m) {
  rgc_group *g = m->g;
  char key[256];
  rgc_error ignored = {0};
  key_of(key, sizeof key, g->name, "node/", g->node);
  int r = g->me ? join_memory(m, key) : rgc_segment_make(g, m->me.nonce, m->err);
  if (!r && !g->me) r = tell_place(m, key, 0, m->err);
  if (!r) r = meet_in_memory(m);
  if (r && !g->me) tell_place(m, key, r, &ignored);   /* for those who come to the memory when it is gone */
  return r;
}

static void far_failed(rgc_group *g, int code, int rank, const char *message) { rgc_break(g, code ? code : RAYGO_EGROUP, rank, message ? message : "Another node failed."); }

static int open_net(struct meeting *m) {
  rgc_group *g = m->g;
  if (g->nodes == 1) return 0;
  rgc_net_spec spec = {.struct_size = sizeof spec, .name = g->name, .rank = g->rank, .size = g->size, .node = g->node, .nodes = g->nodes, .node_of = g->node_of, .leader_of = g->leader_of,
                       .node_names = (const char *const *)g->node_names, .store = &g->store, .timeout_ns = left(m), .fail = far_failed, .group = g};
  g->net.struct_size = sizeof g->net;
  int r = g->net_open(g->net_arg, &spec, &g->net, m->err);
  g->has_net = !r;
  if (r) {
    /* The others look there while they wait for this rank. */
    struct verdict v = {.code = r, .rank = m->err->code ? m->err->rank : g->rank};
    rgc_error ignored = {0};
    char key[256];
    snprintf(v.message, sizeof v.message, "%s", m->err->code ? m->err->message : "The transport between nodes gave no reason.");
    snprintf(key, sizeof key, "%s" RGC_NET_FAILED, g->name);
    store_set(g, key, &v, sizeof v, &ignored);
  }
  return r;
}

static void free_group(rgc_group *g) {
  for (int i = 0; g->node_names && i < g->nodes; i++) free(g->node_names[i]);
  free(g->node_names);
  free(g->node_of);
  free(g->local_of);
  free(g->leader_of);
  free(g->scratch);
  g->node_names = NULL;
  g->node_of = g->local_of = g->leader_of = NULL;
  g->scratch = NULL;
}

static int check_options(const rgc_options *o, rgc_error *err) {
  if (!o || o->struct_size < sizeof *o) return rgc_fail(err, RAYGO_EINVAL, -1, "rgc_open: options are missing, or made for another version.");
  size_t n = o->name ? strlen(o->name) : 0;
  if (!n || n > NAME_MAX_BYTES) return rgc_fail(err, RAYGO_EINVAL, -1, "A group's name has 1 to %d bytes; this one has %zu.", NAME_MAX_BYTES, n);
  if (o->size < 1 || o->size > RGC_MAX_SIZE) return rgc_fail(err, RAYGO_EINVAL, -1, "Group %s cannot have %d ranks; 1 to %d are possible.", o->name, o->size, RGC_MAX_SIZE);
  if (o->rank < 0 || o->rank >= o->size) return rgc_fail(err, RAYGO_EINVAL, -1, "Group %s has ranks 0 to %d; %d is none.", o->name, o->size - 1, o->rank);
  if (o->timeout_ns < -1) return rgc_fail(err, RAYGO_EINVAL, -1, "Group %s: a timeout is a number of nanoseconds from 1 on, 0 for the default or -1 for none.", o->name);
  if (o->size > 1 && (!o->store.set || !o->store.get)) return rgc_fail(err, RAYGO_EINVAL, -1, "Group %s has several ranks but no store in which they could find each other.", o->name);
  return 0;
}

static rgc_group *new_group(const rgc_options *o) {
  rgc_group *g = calloc(1, sizeof *g);
  char host[128] = "?";
  if (!g) return NULL;
  if (o->node && *o->node) snprintf(host, sizeof host, "%s", o->node);
  else if (gethostname(host, sizeof host - 1)) snprintf(host, sizeof host, "?");
  g->name = strdup(o->name);
  g->node_name = strdup(host);
  g->fd = -1;
  g->rank = o->rank;
  g->size = o->size;
  g->timeout_ns = o->timeout_ns ? o->timeout_ns : DEFAULT_TIMEOUT;
  g->store = o->store;
  g->arena_option = o->arena_bytes;
  g->net_open = o->net_open;
  g->net_arg = o->net_arg;
  g->log = o->log;
  g->log_arg = o->log_arg;
  g->fork_count = atomic_load(&rgc_forks);
  pthread_condattr_t a;
  pthread_condattr_init(&a);
  pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
  pthread_mutex_init(&g->mu, NULL);
  pthread_mutex_init(&g->p2p_mu, NULL);
  pthread_mutex_init(&g->arena_mu, NULL);
  pthread_cond_init(&g->more, &a);
  pthread_cond_init(&g->room, &a);
  pthread_cond_init(&g->out, &a);
  pthread_condattr_destroy(&a);
  g->msgs_tail = &g->msgs;
  g->strays_tail = &g->strays;
  cpu_set_t set;
  int cores = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
  g->spin_max = 50000;
  g->spin_ns = 20000;
  g->crowded = true;
  atomic_store(&g->map_refs, 1);
  g->cores = cores;
  return g;
}

int rgc_open(const rgc_options *o, const rgc_wait *wait, rgc_group **out, rgc_error *err) {
  rgc_error own = {0};
  if (!err) err = &own;
  err->code = 0;
  *out = NULL;
  int r = check_options(o, err);
  if (r) return r;
  rgc_group *g = new_group(o);
  if (!g || !g->name || !g->node_name) return rgc_fail(err, RAYGO_ENOMEM, o->rank, "There was no memory to make group %s.", o->name);
  struct meeting m = {.g = g, .wait = wait, .deadline = wait && wait->timeout_ns ? wait->timeout_ns : g->timeout_ns, .err = err};
  if (m.deadline >= 0) m.deadline = m.deadline < INT64_MAX - rgc_now() ? m.deadline + rgc_now() : -1;
  m.all = calloc((size_t)g->size, sizeof *m.all);
  struct verdict v = {0};
  introduce(g, &m.me);
  if (!m.all) r = no_room(g, err);
  else if (g->size == 1) m.all[0] = m.me;
  else if (g->rank == 0) r = preside(&m, &v) ? rgc_fail(err, v.code, v.rank, "%s", v.message) : 0;
  else r = attend(&m, &v);
  if (!r) r = place_ranks(&m);
  g->crowded = g->nlocal > g->cores;
  if (!r) r = share_memory(&m);
  if (!r) r = open_net(&m);
  free(m.all);
  if (r) {
    rgc_close(g);
    return r;
  }
  *out = g;
  return 0;
}

static bool under_way(rgc_group *g) {
  pthread_mutex_lock(&g->mu);
  bool is = g->seg && g->mine && (atomic_load(&g->calling) || g->head);
  pthread_mutex_unlock(&g->mu);
  return is;
}

void rgc_hold(rgc_group *g) { atomic_fetch_add(&g->map_refs, 1); }

void rgc_close(rgc_group *g) {
  if (!g) return;
  if (g->fork_count != atomic_load(&rgc_forks)) return;   /* the child has no threads to join, and the memory goes with it */
  if (g->seg && g->mine) rgc_depart(g, g->me, RGC_LEFT);
  if (under_way(g)) {
    char text[300];
    snprintf(text, sizeof text, "Rank %d (pid %d on node %s) closed group %s while a call of its own was under way.", g->rank, (int)getpid(), g->node_name, g->name);
    rgc_break(g, RAYGO_EGROUP, g->rank, text);
  }
  rgc_home here = rgc_at_home(g);
  if (here == RGC_NOWHERE) {
    rgc_finish(g);
    return;
  }
  /* Called by what the user wanted to run when a call ended: the thread that this is cannot wait for itself, so it does the rest when it ends. */
  pthread_mutex_lock(&g->mu);
  g->closer = here;
  pthread_mutex_unlock(&g->mu);
  rgc_queue_closing(g);
  rgc_p2p_closing(g);
}

void rgc_finish(rgc_group *g) {
  rgc_p2p_close(g);
  rgc_queue_close(g);
  if (g->seg && g->mine) rgc_unwatch(g);
  if (g->has_net) g->net.close(g->net.ctx);
  g->has_net = false;
  free_group(g);
  rgc_drop(g);
}

int rgc_abort(rgc_group *g, const char *why, rgc_error *err) {
  int r = rgc_enter(g, err);
  if (r) return r;
  char text[1000];
  snprintf(text, sizeof text, "Rank %d (pid %d on node %s) aborted group %s%s%s", g->rank, (int)getpid(), g->node_name, g->name, why && *why ? ": " : ".", why ? why : "");
  rgc_break(g, RAYGO_EGROUP, g->rank, text);
  rgc_leave(g);
  return 0;
}

int rgc_broken(rgc_group *g, rgc_error *err) {
  int r = rgc_enter(g, err);
  if (r) return r;
  r = rgc_broke(g, err);
  rgc_leave(g);
  return r;
}

int rgc_rank(const rgc_group *g) { return g->rank; }
int rgc_size(const rgc_group *g) { return g->size; }
int rgc_local_size(const rgc_group *g) { return g->nlocal; }
int rgc_node_count(const rgc_group *g) { return g->nodes; }
const char *rgc_name(const rgc_group *g) { return g->name; }

/* ------------------------------------------------------------------------------------------------ parts of a group */

struct side { int32_t color, key; };

int rgc_split(rgc_group *g, int color, int key, const rgc_wait *wait, rgc_group **out, rgc_error *err) {
  rgc_error own;
  if (!err) err = &own;
  *out = NULL;
  struct side mine = {color, key}, *all = calloc((size_t)g->size, sizeof *all);
  if (!all) return no_room(g, err);
  rgc_call c = {.kind = RGC_ALLGATHER, .dtype = RGC_UINT8, .count = sizeof mine, .src = &mine, .dst = all};
  int r = rgc_run(g, &c, wait, NULL, err), rank = 0, size = 0;
  for (int i = 0; i < g->size && !r; i++) {
    if (all[i].color != color) continue;
    size++;
    rank += all[i].key < key || (all[i].key == key && i < g->rank);
  }
  free(all);
  if (r) return r;
  /* All ranks come here in the same calls, so the number is the same everywhere. */
  uint32_t number = ++g->splits;
  if (color < 0) return 0;
  char name[NAME_MAX_BYTES + 64];
  snprintf(name, sizeof name, "%s/%u.%d", g->name, number, color);
  rgc_options o = {.struct_size = sizeof o, .name = name, .rank = rank, .size = size, .timeout_ns = g->timeout_ns, .store = g->store, .node = g->node_name, .arena_bytes = g->arena_option,
                   .net_open = g->net_open, .net_arg = g->net_arg, .log = g->log, .log_arg = g->log_arg};
  return rgc_open(&o, wait, out, err);
}
