/* Who may connect: the handler that libzmq asks, within one context, about every CURVE handshake
 * (https://rfc.zeromq.org/spec/27). Only pinned keys are let in; of whom is let in libzmq attaches the number of the
 * site to every message ("User-Id"), so that nobody speaks for another one. */
#ifndef RUNTIME_WIRE_ZAP_H
#define RUNTIME_WIRE_ZAP_H

#include "runtime/wire/site_file.h"

#define WIRE_ZAP_SITES "sites" /* domain: all sites but this one */
#define WIRE_ZAP_RANKS "ranks" /* domain: this site itself */

/* To be opened before any socket is guarded. NULL: somebody else handles this context. Close it with zmq_close. */
void *wire_zap_open(void *context);
/* Answers what was asked; without waiting. */
void wire_zap_answer(void *zap, const WireSiteFile *file);

#endif
