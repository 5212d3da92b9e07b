#include "partitioner/certificate.h"

enum { MAX_NODES = 1 << 22 };

static void print_leaf(Buffer *buffer, const CertificateNode *node, int price_count)
{
    buffer_print(buffer, "{\"path\":%lld,\"total\":%lld,\"prices\":[", (long long)node->path, (long long)node->total);
    for (int d = 0; d < price_count; d++) buffer_print(buffer, "%s%lld", d ? "," : "", (long long)node->price[d]);
    buffer_print(buffer, "]}");
}

static void print_split(Buffer *buffer, const CertificateNode *node)
{
    if (node->kind == CERTIFICATE_REGION)
        buffer_print(buffer, "{\"region\":%d", node->region);
    else
        buffer_print(buffer, "{\"cut\":%d", node->cut);
    if (node->kind == CERTIFICATE_DEVICE) {
        buffer_print(buffer, ",\"device\":");
        json_print_string(buffer, node->device);
    }
    buffer_print(buffer, ",\"yes\":%d,\"no\":%d}", node->yes, node->no);
}

void certificate_print(const Certificate *c, Buffer *buffer)
{
    buffer_print(buffer, "{\"bound_ns\":%lld,\n", (long long)c->bound_ns);
    for (int i = 0; i < c->branch_count; i++) {
        const CertificateBranch *b = &c->branches[i];
        buffer_print(buffer, "%s[%d,%d,%d,%d,%d]%s", i ? "," : "  \"branches\":[", b->end_low, b->end_high,
                     b->flights_low, b->flights_high, b->interval_count, i + 1 == c->branch_count ? "],\n" : "");
    }
    buffer_print(buffer, "  \"intervals\":[");
    for (int i = 0; i < c->interval_count; i++)
        buffer_print(buffer, "%s[%lld,%lld,%d,%lld,%lld]", i ? "," : "", (long long)c->intervals[i].low,
                     (long long)c->intervals[i].high, c->intervals[i].root, (long long)c->intervals[i].update_low,
                     (long long)c->intervals[i].update_high);
    buffer_print(buffer, "],\n  \"nodes\":[");
    for (int i = 0; i < c->node_count; i++) {
        buffer_print(buffer, i ? ",\n   " : "\n   ");
        if (c->nodes[i].leaf)
            print_leaf(buffer, &c->nodes[i], c->price_count);
        else
            print_split(buffer, &c->nodes[i]);
    }
    buffer_print(buffer, "]}");
}

static bool refuse(JsonReader reader, const char *path, const char *reason)
{
    return diagnostics_error(reader.diagnostics, EXIT_BAD_INPUT, (Place){.file = reader.file, .object = path}, NULL,
                             "%s", reason);
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
        return refuse(reader, path, "every leaf must price every device");
    node->price = arena_new_array(arena, int64_t, (size_t)price_count);
    for (int d = 0; d < price_count; d++) {
        const json_t *price = json_array_get(prices, (size_t)d);
        if (!json_is_integer(price) || json_integer_value(price) < 0)
            return refuse(reader, path, "prices must be integers >= 0");
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
        return refuse(reader, path, "a split names a cut or a region, and two later nodes");
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
        if (json_array_size(array) != 5 || !json_is_integer(item)) return refuse(reader, path, form);
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
        return refuse(reader, path, form);
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
    if (!json_is_array(branches) || json_array_size(branches) > MAX_NODES) return refuse(reader, path, form);
    c->branch_count = (int)json_array_size(branches);
    c->branches = arena_new_array(arena, CertificateBranch, (size_t)c->branch_count);
    for (int i = 0; i < c->branch_count; i++) {
        int64_t number[5];
        if (!read_five(number, json_array_get(branches, (size_t)i), path, form, reader)) return false;
        for (int k = 0; k < 5; k++)
            if (number[k] < 1 || number[k] > MAX_NODES) return refuse(reader, path, form);
        c->branches[i] =
            (CertificateBranch){(int)number[0], (int)number[1], (int)number[2], (int)number[3], (int)number[4]};
        intervals += number[4];
    }
    return intervals == c->interval_count || refuse(reader, path, "do not share out the intervals");
}

bool certificate_read(Certificate *c, const json_t *object, Arena *arena, JsonReader reader)
{
    json_t *intervals, *nodes;
    if (!json_get_integer(reader, object, "certificate", "bound_ns", &c->bound_ns) ||
        !json_get_array(reader, object, "certificate", "intervals", &intervals) ||
        !json_get_array(reader, object, "certificate", "nodes", &nodes))
        return false;
    if (json_array_size(intervals) > MAX_NODES || json_array_size(nodes) > MAX_NODES)
        return refuse(reader, "certificate", "is too large");
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
        if (!json_is_object(node)) return refuse(reader, path, "must be an object");
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
