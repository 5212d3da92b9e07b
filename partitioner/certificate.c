#include "partitioner/certificate.h"

enum { MAX_NODES = 1 << 22 };

static void add_node(JsonWriter *json, const CertificateNode *node, int price_count)
{
    json_open(json, NULL, '{');
    if (node->leaf) {
        json_add_integer(json, "path", node->path);
        json_add_integer(json, "total", node->total);
        json_add_integers(json, "prices", node->price, (size_t)price_count);
    } else {
        bool region = node->kind == CERTIFICATE_REGION;
        json_add_integer(json, region ? "region" : "cut", region ? node->region : node->cut);
        if (node->kind == CERTIFICATE_DEVICE) json_add_string(json, "device", node->device);
        json_add_integer(json, "yes", node->yes);
        json_add_integer(json, "no", node->no);
    }
    json_close(json, '}');
}

static void open_list(JsonWriter *json, const char *key) { json_open(json_break(json, "\n  "), key, '['); }

void certificate_print(const Certificate *c, JsonWriter *json)
{
    if (!c) {
        json_add_null(json, "certificate");
        return;
    }
    json_open(json, "certificate", '{');
    json_add_integer(json, "bound_ns", c->bound_ns);
    if (c->branch_count > 0) {
        open_list(json, "branches");
        for (int i = 0; i < c->branch_count; i++) {
            const CertificateBranch *b = &c->branches[i];
            json_add_integers(json, NULL,
                              (int64_t[]){b->end_low, b->end_high, b->flights_low, b->flights_high, b->interval_count},
                              5);
        }
        json_close(json, ']');
    }
    open_list(json, "intervals");
    for (int i = 0; i < c->interval_count; i++) {
        const CertificateInterval *n = &c->intervals[i];
        json_add_integers(json, NULL, (int64_t[]){n->low, n->high, n->root, n->update_low, n->update_high}, 5);
    }
    json_close(json, ']');
    open_list(json, "nodes");
    for (int i = 0; i < c->node_count; i++) add_node(json_break(json, "\n   "), &c->nodes[i], c->price_count);
    json_close(json, ']');
    json_close(json, '}');
}

static bool read_leaf(CertificateNode *node, const json_t *object, const char *path, int price_count, Arena *arena,
                      JsonReader reader)
{
    json_t *prices;
    node->leaf = true;
    if (!json_get_array(reader, object, path, "prices", &prices) ||
        !json_get_integer(reader, object, path, "path", &node->path) ||
        !json_get_integer(reader, object, path, "total", &node->total))
        return false;
    if (json_array_size(prices) != (size_t)price_count)
        return json_refuse(reader, path, "every leaf must price every device");
    node->price = arena_new_array(arena, int64_t, (size_t)price_count);
    for (int d = 0; d < price_count; d++) {
        const json_t *price = json_array_get(prices, (size_t)d);
        if (!json_is_integer(price) || json_integer_value(price) < 0)
            return json_refuse(reader, path, "prices must be integers >= 0");
        node->price[d] = json_integer_value(price);
    }
    return true;
}

/* Children come after their parent, so there is no cycle. */
static bool read_split(CertificateNode *node, const json_t *object, const char *path, int index, int count,
                       Arena *arena, JsonReader reader)
{
    int64_t cut = -1, region = -1, yes, no;
    if (!json_optional_integer(reader, object, path, "cut", &cut) ||
        !json_optional_integer(reader, object, path, "region", &region) ||
        !json_get_integer(reader, object, path, "yes", &yes) || !json_get_integer(reader, object, path, "no", &no) ||
        !json_optional_string(reader, object, path, "device", &node->device))
        return false;
    bool by_region = region >= 0 && region < COSTS_MAX_REGIONS && cut < 0 && !node->device;
    bool by_cut = cut >= 0 && cut <= COSTS_MAX_LAYERS && region < 0;
    if ((!by_region && !by_cut) || yes <= index || no <= index || yes >= count || no >= count)
        return json_refuse(reader, path, "a split names a cut or a region, and two later nodes");
    if (node->device) node->device = arena_string(arena, node->device);
    node->kind = by_region ? CERTIFICATE_REGION : node->device ? CERTIFICATE_DEVICE : CERTIFICATE_CUT;
    node->cut = (int)cut;
    node->region = (int)region;
    node->yes = (int)yes;
    node->no = (int)no;
    return true;
}

