/* Collectives on NVIDIA's GPUs, by NCCL, with the calls of collective.h.  In libraygo_collective.so, which needs neither NCCL nor a driver until a group is
 * made.
 *
 * Addresses in calls are the GPU's.  A call is queued on the stream given (CUstream or cudaStream_t; that of torch.cuda.current_stream()), in the context
 * that is current on the calling thread, and returns when it is queued.  Of the kinds of collective.h there is no barrier; blocks of unequal size are not
 * taken.  Functions return 0 or a code of raygo_status.h and say in err what happened. */
#ifndef RAYGO_NCCL_ABI_H
#define RAYGO_NCCL_ABI_H
#include "collective.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes a communicator; all ranks call it, each with its GPU current.  Of the options name, rank, size, timeout_ns and store count: the store carries NCCL's
 * id.  A call that is not done on the GPU within timeout_ns aborts the group (where CUDA's driver is found).  paths: where libnccl.so.2 may be, one after
 * the other with ':' between; RAYGO_NCCL_LIBRARY comes first, the system's last. */
int raygo_nccl_open(const rgc_options *options, const char *paths, uint64_t *group, rgc_error *err);
int raygo_nccl_run(uint64_t group, const rgc_call *call, void *stream, rgc_error *err);
int raygo_nccl_group_start(uint64_t group, rgc_error *err);               /* calls up to the end are run together; on one thread */
int raygo_nccl_group_end(uint64_t group, void *stream, rgc_error *err);
int raygo_nccl_broken(uint64_t group, rgc_error *err);                    /* 0, or the code with which calls fail from now on */
int raygo_nccl_abort(uint64_t group, const char *why, rgc_error *err);    /* ends what is queued and waits for other ranks */
int raygo_nccl_close(uint64_t group, rgc_error *err);                     /* finishes what is queued first, unless the group is broken */

#ifdef __cplusplus
}
#endif
#endif
