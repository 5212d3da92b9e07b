/* Sizes at which the planner goes about a problem differently: all of them, so that who wonders why a problem twice as
 * large is treated otherwise has one place to look. Each was chosen by measuring on both sides; a factor of two changes
 * little, but every one of them changes which plan comes out. */
#ifndef PARTITIONER_SIZES_H
#define PARTITIONER_SIZES_H

#include "partitioner/problem.h"

/* Layers x devices: about what a shortest path looks at, and so what every question costs. */
static inline int64_t size_of(const Problem *problem) { return (int64_t)problem->layer_count * problem->device_count; }

/* The optimum is found at once: questions that are asked by the dozen get exact answers. */
static inline bool size_is_tiny(const Problem *problem)
{
    return problem->device_count <= 5 && size_of(problem) <= 100;
}

/* Restricted questions, a device or a region less, are quick enough to be asked along with the whole one. */
static inline bool size_has_few_devices(const Problem *problem)
{
    return problem->device_count <= 8 && size_of(problem) <= 400;
}

/* Where memory depends on the stages that follow, paths remember their number: above this size one neighbourhood alone
 * takes a tenth of a second. */
static inline bool size_has_quick_levels(const Problem *problem) { return size_of(problem) <= 2000; }

/* A wide search over all of the problem finds what neighbourhoods would, and ends with a proof. */
static inline bool size_is_small(const Problem *problem) { return size_of(problem) <= 3000; }

/* Trees certify more of a step than prices alone do; above this size they rarely do in the time there is. */
static inline bool size_has_trees(const Problem *problem) { return size_of(problem) <= 5000; }

/* The heuristic allocator from scratch is quick enough for questions that are asked by the dozen. */
static inline bool size_has_heuristic(const Problem *problem) { return size_of(problem) <= 20000; }

/* One question about the whole problem takes a noticeable time: searching or branching over all of it is not worth
 * that, and is left to neighbourhoods and to the devices that prices say are worth having. */
static inline bool size_is_large(const Problem *problem) { return size_of(problem) > 50000; }

enum {
    /* Classes of devices. From the first number on the simplex is given a better start, from the second on it would
     * stall: prices are then not exact, and there is no basis to keep. */
    SIZE_MANY_CLASSES = 100,
    SIZE_TOO_MANY_CLASSES = 200,
    /* Eight classes at a time are quicker than a queue for each, if there are enough to fill most lanes, and if a
     * window holds no more starts than this on average. */
    SIZE_LANE_CLASSES = 16,
    SIZE_LANE_WINDOW = 64,
    /* Elementary steps of a trial split (relaxation_work): below, starting threads costs more than they bring. */
    SIZE_WORTH_THREADS = 1000000,
    /* Widths of searches over arcs may grow until a cut has this many arcs to extend in all: milliseconds. */
    SIZE_SEARCH_ARCS = 100000,
    /* Pairs of a start and an end of stages that a search looks at for each of its partial plans. With more, it leaves
     * out starts, unless the problem is small, but not so many that an end has fewer starts than this. */
    SIZE_SEARCH_STARTS = 2000000, /* where the search may prove something */
    SIZE_ROUGH_STARTS = 500000,
    SIZE_SEARCH_WINDOW = 64,
    /* Layers x devices x choices of which devices recompute: up to so many, all choices are tried. */
    SIZE_RECOMPUTE_CHOICES = 30000,
    /* Certificates: the nodes of a tree where a shorter interval would do with fewer; and the nodes and intervals of a
     * whole certificate, as a plan should stay a file that is read and checked in seconds. */
    SIZE_TREE_NODES = 200,
    SIZE_CERTIFICATE_NODES = 20000,
    SIZE_CERTIFICATE_INTERVALS = 50000
};

#endif
