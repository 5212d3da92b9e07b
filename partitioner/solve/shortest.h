/* Shortest paths of a relaxation: the one question that every bound asks. The way to the answer (stages listed as arcs,
 * stretched as far as they go, in lanes, from queues) is chosen here, and changes nothing about it. */
#ifndef PARTITIONER_SOLVE_SHORTEST_H
#define PARTITIONER_SOLVE_SHORTEST_H

#include "partitioner/solve/relaxation.h"

typedef struct Path {
    int stage_count;
    int *class_used, *end; /* first stage first; frozen stages are left out */
    double cost;           /* without prices */
} Path;

/* The cost of the shortest path under the prices (one per class, integers); infinity if no chain exists at all, or if
 * the relaxation is late. Leaves
 * potentials and choices in the relaxation. */
double shortest_solve(Relaxation *relaxation, const double *price);
/* The path that the last shortest_solve found. The arrays have room for layer_count stages. */
void shortest_path(const Relaxation *relaxation, Path *path);

/* The path as an allocation, the devices of each class in ascending order. False if some class has not enough of them:
 * then the path is no plan, and the allocation holds nothing of use. */
bool shortest_allocation(const Relaxation *relaxation, const Path *path, Allocation *allocation);

#endif
