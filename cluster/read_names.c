/* Names in a cluster file: what they may consist of, and that each names one thing. */
#include <stdlib.h>
#include <string.h>

#include "base/order.h"
#include "cluster/reader.h"

static bool is_plain_name(const char *text, const char *also)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    if (!strchr(letters, *text) || strlen(text) > 200) return false;
    for (; *text; text++)
        if (!strchr(letters, *text) && !strchr(also, *text)) return false;
    return true;
}

bool cluster_read_text(ClusterReader *reader, YamlNode *node, const char *object, const char *what, const char *also,
                       const char **value)
{
    const char *text;
    if (!yaml_text(&reader->yaml, node, object, what, &text)) return false;
    if (also && !is_plain_name(text, also))
        return yaml_error(&reader->yaml, node, object, NULL,
                          "%s '%s' may have letters, digits and any of \"%s\", a letter or digit first", what, text,
                          also);
    *value = arena_string(&reader->cluster->arena, text);
    return true;
}

void cluster_add_name(ClusterReader *reader, const char *name, ClusterLevel level, int id, YamlNode *node)
{
    ClusterName entry = {name, level, id, node};
    array_push(reader->names, reader->name_count, reader->name_capacity, entry);
}

static int by_name(const void *a, const void *b)
{
    const ClusterName *left = a, *right = b;
    int order = strcmp(left->name, right->name);
    if (order) return order;
    if (left->node->start_mark.index != right->node->start_mark.index)
        return left->node->start_mark.index < right->node->start_mark.index ? -1 : 1;
    return left->id - right->id;
}

bool cluster_sort_names(ClusterReader *reader)
{
    bool ok = true;
    size_t kept = 0;
    int regions = 0;
    if (reader->name_count) qsort(reader->names, reader->name_count, sizeof *reader->names, by_name);
    for (size_t i = 0; i < reader->name_count; i++) {
        ClusterName *name = &reader->names[i], *former = kept ? &reader->names[kept - 1] : NULL;
        bool repeated = former && strcmp(former->name, name->name) == 0;
        if (repeated && former->level == CLUSTER_REGION && name->level == CLUSTER_REGION) {
            reader->entry_region[name->id] = former->id;
        } else if (repeated && former->level == CLUSTER_SITE) {
            ok = yaml_error(
                &reader->yaml, name->node, NULL,
                name->level == CLUSTER_REGION ? "devices of a site need no region: links may name the site" : NULL,
                "'%s' names both a site and a %s", name->name, name->level == CLUSTER_REGION ? "region" : "device");
        } else if (repeated) {
            bool both = former->level == CLUSTER_REGION || name->level == CLUSTER_REGION;
            ok = yaml_error(&reader->yaml, name->node, NULL, NULL,
                            both ? "'%s' names both a region and a device" : "two devices are named '%s'", name->name);
        } else {
            if (name->level == CLUSTER_REGION) {
                reader->entry_region[name->id] = regions;
                name->id = regions++;
            }
            reader->names[kept++] = *name;
        }
    }
    reader->name_count = kept;
    return ok;
}

const ClusterName *cluster_find_name(const ClusterReader *reader, const char *name)
{
    if (!reader->name_count) return NULL;
    return bsearch(&name, reader->names, reader->name_count, sizeof *reader->names, order_texts);
}
