/* The transport between nodes that the collectives' core asks for: collective/tcp behind the table of collective.h. */
#ifndef RAYGO_NET_H
#define RAYGO_NET_H
#include "collective.h"
int raygo_net_open(const rgc_net_spec *spec, rgc_net *out, rgc_error *err);
int rga_forked(rgc_error *err);        /* 0, or EFORKED: this process is a forked child, which must not enter Go */
void rga_net_fork(int fd, int on);   /* a forked child is to close it; or no more */
#endif
