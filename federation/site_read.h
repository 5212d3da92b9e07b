/* One site in YAML: in federation.yaml, as a person or skycc federate wrote it, and in an amendment. */
#ifndef FEDERATION_SITE_READ_H
#define FEDERATION_SITE_READ_H

#include "base/yaml.h"
#include "federation/federation.h"

typedef enum SiteForm {
    SITE_WRITTEN,  /* by a person: with its cluster */
    SITE_COMPILED, /* by skycc federate: with what amendments have changed */
    SITE_ADDED,    /* in a signed amendment: neither */
    SITE_KEYED     /* name and key alone */
} SiteForm;

/* Texts are copied into the arena. Errors point into the file. *key becomes where the key is; NULL: nobody asks. */
bool site_read(const YamlFile *yaml, Arena *arena, YamlNode *node, SiteForm form, FederationSite *site, YamlNode **key);
/* A public key; NULL nodes are fine. */
bool site_key_read(const YamlFile *yaml, Arena *arena, YamlNode *node, const char *object, const char **key);

#endif
