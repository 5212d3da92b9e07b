/* Before training: all ranks run the programs of one plan, and their links work. */
#ifndef RUNTIME_HANDSHAKE_H
#define RUNTIME_HANDSHAKE_H

#include "runtime/world.h"

/* Collective. On every rank the same findings: how many ranks there are, whether a program runs twice, which rank
 * carries another plan or model than rank 0. Reports with EXIT_RUN_FAILED. */
bool handshake(World *world, const SkyProgram *program, Diagnostics *diagnostics);

/* Sends a large message over every link between consecutive stages, both ways: the first one needs the sender's help,
 * which must not be asked for in the middle of a step. Collective. */
void handshake_warm_up(World *world, const SkyProgram *program);

#endif
