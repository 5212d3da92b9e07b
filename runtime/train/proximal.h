/* What keeps the local steps of a federation's site near its round's start: gradients get X times the way that
 * parameters have come from there (FedProx: Li et al., "Federated optimization in heterogeneous networks", MLSys 2020,
 * whose mu is X). It is a part of the gradient: clipping and the optimiser see it. */
#ifndef RUNTIME_TRAIN_PROXIMAL_H
#define RUNTIME_TRAIN_PROXIMAL_H

#include "runtime/device/execute.h"
#include "runtime/program/memory.h"

typedef struct Proximal {
    const Execution *execution;
    double strength;    /* 0: there is none */
    MemoryRegion start; /* the trained parameters of all stages, one after the other */
} Proximal;

/* Reads the start from the safetensors file `path`, by name. `strength` 0: does nothing. Close it in any case. */
bool proximal_open(Proximal *proximal, const Execution *execution, double strength, const char *path,
                   Diagnostics *diagnostics);
void proximal_close(Proximal *proximal);
/* After gradients are summed, before their norm is taken. */
void proximal_add(Proximal *proximal);

#endif
