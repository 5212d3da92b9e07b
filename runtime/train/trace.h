/* What a rank did when, for chrome://tracing and Perfetto: one process per rank, one thread per stage. */
#ifndef RUNTIME_TRAIN_TRACE_H
#define RUNTIME_TRAIN_TRACE_H

#include "runtime/train/world.h"

/* What a rank does in addition to its instructions, as their ops. */
enum {
    TRACE_NORM = SKY_OP_COUNT, /* squares of gradients */
    TRACE_AGREEMENT            /* waiting for those of other ranks */
};

typedef struct TraceEvent {
    double begin, end; /* monotonic_seconds() */
    uint32_t step;
    SkyInstruction instruction;
} TraceEvent;

/* A step, from its beginning to that of the next, and where it went. */
typedef struct TraceStep {
    int64_t step;
    StepClock clock; /* `since`: its end */
} TraceStep;

typedef struct Trace {
    bool enabled;
    size_t most; /* events and steps together; 0: as many as usual */
    TraceEvent *events;
    size_t count, capacity;
    TraceStep *steps;
    size_t step_count, step_capacity;
    int64_t full_at; /* the step of the first event that was left out; 0: none was */
} Trace;

void trace_record(Trace *trace, double begin, double end, int64_t step, const SkyInstruction *instruction);
/* The same of something that no single stage does, from `begin` until now, which it returns. */
double trace_record_rank(Trace *trace, double begin, const World *world, const SkyProgram *program, uint32_t op);
/* The step that ends now, after its last part was set. */
void trace_step(Trace *trace, const StepClock *clock, int64_t step);

/* Collective: rank 0 gathers all events, brings their clocks together and writes `path`. `stage`: the first of
 * this rank, next to whose events those of the rank stand. A rank whose trace became full
 * says so in it and on standard error. */
bool trace_write(const Trace *trace, World *world, uint32_t stage, const char *path, Diagnostics *diagnostics);
void trace_free(Trace *trace);

#endif
