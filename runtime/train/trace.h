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

typedef struct Trace {
    bool enabled;
    TraceEvent *events;
    size_t count, capacity;
} Trace;

void trace_record(Trace *trace, double begin, double end, int64_t step, const SkyInstruction *instruction);
/* The same of something that no single stage does, from `begin` until now, which it returns. */
double trace_record_rank(Trace *trace, double begin, const World *world, const SkyProgram *program, uint32_t op);

/* Collective: rank 0 gathers all events, brings their clocks together and writes `path`. */
bool trace_write(const Trace *trace, World *world, const char *path, Diagnostics *diagnostics);
void trace_free(Trace *trace);

#endif
