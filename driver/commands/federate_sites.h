/* The folder of a federation's site: what `skycc federate` makes for all sites, and `--amend` for those that join. */
#ifndef DRIVER_COMMANDS_FEDERATE_SITES_H
#define DRIVER_COMMANDS_FEDERATE_SITES_H

#include "base/directory.h"
#include "driver/federate/federation_start.h"
#include "driver/options/options.h"

#define OWNER_KEY "owner.key"

typedef struct Federate {
    const Options *options;
    Arena arena;
    Federation federation;
    FederationStart start;
    OutputDirectory directory;
} Federate;

/* What all start from, by the devices of the site `like`; fills federation.compiled. */
bool federate_make_start(Federate *federate, int like, Diagnostics *diagnostics);
/* Programs for a site's devices, in its directory. */
bool federate_compile_site(Federate *federate, int site, const char *directory, Diagnostics *diagnostics);
/* federation.yaml of the site (-1: the coordinator's), and the model under that name. */
bool federate_write_common(Federate *federate, const char *directory, int site, const char *model,
                           Diagnostics *diagnostics);
/* What a site has besides programs. */
bool federate_finish_site(Federate *federate, int site, const char *directory, Diagnostics *diagnostics);

#endif
