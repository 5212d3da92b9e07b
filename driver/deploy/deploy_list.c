#include "driver/deploy/deploy_list.h"

#include <string.h>

#include "base/json.h"
#include "codegen/link/launch.h"

static const char format_name[] = "skycc.deploy/1";

/* ---- Writing ---- */

static void print_host(const DeployList *list, const DeployHost *host, JsonWriter *json)
{
    json_open(json_break(json, "\n  "), NULL, '{');
    json_add_string(json, "host", host->name);
    json_open(json, "ranks", '[');
    for (int r = 0; r < host->rank_count; r++) {
        const DeployRank *rank = &host->ranks[r];
        json_open(json_break(json, "\n    "), NULL, '{');
        json_add_integer(json, "rank", rank->rank);
        json_add_string(json, "device", rank->device);
        json_add_string(json, "program", rank->program);
        json_add_integer(json, "processor", rank->processor);
        json_add_integer(json, "memory_bytes", (int64_t)rank->memory_bytes);
        json_close(json, '}');
    }
    json_close(json, ']');
    json_open(json_break(json, "\n   "), "files", '[');
    for (int f = 0; f < host->file_count; f++) json_add_string(json, NULL, list->files[host->files[f]].name);
    json_close(json, ']');
    json_add_strings(json_break(json, "\n   "), "outside", host->outside, (size_t)host->outside_count);
    json_close(json, '}');
}

static void print_tables(const DeployList *list, JsonWriter *json)
{
    json_open(json_break(json, "\n "), "files", '[');
    for (const DeployFile *file = list->files; file < list->files + list->file_count; file++) {
        json_open(json_break(json, "\n  "), NULL, '{');
        json_add_string(json, "name", file->name);
        json_add_integer(json, "bytes", (int64_t)file->bytes);
        json_add_string(json, "sha256", file->sha256.digits);
        json_add_bool(json, "executable", file->executable);
        json_close(json, '}');
    }
    json_close(json, ']');
    json_open(json_break(json, "\n "), "processors", '[');
    for (const DeployProcessor *p = list->processors; p < list->processors + list->processor_count; p++) {
        json_open(json_break(json, "\n  "), NULL, '{');
        json_add_string(json, "architecture", p->architecture);
        json_add_string(json, "cpu", p->cpu);
        json_add_string(json, "flags", p->flags);
        json_add_string(json, "launch", p->launch);
        json_close(json, '}');
    }
    json_close(json, ']');
}

void deploy_list_print(const DeployList *list, Buffer *text)
{
    JsonWriter json = {.buffer = text};
    json_open(&json, NULL, '{');
    json_add_string(&json, "format", format_name);
    json_add_integer(json_break(&json, "\n "), "first_port", list->first_port);
    json_add_integer(&json, "last_port", list->last_port);
    json_add_integer(&json, "gateway_port", list->gateway_port);
    print_tables(list, &json);
    json_open(json_break(&json, "\n "), "hosts", '[');
    for (int h = 0; h < list->host_count; h++) print_host(list, &list->hosts[h], &json);
    json_close(&json, ']');
    json_close(&json, '}');
    buffer_print(text, "\n");
}

/* ---- Reading ---- */

typedef struct ListReader {
    DeployList *list;
    JsonReader reader;
    char place[64]; /* of the object at hand */
} ListReader;

static const char *place_in(ListReader *reader, const char *array, size_t index)
{
    snprintf(reader->place, sizeof reader->place, "%s[%zu]", array, index);
    return reader->place;
}

static bool get_count(ListReader *reader, const json_t *object, const char *key, int64_t most, int *value)
{
    int64_t number;
    if (!json_get_integer(reader->reader, object, reader->place, key, &number)) return false;
    if (number < 0 || number > most) return json_refuse(reader->reader, reader->place, "has a number out of range");
    *value = (int)number;
    return true;
}

