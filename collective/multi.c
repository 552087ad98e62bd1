/* Collectives of groups that are on several nodes. */
#include "core.h"

int rgc_collective_nodes(struct rgc_ctx *x) {
  return rgc_fail(x->err, RAYGO_EINVAL, x->g->rank, "Group %s is on several nodes, which %s cannot do yet.", x->g->name, rgc_kind_name(x->call->kind));
}
