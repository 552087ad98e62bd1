/* What raygo calls of NCCL and of CUDA's driver, declared by hand: neither's headers are needed to build, nor its library to run. */
#ifndef RAYGO_NCCL_H
#define RAYGO_NCCL_H
#include <stddef.h>
#include <stdint.h>

/* Handles and addresses of the GPU are numbers here: some, such as CUDA's stream 1, are no addresses, and Go dies of pointers that are none. */
typedef struct { char internal[128]; } nccl_id;
typedef struct { size_t size; unsigned magic, version; int blocking; } nccl_config;   /* as of 2.14; later fields have defaults */

enum { NCCL_SUCCESS = 0, NCCL_IN_PROGRESS = 7, CUDA_NOT_READY = 600 };

/* What failed is said in `error`, which is free()d. */
int nccl_load(const char *path, char **error);         /* 1: it is there */
int nccl_has_driver(void);                             /* CUDA's, for events */
const char *nccl_words(int code);
const char *nccl_last_error(uintptr_t comm);
int nccl_version(int *v);
int nccl_unique_id(nccl_id *id);
int nccl_init(uintptr_t *comm, int n, const nccl_id *id, int rank);
int nccl_async_error(uintptr_t comm, int *state);
int nccl_abort(uintptr_t comm);
int nccl_finalize(uintptr_t comm);
int nccl_destroy(uintptr_t comm);
int nccl_group_start(void);
int nccl_group_end(void);
int nccl_all_reduce(uintptr_t s, uintptr_t r, size_t n, int type, int op, uintptr_t comm, uintptr_t stream);
int nccl_reduce(uintptr_t s, uintptr_t r, size_t n, int type, int op, int root, uintptr_t comm, uintptr_t stream);
int nccl_broadcast(uintptr_t s, uintptr_t r, size_t n, int type, int root, uintptr_t comm, uintptr_t stream);
int nccl_all_gather(uintptr_t s, uintptr_t r, size_t n, int type, uintptr_t comm, uintptr_t stream);
int nccl_reduce_scatter(uintptr_t s, uintptr_t r, size_t n, int type, int op, uintptr_t comm, uintptr_t stream);
int nccl_send(uintptr_t s, size_t n, int type, int peer, uintptr_t comm, uintptr_t stream);
int nccl_recv(uintptr_t r, size_t n, int type, int peer, uintptr_t comm, uintptr_t stream);

/* CUDA's driver: 0 or its code. */
int nccl_context(uintptr_t *context);                      /* that of this thread, which torch has made the primary one */
int nccl_enter(uintptr_t context);
int nccl_event_record(uintptr_t *event, uintptr_t stream);     /* a new one */
int nccl_event_query(uintptr_t event);
int nccl_event_free(uintptr_t event);
#endif
