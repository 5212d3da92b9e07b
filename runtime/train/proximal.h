/* What a federation adds to the local steps of its sites. Both go by where the round began.
 *
 * FedProx (Li et al., "Federated optimization in heterogeneous networks", MLSys 2020, whose mu is X): gradients get X
 * times the way that parameters have come from there. It is a part of the gradient: clipping and the optimiser see it.
 * SCAFFOLD: parameters go back by the learning rate times how the federation's control variate differs from the site's
 * own (federation/member/control_variates.h), in every step that updates them. */
#ifndef RUNTIME_TRAIN_PROXIMAL_H
#define RUNTIME_TRAIN_PROXIMAL_H

#include "runtime/device/execute.h"
#include "runtime/program/memory.h"

typedef struct ProximalFiles {
    const char *start;   /* NAME, and control/NAME where there are variates; NULL: nothing is added */
    const char *control; /* NAME of the site's own; NULL: there are none */
} ProximalFiles;

typedef struct Proximal {
    const Execution *execution;
    double strength;             /* 0: FedProx is not used */
    bool corrects;               /* there are control variates */
    MemoryRegion start, control; /* of the trained parameters of all stages, one after the other; the variates' is the
                                    federation's minus the site's */
} Proximal;

/* Reads safetensors files by name. Close it in any case. */
bool proximal_open(Proximal *proximal, const Execution *execution, double strength, const ProximalFiles *files,
                   Diagnostics *diagnostics);
void proximal_close(Proximal *proximal);
/* Whether steps have to be finished by both of these. */
static inline bool proximal_needs_work(const Proximal *proximal)
{
    return proximal->strength > 0 || proximal->corrects;
}
/* After gradients are summed, before their norm is taken. */
void proximal_add(Proximal *proximal);
/* Before the update of a step of this learning rate. */
void proximal_correct(Proximal *proximal, double learning_rate);

#endif