static bool get_bytes(ListReader *reader, const json_t *object, const char *key, uint64_t *bytes)
{
    int64_t number;
    if (!json_get_integer(reader->reader, object, reader->place, key, &number)) return false;
    *bytes = (uint64_t)number;
    return number >= 0 || json_refuse(reader->reader, reader->place, "has a negative number of bytes");
}

static bool get_text(ListReader *reader, const json_t *object, const char *key, const char **text)
{
    if (!json_get_string(reader->reader, object, reader->place, key, text)) return false;
    *text = arena_string(&reader->list->arena, *text);
    return true;
}

/* Lists may come from others: no name may lead out of the folder. */
static bool is_file_name(const char *name) { return *name && *name != '.' && !strchr(name, '/') && strlen(name) < 200; }

static bool read_file(ListReader *reader, const json_t *object, DeployFile *file)
{
    const char *hash;
    if (!get_text(reader, object, "name", &file->name) || !get_bytes(reader, object, "bytes", &file->bytes) ||
        !get_text(reader, object, "sha256", &hash))
        return false;
    if (!is_file_name(file->name))
        return json_refuse(reader->reader, reader->place, "is not a file name in this folder");
    if (!sha256_is_text(hash)) return json_refuse(reader->reader, reader->place, "has no SHA-256");
    memcpy(file->sha256.digits, hash, sizeof file->sha256.digits);
    file->executable = json_is_true(json_object_get(object, "executable"));
    return true;
}

static bool read_processor(ListReader *reader, const json_t *object, DeployProcessor *processor)
{
    return get_text(reader, object, "architecture", &processor->architecture) &&
           get_text(reader, object, "cpu", &processor->cpu) && get_text(reader, object, "flags", &processor->flags) &&
           get_text(reader, object, "launch", &processor->launch);
}

static bool read_rank(ListReader *reader, const json_t *object, DeployRank *rank)
{
    return get_count(reader, object, "rank", 1 << 20, &rank->rank) &&
           get_text(reader, object, "device", &rank->device) && get_text(reader, object, "program", &rank->program) &&
           get_count(reader, object, "processor", reader->list->processor_count - 1, &rank->processor) &&
           get_bytes(reader, object, "memory_bytes", &rank->memory_bytes) &&
           (is_file_name(rank->program) ||
            json_refuse(reader->reader, reader->place, "has a program that is not a file name in this folder"));
}

static bool read_ranks(ListReader *reader, const json_t *ranks, DeployHost *host)
{
    host->rank_count = (int)json_array_size(ranks);
    host->ranks = arena_new_array(&reader->list->arena, DeployRank, json_array_size(ranks));
    for (int r = 0; r < host->rank_count; r++)
        if (!read_rank(reader, json_array_get(ranks, (size_t)r), &host->ranks[r])) return false;
    return host->rank_count > 0 || json_refuse(reader->reader, reader->place, "has no ranks");
}

static int find_file(const DeployList *list, const char *name)
{
    for (int f = 0; name && f < list->file_count; f++)
        if (strcmp(list->files[f].name, name) == 0) return f;
    return -1;
}

static bool read_host_files(ListReader *reader, const json_t *files, const json_t *outside, DeployHost *host)
{
    Arena *arena = &reader->list->arena;
    host->file_count = (int)json_array_size(files);
    host->files = arena_new_array(arena, int, json_array_size(files));
    for (int f = 0; f < host->file_count; f++) {
        host->files[f] = find_file(reader->list, json_string_value(json_array_get(files, (size_t)f)));
        if (host->files[f] < 0) return json_refuse(reader->reader, reader->place, "needs an unlisted file");
    }
    host->outside_count = (int)json_array_size(outside);
    host->outside = arena_new_array(arena, const char *, json_array_size(outside));
    for (int f = 0; f < host->outside_count; f++) {
        const char *name = json_string_value(json_array_get(outside, (size_t)f));
        if (!name) return json_refuse(reader->reader, reader->place, "has no file name in 'outside'");
        host->outside[f] = arena_string(arena, name);
    }
    return true;
}

