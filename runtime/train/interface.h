/* Which of this host's network interfaces MPI is to use. */
#ifndef RUNTIME_TRAIN_INTERFACE_H
#define RUNTIME_TRAIN_INTERFACE_H

#include "base/diagnostics.h"

/* Where SKYCC_SUBNET names an IPv4 subnet, as ADDRESS/BITS, UCX is told the interface that is in it (unless
 * UCX_NET_DEVICES names one). Before MPI_Init. An error: this host is in no such subnet. */
bool interface_choose(Diagnostics *diagnostics);

#endif
