#include "runtime/wire/audit.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/json_writer.h"
#include "base/live_file.h"

static const char format[] = "skycc.audit/1";

const char *wire_class_name(WireClass what)
{
    static const char *const names[WIRE_CLASS_COUNT] = {
        [WIRE_CLASS_TENSOR] = "tensor",
        [WIRE_CLASS_AGREEMENT] = "agreement",
        [WIRE_CLASS_DECISION] = "decision",
        [WIRE_CLASS_CHECKPOINT] = "checkpoint",
        [WIRE_CLASS_LENGTHS] = "row-lengths",
        [WIRE_CLASS_NORM] = "norm",
        [WIRE_CLASS_BARRIER] = "barrier",
        [WIRE_CLASS_STOP] = "stop",
        [WIRE_CLASS_WARM_UP] = "warm-up",
        [WIRE_CLASS_LOSS] = "loss",
        [WIRE_CLASS_TRACE] = "trace",
        [WIRE_CLASS_LIVENESS] = "liveness",
        [WIRE_CLASS_END] = "end",
        [WIRE_CLASS_GREETING] = "greeting",
        [WIRE_CLASS_ACKNOWLEDGEMENT] = "acknowledgement",
        [WIRE_CLASS_UNKNOWN] = "unknown",
    };
    return names[what];
}

/* ---- Counting ---- */

static bool is_same(const WireCrossing *a, const WireCrossing *b)
{
    if (a->what != b->what || strcmp(a->from_site, b->from_site) != 0 || strcmp(a->to_site, b->to_site) != 0)
        return false;
    return a->what != WIRE_CLASS_TENSOR || (a->from_stage == b->from_stage && a->to_stage == b->to_stage &&
                                            strcmp(a->kind, b->kind) == 0 && strcmp(a->tensor, b->tensor) == 0);
}

WireCrossing *wire_audit_crossing(WireAudit *audit, const WireCrossing *described)
{
    for (size_t i = 0; i < audit->crossing_count; i++)
        if (is_same(&audit->crossings[i], described)) return &audit->crossings[i];
    WireCrossing crossing = *described;
    crossing.messages = crossing.bytes = crossing.least = crossing.most = 0;
    array_push(audit->crossings, audit->crossing_count, audit->crossing_capacity, crossing);
    return &audit->crossings[audit->crossing_count - 1];
}

void wire_crossing_count(WireCrossing *crossing, size_t bytes)
{
    int64_t size = (int64_t)bytes;
    if (!crossing->messages || size < crossing->least) crossing->least = size;
    if (size > crossing->most) crossing->most = size;
    crossing->messages++;
    crossing->bytes += size;
}

void wire_audit_free(WireAudit *audit)
{
    free(audit->crossings);
    arena_free(&audit->arena);
    *audit = (WireAudit){0};
}

/* ---- Numbers of the file, by name ---- */

typedef struct Number {
    const char *name;
    size_t offset;
} Number;

#define NUMBER(type, key, field)                                                                                       \
    {                                                                                                                  \
        key, offsetof(type, field)                                                                                     \
    }

static const Number audit_numbers[] = {
    NUMBER(WireAudit, "starts", starts),
    NUMBER(WireAudit, "broken_off", broken_off),
    NUMBER(WireAudit, "cut_short", cut_short),
    NUMBER(WireAudit, "steps", steps),
    NUMBER(WireAudit, "repeated_steps", repeated_steps),
    NUMBER(WireAudit, "last_step", last_step),
    NUMBER(WireAudit, "microbatches", microbatches),
    NUMBER(WireAudit, "evaluated_batches", evaluated_batches),
    NUMBER(WireAudit, "evaluated_microbatches", evaluated_microbatches),
    NUMBER(WireAudit, "longest_evaluation", longest_evaluation),
};
static const Number crossing_numbers[] = {
    NUMBER(WireCrossing, "messages", messages),
    NUMBER(WireCrossing, "bytes", bytes),
    NUMBER(WireCrossing, "least_bytes", least),
    NUMBER(WireCrossing, "most_bytes", most),
};
enum {
    AUDIT_NUMBERS = sizeof audit_numbers / sizeof *audit_numbers,
    CROSSING_NUMBERS = sizeof crossing_numbers / sizeof *crossing_numbers
};

static int64_t *number_at(const void *object, const Number *number)
{
    return (int64_t *)(void *)((char *)(uintptr_t)object + number->offset);
}

/* ---- Writing ---- */

static void add_numbers(JsonWriter *json, const void *from, const Number *numbers, size_t count)
{
    for (size_t i = 0; i < count; i++) json_add_integer(json, numbers[i].name, *number_at(from, &numbers[i]));
}

static void add_crossing(JsonWriter *json, const WireCrossing *crossing)
{
    json_open(json, NULL, '{');
    json_add_string(json, "class", wire_class_name(crossing->what));
    if (crossing->what == WIRE_CLASS_TENSOR) {
        json_add_string(json, "tensor", crossing->tensor);
        json_add_string(json, "kind", crossing->kind);
        if (crossing->from_stage >= 0) json_add_integer(json, "from_stage", crossing->from_stage);
        if (crossing->to_stage >= 0) json_add_integer(json, "to_stage", crossing->to_stage);
    }
    if (crossing->what == WIRE_CLASS_UNKNOWN) json_add_integer(json, "tag", crossing->tag);
    json_add_string(json, "from_site", crossing->from_site);
    json_add_string(json, "to_site", crossing->to_site);
    add_numbers(json, crossing, crossing_numbers, CROSSING_NUMBERS);
    json_close(json, '}');
}

