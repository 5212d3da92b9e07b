#include "runtime/wire/site_file.h"

#include <string.h>

#include "base/json.h"
#include "runtime/wire/address.h"

typedef struct SiteReader {
    JsonReader json;
    WireSiteFile *file;
} SiteReader;

/* Names are printed and compared: what is printable and short. */
static bool is_name(const char *text)
{
    size_t length = strlen(text);
    for (const char *c = text; *c; c++)
        if (*c <= ' ' || *c > '~') return false;
    return length > 0 && length < 128;
}

static bool read_site(SiteReader *reader, const json_t *object, int number, WireSite *site)
{
    WireSiteFile *file = reader->file;
    const char *path = arena_format(&file->arena, "sites[%d]", number), *name, *key;
    if (!json_is_object(object)) return json_refuse(reader->json, path, "is not an object");
    if (!json_get_string(reader->json, object, path, "name", &name) ||
        !json_get_string(reader->json, object, path, "key", &key))
        return false;
    if (!is_name(name)) return json_refuse(reader->json, path, "has an invalid name");
    if (!wire_key_is_valid(key)) return json_refuse(reader->json, path, "has an invalid public key");
    const json_t *address = json_object_get(object, "address");
    if (address && !json_is_null(address)) {
        if (!json_is_string(address) || !wire_address_is_valid(json_string_value(address)))
            return json_refuse(reader->json, path, "has an address that is not HOST:PORT");
        site->address = arena_string(&file->arena, json_string_value(address));
    }
    site->name = arena_string(&file->arena, name);
    memcpy(site->key, key, sizeof site->key);
    return true;
}

static bool is_distinct(SiteReader *reader, const WireSite *sites, int number)
{
    for (int other = 0; other < number; other++) {
        const char *path = arena_format(&reader->file->arena, "sites[%d]", number);
        if (strcmp(sites[other].name, sites[number].name) == 0)
            return json_refuse(reader->json, path, "has the name of an earlier one");
        if (memcmp(sites[other].key, sites[number].key, sizeof sites[number].key) == 0)
            return json_refuse(reader->json, path, "has the key of an earlier one");
        if (!sites[other].address && !sites[number].address)
            return json_refuse(reader->json, path, "has no address, and an earlier one has none");
    }
    return true;
}

static bool read_sites(SiteReader *reader, const json_t *root, const char *own_name)
{
    WireSiteFile *file = reader->file;
    json_t *array;
    if (!json_get_array(reader->json, root, NULL, "sites", &array)) return false;
    size_t count = json_array_size(array);
    if (count < 2 || count > WIRE_MOST_SITES) return json_refuse(reader->json, "sites", "are not 2 to 256");
    WireSite *sites = arena_new_array(&file->arena, WireSite, count);
    file->sites = sites;
    file->site_count = (int)count;
    file->site = -1;
    for (int s = 0; s < file->site_count; s++) {
        if (!read_site(reader, json_array_get(array, (size_t)s), s, &sites[s]) || !is_distinct(reader, sites, s))
            return false;
        if (strcmp(sites[s].name, own_name) == 0) file->site = s;
    }
    return file->site >= 0 || json_refuse(reader->json, "site", "is none of the sites");
}

static bool read_ranks(SiteReader *reader, const json_t *root)
{
    WireSiteFile *file = reader->file;
    json_t *array;
    if (!json_get_array(reader->json, root, NULL, "rank_sites", &array)) return false;
    size_t count = json_array_size(array);
    if (count < 1 || count > WIRE_MOST_RANKS) return json_refuse(reader->json, "rank_sites", "are not 1 to 16384");
    int *ranks = arena_new_array(&file->arena, int, count);
    for (size_t r = 0; r < count; r++) {
        const json_t *site = json_array_get(array, r);
        if (!json_is_integer(site) || json_integer_value(site) < 0 || json_integer_value(site) >= file->site_count)
            return json_refuse(reader->json, "rank_sites", "are not all numbers of sites");
        ranks[r] = (int)json_integer_value(site);
    }
    file->rank_sites = ranks;
    file->rank_count = (int)count;
    return true;
}

static bool read_small(SiteReader *reader, const json_t *object, const char *path, const char *key, int64_t least,
                       int64_t most, int *value)
{
    int64_t number = -1;
    bool optional = least < 0;
    if (optional ? !json_optional_integer(reader->json, object, path, key, &number)
                 : !json_get_integer(reader->json, object, path, key, &number))
        return false;
    if (number < least || number > most)
        return json_refuse(reader->json, path, arena_format(&reader->file->arena, "has a wrong '%s'", key));
    *value = (int)number;
    return true;
}

