/* The table of handles under many threads; meant for the sanitizers.  Tokens need no engine, so there is none: its functions are stubs.
 * cc -fsanitize=thread|address -Icapi -Icapi/include tests/capi/handles_stress.c capi/abi*.c capi/client*.c -lpthread */
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "no_engine.h"

enum { THREADS = 4, SHARED = 64, ROUNDS = 5000 };
static _Atomic uint64_t shared[SHARED];       /* handles that every thread fires and replaces */
static _Atomic long made, released, refused;

static void *worker(void *arg) {
  unsigned seed = (unsigned)(size_t)arg;
  for (int i = 0; i < ROUNDS; i++) {
    raygo_token t, old;
    assert(raygo_token_new(&t, NULL) == RAYGO_OK);
    atomic_fetch_add(&made, 1);
    old.h = atomic_exchange(&shared[rand_r(&seed) % SHARED], t.h);
    raygo_token any = {atomic_load(&shared[rand_r(&seed) % SHARED])};
    raygo_status r = raygo_token_fire(any, NULL);   /* its owner may release it meanwhile */
    assert(r == RAYGO_OK || r == RAYGO_ESTALE);
    if (r) atomic_fetch_add(&refused, 1);
    if (!old.h) continue;
    assert(raygo_token_release(old, NULL) == RAYGO_OK);
    assert(raygo_token_release(old, NULL) == RAYGO_ESTALE);
    atomic_fetch_add(&released, 1);
  }
  return NULL;
}

int main(void) {
  pthread_t t[THREADS];
  for (size_t i = 0; i < THREADS; i++) pthread_create(&t[i], NULL, worker, (void *)(i + 1));
  for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
  for (int i = 0; i < SHARED; i++)
    if (raygo_token_release((raygo_token){shared[i]}, NULL) == RAYGO_OK) released++;
  assert(made == released);
  /* More than fit into the first chunk at once. */
  static raygo_token many[100000];
  for (int i = 0; i < 100000; i++) assert(raygo_token_new(&many[i], NULL) == RAYGO_OK);
  for (int i = 0; i < 100000; i++) assert(raygo_token_fire(many[i], NULL) == RAYGO_OK && raygo_token_release(many[i], NULL) == RAYGO_OK);
  for (int i = 0; i < 100000; i++) assert(raygo_token_fire(many[i], NULL) == RAYGO_ESTALE);
  printf("%ld tokens, %ld refused\n", (long)made, (long)refused);
  puts("ok");
  return 0;
}