void wire_audit_print(const WireAudit *audit, Buffer *text)
{
    JsonWriter json = {.buffer = text, .spaced = true, .indent = 1};
    json_open(&json, NULL, '{');
    json_add_string(&json, "format", format);
    json_add_string(&json, "run", audit->run);
    json_add_string(&json, "plan", audit->plan);
    json_add_string(&json, "site", audit->site);
    json_add_bool(&json, "running", audit->running);
    add_numbers(&json, audit, audit_numbers, AUDIT_NUMBERS);
    json_open(&json, "crossed", '[');
    for (size_t i = 0; i < audit->crossing_count; i++) add_crossing(&json, &audit->crossings[i]);
    json_close(&json, ']');
    json_close(&json, '}');
    buffer_append(text, "\n", 1);
}

bool wire_audit_write(const WireAudit *audit, const char *path, Diagnostics *diagnostics)
{
    FREED_WITH(buffer_free) Buffer text = {0};
    wire_audit_print(audit, &text);
    return live_file_write(path, text.bytes, text.size, diagnostics);
}

/* ---- Reading ---- */

#define MOST ((int64_t)1 << 53) /* exact for whoever reads JSON's numbers as doubles; sums stay far from overflowing */

static bool read_numbers(JsonReader reader, const json_t *object, const char *path, void *into, const Number *numbers,
                         size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int64_t *value = number_at(into, &numbers[i]);
        if (!json_get_integer(reader, object, path, numbers[i].name, value)) return false;
        if (*value < 0 || *value > MOST) return json_refuse(reader, path, "has a number that is out of range");
    }
    return true;
}

static bool read_text(JsonReader reader, const json_t *object, const char *path, const char *key, Arena *arena,
                      const char **text)
{
    if (!json_get_string(reader, object, path, key, text)) return false;
    *text = arena_string(arena, *text);
    return true;
}

static bool read_stage(JsonReader reader, const json_t *object, const char *path, const char *key, int *stage)
{
    int64_t value = -1;
    if (!json_optional_integer(reader, object, path, key, &value)) return false;
    if (value < -1 || value > INT32_MAX) return json_refuse(reader, path, "names a stage that cannot exist");
    *stage = (int)value;
    return true;
}

static bool find_class(const char *name, WireClass *what)
{
    for (*what = 0; *what < WIRE_CLASS_COUNT; ++*what)
        if (strcmp(name, wire_class_name(*what)) == 0) return true;
    return false;
}

static bool read_crossing(JsonReader reader, const json_t *object, const char *path, Arena *arena,
                          WireCrossing *crossing)
{
    const char *what;
    int64_t tag = 0;
    if (!json_is_object(object)) return json_refuse(reader, path, "is not an object");
    if (!json_get_string(reader, object, path, "class", &what)) return false;
    if (!find_class(what, &crossing->what)) return json_refuse(reader, path, "is of an unknown class");
    if (crossing->what == WIRE_CLASS_TENSOR && (!read_text(reader, object, path, "tensor", arena, &crossing->tensor) ||
                                                !read_text(reader, object, path, "kind", arena, &crossing->kind)))
        return false;
    if (!read_stage(reader, object, path, "from_stage", &crossing->from_stage) ||
        !read_stage(reader, object, path, "to_stage", &crossing->to_stage) ||
        !json_optional_integer(reader, object, path, "tag", &tag) ||
        !read_text(reader, object, path, "from_site", arena, &crossing->from_site) ||
        !read_text(reader, object, path, "to_site", arena, &crossing->to_site) ||
        !read_numbers(reader, object, path, crossing, crossing_numbers, CROSSING_NUMBERS))
        return false;
    crossing->tag = (int)tag;
    return tag == crossing->tag || json_refuse(reader, path, "has a tag that cannot exist");
}

static bool read_crossings(JsonReader reader, WireAudit *audit, const json_t *root)
{
    json_t *array;
    if (!json_get_array(reader, root, NULL, "crossed", &array)) return false;
    for (size_t i = 0; i < json_array_size(array); i++) {
        const char *path = arena_format(&audit->arena, "crossed[%zu]", i);
        WireCrossing read = {.what = WIRE_CLASS_COUNT};
        if (!read_crossing(reader, json_array_get(array, i), path, &audit->arena, &read)) return false;
        size_t before = audit->crossing_count;
        *wire_audit_crossing(audit, &read) = read;
        if (audit->crossing_count == before) return json_refuse(reader, path, "is listed twice");
    }
    return true;
}

static bool read_root(JsonReader reader, WireAudit *audit, const json_t *root)
{
    const char *form;
    if (!json_is_object(root)) return json_refuse(reader, NULL, "is not an object");
    if (!json_get_string(reader, root, NULL, "format", &form)) return false;
    if (strcmp(form, format) != 0) return json_refuse(reader, "format", "is not skycc.audit/1");
    audit->running = json_is_true(json_object_get(root, "running"));
    return read_text(reader, root, NULL, "run", &audit->arena, &audit->run) &&
           read_text(reader, root, NULL, "plan", &audit->arena, &audit->plan) &&
           read_text(reader, root, NULL, "site", &audit->arena, &audit->site) &&
           read_numbers(reader, root, NULL, audit, audit_numbers, AUDIT_NUMBERS) && read_crossings(reader, audit, root);
}

bool wire_audit_read(WireAudit *audit, const char *path, Diagnostics *diagnostics)
{
    *audit = (WireAudit){0};
    json_auto_t *root = json_read(path, diagnostics);
    if (root && read_root((JsonReader){path, diagnostics}, audit, root)) return true;
    wire_audit_free(audit);
    return false;
}
