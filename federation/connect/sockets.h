/* What both ends of a federation's connection set. */
#ifndef FEDERATION_CONNECT_SOCKETS_H
#define FEDERATION_CONNECT_SOCKETS_H

#include <stdint.h>

#include "runtime/wire/sockets.h"

/* No heartbeats: a site asks again anyway, and after a large update they would come too late. `largest`: of what comes
 * in; -1: any size. */
void federation_socket_options(void *socket, int64_t largest);

#endif
