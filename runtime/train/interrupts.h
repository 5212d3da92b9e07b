/* Signals that ask a run to save: it goes on after SIGUSR1, and ends after SIGTERM or the first SIGINT. Batch systems
 * and spot instances send them. A signal may reach one rank only, so ranks agree on the step after which they save. */
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
    bool writing; /* some rank's part of a checkpoint was not complete */
    int end;      /* SIGTERM, SIGINT, or 0: training goes on */
    int site;     /* the first that asked; -1: unknown, or there is one alone */
} InterruptChoice;

/* In the process that works. While *step is 0 there is nothing to save, and a signal ends the run at once. So does the
 * second SIGINT at any time (exit code 128 + SIGINT). `step` outlives the process. */
void interrupts_catch(const volatile int64_t *step);
/* From here on signals change nothing. */
void interrupts_ignore(void);

/* Collective, as are agree, tell and close. */
void interrupts_open(Interrupts *interrupts, World *world);
/* After a step: what was asked for before the previous step ended. The agreement had a step's time, so nobody waits. */
InterruptChoice interrupts_agree(Interrupts *interrupts);
/* After a checkpoint: what signals asked for so far is done. Call it between agree and the next step. */
void interrupts_saved(void);
/* Posts this rank's part of the next agreement; `writing`: its part of a checkpoint is not complete. */
void interrupts_tell(Interrupts *interrupts, bool writing);
void interrupts_close(Interrupts *interrupts);

#endif