static bool read_tensor(SiteReader *reader, const json_t *object, const char *path, WireTensor *tensor)
{
    WireSiteFile *file = reader->file;
    const char *name, *kind;
    if (!json_is_object(object)) return json_refuse(reader->json, path, "is not an object");
    if (!json_get_string(reader->json, object, path, "tensor", &name) ||
        !json_get_string(reader->json, object, path, "kind", &kind) ||
        !read_small(reader, object, path, "from_stage", -1, INT32_MAX, &tensor->from_stage) ||
        !read_small(reader, object, path, "to_stage", -1, INT32_MAX, &tensor->to_stage) ||
        !read_small(reader, object, path, "from", 0, file->rank_count - 1, &tensor->from) ||
        !read_small(reader, object, path, "to", 0, file->rank_count - 1, &tensor->to) ||
        !read_small(reader, object, path, "tag", 0, INT32_MAX, &tensor->first_tag) ||
        !read_small(reader, object, path, "tags", 1, INT32_MAX - tensor->first_tag, &tensor->tag_count))
        return false;
    tensor->name = arena_string(&file->arena, name);
    tensor->kind = arena_string(&file->arena, kind);
    return file->rank_sites[tensor->from] != file->rank_sites[tensor->to] ||
           json_refuse(reader->json, path, "does not cross between sites");
}

static bool read_tensors(SiteReader *reader, const json_t *root)
{
    WireSiteFile *file = reader->file;
    const char *plan;
    json_t *array;
    if (!json_object_get(root, "tensors")) return true;
    if (!json_get_string(reader->json, root, NULL, "plan", &plan) ||
        !json_get_array(reader->json, root, NULL, "tensors", &array))
        return false;
    WireTensor *tensors = arena_new_array(&file->arena, WireTensor, json_array_size(array));
    for (size_t i = 0; i < json_array_size(array); i++)
        if (!read_tensor(reader, json_array_get(array, i), arena_format(&file->arena, "tensors[%zu]", i), &tensors[i]))
            return false;
    file->plan = arena_string(&file->arena, plan);
    file->tensors = tensors;
    file->tensor_count = json_array_size(array);
    return true;
}

static bool read_root(SiteReader *reader, const json_t *root)
{
    WireSiteFile *file = reader->file;
    const char *format, *run, *name;
    if (!json_is_object(root)) return json_refuse(reader->json, NULL, "is not an object");
    if (!json_get_string(reader->json, root, NULL, "format", &format)) return false;
    if (strcmp(format, "skycc.site/1") != 0) return json_refuse(reader->json, "format", "is not skycc.site/1");
    if (!json_get_string(reader->json, root, NULL, "run", &run) ||
        !json_get_string(reader->json, root, NULL, "site", &name) ||
        !json_get_integer(reader->json, root, NULL, "largest_message_bytes", &file->largest_message_bytes))
        return false;
    if (file->largest_message_bytes < 0 || file->largest_message_bytes > WIRE_MOST_LIMIT)
        return json_refuse(reader->json, "largest_message_bytes", "is not 0 to 2147483647");
    if (file->largest_message_bytes < WIRE_LEAST_LIMIT) file->largest_message_bytes = WIRE_LEAST_LIMIT;
    if (!*run) return json_refuse(reader->json, "run", "is empty");
    file->run = hash_bytes(run, strlen(run));
    return read_sites(reader, root, name) && read_ranks(reader, root) && read_tensors(reader, root);
}

bool wire_site_file_read(WireSiteFile *file, const char *path, Diagnostics *diagnostics)
{
    *file = (WireSiteFile){.site = -1};
    SiteReader reader = {{path, diagnostics}, file};
    json_auto_t *root = json_read(path, diagnostics);
    if (root && read_root(&reader, root)) return true;
    wire_site_file_free(file);
    return false;
}

void wire_site_file_free(WireSiteFile *file)
{
    arena_free(&file->arena);
    *file = (WireSiteFile){.site = -1};
}

bool wire_listens(const WireSiteFile *file, int site, int peer)
{
    return file->sites[site].address && (!file->sites[peer].address || site < peer);
}

bool wire_is_connected_to(const WireSiteFile *file, int site)
{
    for (int peer = 0; peer < file->site_count; peer++)
        if (peer != site && wire_listens(file, site, peer)) return true;
    return false;
}