static bool read_five(int64_t number[static 5], const json_t *array, const char *path, const char *form,
                      JsonReader reader)
{
    for (size_t i = 0; i < 5; i++) {
        const json_t *item = json_array_get(array, i);
        if (json_array_size(array) != 5 || !json_is_integer(item)) return json_refuse(reader, path, form);
        number[i] = json_integer_value(item);
    }
    return true;
}

static bool read_interval(CertificateInterval *interval, const json_t *array, int node_count, JsonReader reader)
{
    static const char *const path = "certificate.intervals", *const form =
                                                                 "must be [low, high, node, updates low, high]";
    int64_t number[5] = {0};
    if (!read_five(number, array, path, form, reader)) return false;
    if (number[0] < 0 || number[1] < number[0] || number[2] < 0 || number[2] >= node_count || number[3] < -1 ||
        number[4] < number[3])
        return json_refuse(reader, path, form);
    *interval = (CertificateInterval){number[0], number[1], (int)number[2], number[3], number[4]};
    return true;
}

static bool read_branches(Certificate *c, const json_t *object, Arena *arena, JsonReader reader)
{
    static const char *const path = "certificate.branches", *const form =
                                                                "must be [end low, high, flights low, high, intervals]";
    const json_t *branches = json_object_get(object, "branches");
    int64_t intervals = 0;
    if (!branches) return true;
    if (!json_is_array(branches) || json_array_size(branches) > MAX_NODES) return json_refuse(reader, path, form);
    c->branch_count = (int)json_array_size(branches);
    c->branches = arena_new_array(arena, CertificateBranch, (size_t)c->branch_count);
    for (int i = 0; i < c->branch_count; i++) {
        int64_t number[5];
        if (!read_five(number, json_array_get(branches, (size_t)i), path, form, reader)) return false;
        for (int k = 0; k < 5; k++)
            if (number[k] < 1 || number[k] > MAX_NODES) return json_refuse(reader, path, form);
        c->branches[i] =
            (CertificateBranch){(int)number[0], (int)number[1], (int)number[2], (int)number[3], (int)number[4]};
        intervals += number[4];
    }
    return intervals == c->interval_count || json_refuse(reader, path, "do not share out the intervals");
}

bool certificate_read(Certificate *c, const json_t *object, Arena *arena, JsonReader reader)
{
    json_t *intervals, *nodes;
    if (!json_get_integer(reader, object, "certificate", "bound_ns", &c->bound_ns) ||
        !json_get_array(reader, object, "certificate", "intervals", &intervals) ||
        !json_get_array(reader, object, "certificate", "nodes", &nodes))
        return false;
    if (json_array_size(intervals) > MAX_NODES || json_array_size(nodes) > MAX_NODES)
        return json_refuse(reader, "certificate", "is too large");
    c->interval_count = (int)json_array_size(intervals);
    c->node_count = (int)json_array_size(nodes);
    c->intervals = arena_new_array(arena, CertificateInterval, (size_t)c->interval_count);
    c->nodes = arena_new_array(arena, CertificateNode, (size_t)c->node_count);
    for (int i = 0; i < c->interval_count; i++)
        if (!read_interval(&c->intervals[i], json_array_get(intervals, (size_t)i), c->node_count, reader)) return false;
    if (!read_branches(c, object, arena, reader)) return false;
    c->price_count = -1;
    for (int i = 0; i < c->node_count; i++) {
        const json_t *node = json_array_get(nodes, (size_t)i);
        const char *path = arena_format(arena, "certificate.nodes[%d]", i);
        if (!json_is_object(node)) return json_refuse(reader, path, "must be an object");
        if (!json_object_get(node, "prices")) {
            if (!read_split(&c->nodes[i], node, path, i, c->node_count, arena, reader)) return false;
            continue;
        }
        if (c->price_count < 0) c->price_count = (int)json_array_size(json_object_get(node, "prices"));
        if (!read_leaf(&c->nodes[i], node, path, c->price_count, arena, reader)) return false;
    }
    if (c->price_count < 0) c->price_count = 0;
    return true;
}
