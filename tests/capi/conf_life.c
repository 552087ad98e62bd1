/* Runtimes one after the other, what is left of the first, connecting to a running one, and forks. */
#include <sys/wait.h>
#include "check.h"

static void *wait_for_task(void *arg) {
  raygo_task task;
  return (void *)(intptr_t)raygo_task_next(*(raygo_runtime *)arg, FOREVER, NONE, &task, NULL, NULL);
}

/* Shutting down ends waits; buffers stay; everything else says that it is over. */
static void after_the_end(void) {
  raygo_runtime rt = begin();
  raygo_object small = put_text(rt, "small"), big, later;
  raygo_template t;
  raygo_buf b[2], c;
  static uint8_t data[200000];
  pthread_t waiter;
  void *r;
  memset(data, 7, sizeof data);
  OK(raygo_put(rt, RAYGO_BYTES, raygo_bytes(data, sizeof data), FOREVER, NONE, &big, &err));
  raygo_object both[2] = {small, big};
  OK(raygo_get(rt, both, 2, FOREVER, NONE, b, &err));
  OK(raygo_serve(rt, raygo_str("never"), 1, FOREVER, NONE, &err));
  OK(raygo_template_new(rt, RAYGO_NAMED, raygo_str("never"), NULL, &t, &err));
  pthread_create(&waiter, NULL, wait_for_task, &rt);
  usleep(20000);
  OK(raygo_shutdown(rt, 10 * RAYGO_SECOND, &err));
  pthread_join(waiter, &r);
  CHECK((intptr_t)r == RAYGO_ESHUTDOWN);
  IS(RAYGO_ESHUTDOWN, raygo_shutdown(rt, 0, &err));
  IS(RAYGO_ESHUTDOWN, raygo_put(rt, RAYGO_BYTES, raygo_str("x"), 0, NONE, &later, &err));
  IS(RAYGO_ESHUTDOWN, raygo_submit(rt, t, NULL, &later, &err));
  IS(RAYGO_ESHUTDOWN, raygo_kv_get(rt, raygo_str(""), raygo_str("x"), 0, NONE, &c, &err));
  IS(RAYGO_ESHUTDOWN, raygo_get(rt, &big, 1, 0, NONE, &c, &err));
  raygo_status s;
  while (!(s = raygo_log_next(rt, 0, NONE, &c, &err))) raygo_buf_release(&c);
  CHECK(s == RAYGO_ESHUTDOWN);
  OK(raygo_get(rt, &small, 1, 0, NONE, &c, &err));   /* its bytes are in this process */
  raygo_buf_release(&c);
  OK(raygo_runtime_release(rt, &err));
  IS(RAYGO_ESTALE, raygo_runtime_release(rt, &err));
  CHECK(b[0].len == 5 && !memcmp(b[0].data, "small", 5) && b[1].data[199999] == 7);
  OK(raygo_release(both, 2, &err));
  OK(raygo_template_release(t, &err));
  raygo_buf_release(&b[0]);
  raygo_buf_release(&b[1]);
}

/* The second runtime knows nothing of the first; a runtime that connects shares with the one that embeds the engine. */
static void two_of_them(void) {
  raygo_runtime one = begin();
  raygo_object old = put_text(one, "old"), o, same;
  raygo_buf b;
  uint8_t id[28];
  raygo_mp_value v;
  OK(raygo_object_id(old, id, &err));
  end(one);
  raygo_runtime two = begin(), third;
  SAYS(RAYGO_ESTALE, "another session", raygo_object_from_id(two, id, &o, &err));
  SAYS(RAYGO_EINVAL, "another runtime", raygo_get(two, &old, 1, 0, NONE, &b, &err));
  OK(raygo_release(&old, 1, &err));

  OK(raygo_info(two, &b, &err));
  CHECK(raygo_mp_find(raygo_bytes(b.data, b.len), "socket", &v));
  raygo_options options = raygo_options_init();
  options.name_space = raygo_str("conformance");
  OK(raygo_connect(v.s, &options, &third, &err));
  raygo_buf_release(&b);
  static uint8_t data[100000];
  memset(data, 3, sizeof data);
  OK(raygo_put(third, RAYGO_BYTES, raygo_bytes(data, sizeof data), FOREVER, NONE, &o, &err));
  OK(raygo_object_id(o, id, &err));
  int32_t there;
  OK(raygo_kv_exists(third, raygo_str(""), raygo_str("k"), 10 * RAYGO_SECOND, NONE, &there, &err));   /* now the engine has read the put */
  OK(raygo_object_from_id(two, id, &same, &err));
  OK(raygo_get(two, &same, 1, 10 * RAYGO_SECOND, NONE, &b, &err));
  CHECK(b.len == sizeof data && b.data[0] == 3);
  raygo_buf_release(&b);
  OK(raygo_release(&same, 1, &err));
  OK(raygo_release(&o, 1, &err));

  /* Served here, called there. */
  raygo_template t;
  raygo_task task;
  raygo_task_info info = RAYGO_TASK_INFO_INIT;
  raygo_result value = {raygo_str("\x07"), RAYGO_MSGPACK, 0};
  OK(raygo_serve(third, raygo_str("there"), 1, 10 * RAYGO_SECOND, NONE, &err));
  SAYS(RAYGO_EEXISTS, "there", raygo_serve(two, raygo_str("there"), 1, 10 * RAYGO_SECOND, NONE, &err));
  OK(raygo_template_new(two, RAYGO_NAMED, raygo_str("there"), NULL, &t, &err));
  OK(raygo_submit(two, t, NULL, &o, &err));
  OK(raygo_task_next(third, 10 * RAYGO_SECOND, NONE, &task, &info, &err));
  CHECK(info.name.len == 5 && info.num_returns == 1 && !info.attempt && info.args.len == 1);
  OK(raygo_task_reply(task, &value, 1, FOREVER, NONE, &err));
  OK(raygo_get(two, &o, 1, 10 * RAYGO_SECOND, NONE, &b, &err));
  CHECK(b.len == 1 && b.data[0] == 7);
  raygo_buf_release(&b);
  OK(raygo_release(&o, 1, &err));

  /* Its end is the end of the tasks that it took. */
  OK(raygo_submit(two, t, NULL, &o, &err));
  OK(raygo_task_next(third, 10 * RAYGO_SECOND, NONE, &task, NULL, &err));
  OK(raygo_shutdown(third, 5 * RAYGO_SECOND, &err));
  IS(RAYGO_EWORKERDIED, raygo_get(two, &o, 1, 10 * RAYGO_SECOND, NONE, &b, &err));
  IS(RAYGO_ESHUTDOWN, raygo_task_reply(task, &value, 1, 0, NONE, &err));
  OK(raygo_runtime_release(third, &err));
  OK(raygo_release(&o, 1, &err));
  OK(raygo_template_release(t, &err));
  end(two);
}

