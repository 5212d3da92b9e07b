/* Signals that ask a run to save: after SIGUSR1 it goes on, after SIGTERM and the first SIGINT it ends. Batch systems
 * and spot instances give notice so. A signal may reach one rank before another, or one only: ranks agree on the step
 * after which they save. */
#ifndef RUNTIME_TRAIN_INTERRUPTS_H
#define RUNTIME_TRAIN_INTERRUPTS_H

#include "runtime/train/world.h"

typedef struct Interrupts {
    World *world;
    uint32_t asked; /* of all ranks, when `pending` is 0 */
    int pending;    /* the agreement under way */
} Interrupts;

/* What was agreed on. */
typedef struct InterruptChoice {
    bool save;
    int end;  /* SIGTERM, SIGINT, or 0: training goes on */
    int site; /* the first that asked; -1: unknown, or there is one alone */
} InterruptChoice;

/* In the process that works. While *step is 0 there is nothing to save: signals that end a run end it at once. So does
 * the second SIGINT in any case, with 128 + SIGINT as exit code. `step` outlives the process. */
void interrupts_catch(const volatile int64_t *step);
/* From here on signals change nothing. */
void interrupts_ignore(void);

/* Collective, as are agree, tell and close. */
void interrupts_open(Interrupts *interrupts, World *world);
/* After a step: what was asked for before the end of the step before it. The answer had a step's time to come, so that
 * nobody waits for it. */
InterruptChoice interrupts_agree(Interrupts *interrupts);
/* After a checkpoint, which is what signals that came until now asked for; between agree and the next step. */
void interrupts_saved(void);
/* Posts this rank's part of the next agreement. */
void interrupts_tell(Interrupts *interrupts);
void interrupts_close(Interrupts *interrupts);

#endif
