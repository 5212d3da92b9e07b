/* A node of the branching around a device that owns the first stage and the last one: a range for where the first stage
 * ends and for the micro-batches it has in flight, and the ordinary problem that bounds the plans in it. */
#ifndef PARTITIONER_SOLVE_KEEPER_NODE_H
#define PARTITIONER_SOLVE_KEEPER_NODE_H

#include "partitioner/allocation.h"
#include "partitioner/solve/evidence.h"

typedef struct KeeperFrame {
    const Problem *problem;
    int device;
    ProblemPin *own; /* the device's pins but those of the two ends, in layer order */
    int own_count;
    const bool *recomputing; /* [a node's device], where the problem leaves that open: problem.h's; NULL: relaxed */
} KeeperFrame;

/* The name of a node's device 0, which no other device has. */
#define KEEPER_FIRST_END ""

/* Cuts and counts are inclusive. */
typedef struct KeeperNode {
    int low, high;                       /* where the first stage ends */
    int least_in_flight, most_in_flight; /* of the first stage */
    int pins_in_front;                   /* of the device's own pins: how many the first stage has */
    int64_t bound;
    int step; /* of the trail */
} KeeperNode;

/* A node that was opened: its bound as far as it was found, and the prices that prove it. */
typedef struct KeeperStep {
    KeeperNode node;
    int parent; /* step; -1: none */
    bool split; /* into steps that follow, unless those are bounded by the node's own bound */
    Evidence evidence;
} KeeperStep;

/* How a search went, for the certificate. Parents come before their children. */
typedef struct KeeperTrail {
    KeeperStep *steps;
    int count, capacity;
} KeeperTrail;

/* What the frame needs is allocated in `arena`. */
void keeper_open(KeeperFrame *frame, const Problem *problem, int device, Arena *arena);

/* Everything there is; and the part of it in which the first `front` of the device's own pins lie in its first stage,
 * the others in its last one. Parts may be empty (low > high). */
KeeperNode keeper_whole(const KeeperFrame *frame);
KeeperNode keeper_root(const KeeperFrame *frame, int front);
/* Parts the node's cuts, at `cut` where that leaves something on both sides, else its counts in flight. False: it is
 * one cut and one count. */
bool keeper_split(const KeeperNode *node, int cut, KeeperNode children[2]);

/* The chain between the two ends, in which device 0 is the first end, then come the others in their order, and the last
 * end: the first end takes the layers before node->low for nothing; the last end starts with their time, and without
 * the memory that the first one takes at least. `costs` and what `arena` gets must live as long as the problem. */
bool keeper_create_node(const KeeperFrame *frame, const KeeperNode *node, Costs *costs, Arena *arena, Problem *problem);
int keeper_device_here(const KeeperFrame *frame, int there);
int keeper_device_there(const KeeperFrame *frame, int here);
/* A node's allocation as one of the problem: a first end and a last end without anything between them are one stage. */
void keeper_translate(const KeeperFrame *frame, const Allocation *from, Allocation *to);

void keeper_trail_free(KeeperTrail *trail);

#endif
