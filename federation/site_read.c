#include "federation/site_read.h"

#include <string.h>

#include "runtime/wire/keys.h"

enum { MOST_NAME = 64 };
#define MOST_COUNT ((int64_t)1 << 40)
#define MOST_ROWS_PER_STEP ((int64_t)1 << 24)

static bool is_plain(const char *text)
{
    static const char plain[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ._-";
    return strspn(text, plain) == strlen(text) && *text != '.' && *text != '-' && strlen(text) <= MOST_NAME;
}

static bool read_text(const YamlFile *yaml, Arena *arena, YamlNode *node, const char *object, const char *what,
                      const char **text)
{
    if (!node) return true;
    if (!yaml_text(yaml, node, object, what, text)) return false;
    *text = arena_string(arena, *text);
    return true;
}

bool site_key_read(const YamlFile *yaml, Arena *arena, YamlNode *node, const char *object, const char **key)
{
    if (!node) return true;
    if (!read_text(yaml, arena, node, object, "key", key)) return false;
    return wire_key_is_valid(*key) || yaml_error(yaml, node, object, "skycc key NAME makes one; put quotes around it",
                                                 "key must be a public key of %d characters in Z85", WIRE_KEY_TEXT);
}

static bool read_flag(const YamlFile *yaml, YamlNode *node, const char *object, const char *what, bool *value)
{
    const char *text;
    if (!node) return true;
    if (!yaml_text(yaml, node, object, what, &text)) return false;
    *value = strcmp(text, "true") == 0;
    return *value || strcmp(text, "false") == 0 ||
           yaml_error(yaml, node, NULL, NULL, "%s is false or true, not '%s'", what, text);
}

static bool read_count(const YamlFile *yaml, YamlNode *node, const char *object, const char *what, int64_t most,
                       int64_t *value)
{
    return !node || yaml_integer(yaml, node, object, what, 1, most, value);
}

bool site_read(const YamlFile *yaml, Arena *arena, YamlNode *node, SiteForm form, FederationSite *site, YamlNode **key)
{
    enum {
        NAME,
        KEY,
        KEYED,
        ROWS = KEYED,
        OPTIONS,
        ADDED,
        CLUSTER = ADDED,
        WRITTEN,
        JOINED = ADDED,
        LEFT,
        REKEYED,
        FORMER,
        COMPILED
    };
    static const size_t counts[] = {WRITTEN, COMPILED, ADDED, KEYED};
    bool is_compiled = form == SITE_COMPILED;
    YamlMember members[COMPILED] = {[NAME] = {"name", true, NULL},
                                    [KEY] = {"key", true, NULL},
                                    [ROWS] = {"rows_per_step", form != SITE_WRITTEN, NULL},
                                    [OPTIONS] = {"own_options", false, NULL},
                                    [ADDED] = {is_compiled ? "joined" : "cluster", !is_compiled, NULL},
                                    [LEFT] = {"left", false, NULL},
                                    [REKEYED] = {"rekeyed", false, NULL},
                                    [FORMER] = {"former_key", false, NULL}};
    const char *object = "site";
    bool ok = yaml_members(yaml, node, object, members, counts[form]);
    if (key) *key = members[KEY].value;
    ok &= read_text(yaml, arena, members[NAME].value, object, "name", &site->name);
    if (site->name) object = arena_format(arena, "site '%s'", site->name);
    if (site->name && (!is_plain(site->name) || strcmp(site->name, "coordinator") == 0))
        ok = yaml_error(yaml, members[NAME].value, NULL, NULL,
                        "the name of a site is a plain word of at most %d characters, and not coordinator", MOST_NAME);
    ok &= site_key_read(yaml, arena, members[KEY].value, object, &site->key);
    ok &= read_count(yaml, members[ROWS].value, object, "rows_per_step", MOST_ROWS_PER_STEP, &site->rows_per_step);
    ok &= read_flag(yaml, members[OPTIONS].value, object, "own_options", &site->own_options);
    if (!is_compiled) return read_text(yaml, arena, members[CLUSTER].value, object, "cluster", &site->cluster) && ok;
    ok &= read_count(yaml, members[JOINED].value, object, "joined", MOST_COUNT, &site->joined);
    ok &= read_count(yaml, members[LEFT].value, object, "left", MOST_COUNT, &site->left);
    ok &= read_count(yaml, members[REKEYED].value, object, "rekeyed", MOST_COUNT, &site->rekeyed);
    return site_key_read(yaml, arena, members[FORMER].value, object, &site->former_key) && ok;
}
