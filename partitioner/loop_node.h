/* A node of the branching around a device that owns the first stage and the last one: a range for where the first stage
 * ends and for the micro-batches it has in flight, and the ordinary problem that bounds the plans in it. */
#ifndef PARTITIONER_LOOP_NODE_H
#define PARTITIONER_LOOP_NODE_H

#include "partitioner/evidence.h"

typedef struct LoopFrame {
    const Problem *problem;
    int device;
    struct ProblemPin *own; /* the device's pins but those of the two ends, in layer order */
    int own_count;
} LoopFrame;

/* The name of a node's device 0, which no other device has. */
#define LOOP_FIRST_END ""

/* Cuts and counts are inclusive. */
typedef struct LoopNode {
    int low, high;                       /* where the first stage ends */
    int least_in_flight, most_in_flight; /* of the first stage */
    int pins_in_front;                   /* of the device's own pins: how many the first stage has */
    int64_t bound;
    int step; /* of the trail */
} LoopNode;

/* A node that was opened: its bound as far as it was found, and the prices that prove it. */
typedef struct LoopStep {
    LoopNode node;
    int parent; /* step; -1: none */
    bool split; /* into steps that follow, unless those are bounded by the node's own bound */
    Evidence evidence;
} LoopStep;

/* How a search went, for the certificate. Parents come before their children. */
typedef struct LoopTrail {
    LoopStep *steps;
    int count, capacity;
} LoopTrail;

/* What the frame needs is allocated in `arena`. */
void loop_open(LoopFrame *loop, const Problem *problem, int device, Arena *arena);

/* The chain between the two ends, in which device 0 is the first end, then come the others in their order, and the last
 * end: the first end takes the layers before node->low for nothing; the last end starts with their time, and without
 * the memory that the first one takes at least. `costs` and what `arena` gets must live as long as the problem. */
bool loop_create_node(const LoopFrame *loop, const LoopNode *node, Costs *costs, Arena *arena, Problem *problem);
int loop_device_here(const LoopFrame *loop, int there);
int loop_device_there(const LoopFrame *loop, int here);
/* A node's allocation as one of the problem: a first end and a last end without anything between them are one stage. */
void loop_translate(const LoopFrame *loop, const Allocation *from, Allocation *to);

void loop_trail_free(LoopTrail *trail);

#endif
