/* Ways to divide the sites of a federation into replicas: a site each, groups, or all together.
 *
 * Of up to GROUPINGS_OF_ALL sites all ways are considered in which the sites of every group are joined by links. Of
 * more, those that links suggest: sites that are joined by a link that is at least so fast, directly or over others,
 * are a group, for every speed of a link; of many speeds those between which the links differ most. */
#ifndef FEDERATION_PLANNING_GROUPINGS_H
#define FEDERATION_PLANNING_GROUPINGS_H

#include <stdbool.h>

enum { GROUPINGS_OF_ALL = 4, MOST_GROUPINGS = 15 /* the fifth Bell number; of more sites at most so many, too */ };

typedef struct Grouping {
    int *group; /* of every site, numbered by their first sites; malloc'ed */
    int count;
} Grouping;

typedef struct Groupings {
    Grouping items[MOST_GROUPINGS];
    int count;      /* from a replica per site to, where links allow it, one over all */
    bool all_tried; /* no other has groups that links join */
    int left_out;   /* speeds of links that were not considered */
} Groupings;

/* seconds[a * sites + b]: what one and the same message takes between two sites; INFINITY: no link joins them.
 * Symmetric. */
void groupings_make(Groupings *groupings, int sites, const double *seconds);
void groupings_free(Groupings *groupings);
/* The group, of those `allowed` (NULL: all), that is joined with `group` by the fastest link; -1: none is. */
int grouping_nearest(const Grouping *grouping, int sites, const double *seconds, int group, const bool *allowed);
/* Makes both groups one. */
void grouping_merge(Grouping *grouping, int sites, int group, int other);
Grouping grouping_copy(const Grouping *grouping, int sites);
bool grouping_equal(const Grouping *a, const Grouping *b, int sites);

#endif
