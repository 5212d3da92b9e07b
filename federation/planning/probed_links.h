/* The links of a federation as `skycc probe --site` measured them. */
#ifndef FEDERATION_PLANNING_PROBED_LINKS_H
#define FEDERATION_PLANNING_PROBED_LINKS_H

#include "federation/federation.h"

/* What the file at `profile` says of sites with each other and with `coordinator`, by these names, takes the place of
 * what federation.yaml says; NULL: nothing does. Errors: a file that is none, or that names no such link
 * (EXIT_BAD_INPUT). */
bool probed_links_take(Federation *federation, const char *profile, Diagnostics *diagnostics);

#endif