static bool read_host(ListReader *reader, const json_t *object, DeployHost *host)
{
    json_t *ranks, *files, *outside;
    if (!get_text(reader, object, "host", &host->name) ||
        !json_get_array(reader->reader, object, reader->place, "ranks", &ranks) ||
        !json_get_array(reader->reader, object, reader->place, "files", &files) ||
        !json_get_array(reader->reader, object, reader->place, "outside", &outside))
        return false;
    if (!launch_host_is_valid(host->name))
        return json_refuse(reader->reader, reader->place, "is not a valid host name");
    for (const DeployHost *other = reader->list->hosts; other < host; other++)
        if (strcasecmp(other->name, host->name) == 0)
            return json_refuse(reader->reader, reader->place, "names a host that is listed twice");
    return read_ranks(reader, ranks, host) && read_host_files(reader, files, outside, host);
}

static bool read_hosts(ListReader *reader, const json_t *hosts)
{
    DeployList *list = reader->list;
    list->host_count = (int)json_array_size(hosts);
    list->hosts = arena_new_array(&list->arena, DeployHost, json_array_size(hosts));
    for (int h = 0; h < list->host_count; h++) {
        place_in(reader, "hosts", (size_t)h);
        if (!read_host(reader, json_array_get(hosts, (size_t)h), &list->hosts[h])) return false;
    }
    return true;
}

static bool read_tables(ListReader *reader, const json_t *files, const json_t *processors)
{
    DeployList *list = reader->list;
    list->files = arena_new_array(&list->arena, DeployFile, json_array_size(files));
    list->processors = arena_new_array(&list->arena, DeployProcessor, json_array_size(processors));
    for (size_t f = 0; f < json_array_size(files); f++, list->file_count++) {
        place_in(reader, "files", f);
        if (!read_file(reader, json_array_get(files, f), &list->files[f])) return false;
        if (find_file(list, list->files[f].name) >= 0)
            return json_refuse(reader->reader, reader->place, "is listed twice");
    }
    for (size_t p = 0; p < json_array_size(processors); p++, list->processor_count++) {
        place_in(reader, "processors", p);
        if (!read_processor(reader, json_array_get(processors, p), &list->processors[p])) return false;
    }
    return true;
}

static bool read_list(ListReader *reader, const json_t *root)
{
    DeployList *list = reader->list;
    const char *format;
    json_t *files, *processors, *hosts;
    if (!json_get_string(reader->reader, root, NULL, "format", &format)) return false;
    if (strcmp(format, format_name) != 0) return json_refuse(reader->reader, "format", "is not \"skycc.deploy/1\"");
    return get_count(reader, root, "first_port", 65535, &list->first_port) &&
           get_count(reader, root, "last_port", 65535, &list->last_port) &&
           get_count(reader, root, "gateway_port", 65535, &list->gateway_port) &&
           json_get_array(reader->reader, root, NULL, "files", &files) &&
           json_get_array(reader->reader, root, NULL, "processors", &processors) &&
           json_get_array(reader->reader, root, NULL, "hosts", &hosts) && read_tables(reader, files, processors) &&
           read_hosts(reader, hosts);
}

bool deploy_list_read(DeployList *list, const char *directory, Diagnostics *diagnostics)
{
    *list = (DeployList){0};
    const char *path = arena_format(&list->arena, "%s/" DEPLOY_LIST_FILE, directory);
    json_t *root = json_read(path, diagnostics);
    if (!root) return false;
    ListReader reader = {.list = list, .reader = {path, diagnostics}};
    bool ok = read_list(&reader, root);
    json_decref(root);
    return ok;
}

void deploy_list_free(DeployList *list)
{
    arena_free(&list->arena);
    *list = (DeployList){0};
}