/* Two engines at once do not know each other. */
static void at_once(void) {
  raygo_runtime a = begin(), b = begin();
  raygo_object in_a = put_text(a, "a"), in_b = put_text(b, "b");
  raygo_buf buf;
  uint8_t id[28];
  OK(raygo_object_id(in_a, id, &err));
  raygo_object out;
  SAYS(RAYGO_ESTALE, "another session", raygo_object_from_id(b, id, &out, &err));
  end(a);
  OK(raygo_get(b, &in_b, 1, FOREVER, NONE, &buf, &err));
  raygo_buf_release(&buf);
  OK(raygo_release(&in_a, 1, &err));
  OK(raygo_release(&in_b, 1, &err));
  end(b);
}

/* The engine goes while a client is connected. */
static void engine_gone(void) {
  raygo_runtime rt = begin(), client;
  raygo_buf b;
  raygo_mp_value v;
  raygo_object o;
  OK(raygo_info(rt, &b, &err));
  CHECK(raygo_mp_find(raygo_bytes(b.data, b.len), "socket", &v));
  OK(raygo_connect(v.s, NULL, &client, &err));
  raygo_buf_release(&b);
  pthread_t waiter;
  void *r;
  pthread_create(&waiter, NULL, wait_for_task, &client);
  usleep(20000);
  end(rt);
  pthread_join(waiter, &r);
  CHECK((intptr_t)r == RAYGO_ECONNECTION || (intptr_t)r == RAYGO_ESHUTDOWN);
  IS(RAYGO_ECONNECTION, raygo_put(client, RAYGO_BYTES, raygo_str("x"), 0, NONE, &o, &err));
  raygo_shutdown(client, 0, NULL);
  OK(raygo_runtime_release(client, &err));
}

static void in_child(raygo_runtime rt, raygo_object o, raygo_buf *held) {
  raygo_runtime other;
  raygo_object out;
  raygo_token t;
  raygo_buf b;
  int bad = 0;
  bad += raygo_put(rt, RAYGO_BYTES, raygo_str("x"), FOREVER, NONE, &out, &err) != RAYGO_EFORKED;
  bad += raygo_get(rt, &o, 1, FOREVER, NONE, &b, &err) != RAYGO_EFORKED;
  bad += raygo_wait(rt, &o, 1, 1, FOREVER, NONE, NULL, NULL, &err) != RAYGO_EFORKED;
  bad += raygo_release(&o, 1, &err) != RAYGO_EFORKED;
  bad += raygo_start(NULL, &other, &err) != RAYGO_EFORKED;
  bad += raygo_connect(raygo_str("/x"), NULL, &other, &err) != RAYGO_EFORKED;
  bad += raygo_shutdown(rt, FOREVER, &err) != RAYGO_EFORKED;
  bad += raygo_runtime_release(rt, &err) != RAYGO_EFORKED;
  bad += raygo_token_new(&t, &err) != RAYGO_EFORKED;
  bad += raygo_query(rt, raygo_str("nodes"), raygo_bytes(NULL, 0), FOREVER, NONE, &b, &err) != RAYGO_EFORKED;
  bad += raygo_serve(rt, raygo_str("x"), 1, FOREVER, NONE, &err) != RAYGO_EFORKED;
  bad += raygo_task_fail((raygo_task){1}, raygo_str(""), raygo_str(""), &err) != RAYGO_EFORKED;
  bad += raygo_actor_release((raygo_actor){1}, &err) != RAYGO_EFORKED;
  bad += !err.message || !strstr(err.message, "forked");
  bad += !raygo_version() || raygo_abi_version() != RAYGO_ABI_VERSION;
  raygo_buf_release(held);
  raygo_error_clear(&err);
  _exit(bad);
}

static void forks(void) {
  raygo_runtime rt = begin();
  raygo_object o = put_text(rt, "parent's");
  raygo_buf b;
  OK(raygo_get(rt, &o, 1, FOREVER, NONE, &b, &err));
  pid_t child = fork();
  if (!child) in_child(rt, o, &b);
  int status;
  CHECK(child > 0 && waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(!memcmp(b.data, "parent's", 8));   /* the parent goes on */
  raygo_buf_release(&b);
  OK(raygo_get(rt, &o, 1, FOREVER, NONE, &b, &err));
  raygo_buf_release(&b);
  OK(raygo_release(&o, 1, &err));
  OK(raygo_runtime_release(rt, &err));     /* without a shutdown before */
}

void test_life(void) {
  after_the_end();
  two_of_them();
  at_once();
  engine_gone();
  forks();
}
