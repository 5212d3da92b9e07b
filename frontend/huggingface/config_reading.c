#include "frontend/huggingface/config_reading.h"

#include <string.h>

static const struct {
    const char *name;
    Activation activation;
} activations[] = {
    {"gelu", ACTIVATION_GELU},           {"gelu_python", ACTIVATION_GELU},
    {"gelu_new", ACTIVATION_GELU_TANH},  {"gelu_pytorch_tanh", ACTIVATION_GELU_TANH},
    {"gelu_fast", ACTIVATION_GELU_TANH}, {"relu", ACTIVATION_RELU},
    {"silu", ACTIVATION_SILU},           {"swish", ACTIVATION_SILU},
    {"tanh", ACTIVATION_TANH},
};

void reading_refuse(Reading *reading, const char *key, int exit_code, const char *hint, const char *problem)
{
    Place place = {.file = reading->reader.file, .object = key};
    reading->ok = diagnostics_error(reading->reader.diagnostics, exit_code, place, hint, "%s", problem);
}

const json_t *reading_member(Reading *reading, const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    const AskedMember asked = {object, key};
    if (value) array_push(reading->asked, reading->asked_count, reading->asked_capacity, asked);
    return json_is_null(value) ? NULL : value;
}

/* `fallback` below 0: the member is required. */
int64_t reading_size(Reading *reading, const char *key, int64_t least, int64_t most, int64_t fallback)
{
    int64_t value = fallback;
    if (!reading_member(reading, reading->root, key)) {
        if (fallback < 0) reading_refuse(reading, key, EXIT_BAD_INPUT, NULL, "is missing");
        return fallback < 0 ? least : fallback;
    }
    if (!json_get_integer(reading->reader, reading->root, NULL, key, &value)) {
        reading->ok = false;
        return least;
    }
    if (value >= least && value <= most) return value;
    reading_refuse(reading, key, EXIT_BAD_INPUT, NULL,
                   arena_format(reading->arena, "must be from %lld to %lld", (long long)least, (long long)most));
    return least;
}

double reading_number(Reading *reading, const json_t *object, const char *key, double fallback)
{
    double value = fallback;
    if (!reading_member(reading, object, key)) return fallback;
    if (!json_get_number(reading->reader, object, NULL, key, &value)) {
        reading->ok = false;
        return fallback;
    }
    if (value >= 0 && value <= 1e30) return value;
    reading_refuse(reading, key, EXIT_BAD_INPUT, NULL, "must be from 0 to 1e30");
    return fallback;
}

bool reading_flag(Reading *reading, const char *key, bool fallback)
{
    const json_t *value = reading_member(reading, reading->root, key);
    if (!value) return fallback;
    if (!json_is_boolean(value)) reading_refuse(reading, key, EXIT_BAD_INPUT, NULL, "must be true or false");
    return json_is_true(value);
}

const char *reading_text(Reading *reading, const char *key, const char *fallback)
{
    const json_t *value = reading_member(reading, reading->root, key);
    if (!value) return fallback;
    if (json_is_string(value)) return json_string_value(value);
    reading_refuse(reading, key, EXIT_BAD_INPUT, NULL, "must be a string");
    return fallback;
}

Activation reading_activation(Reading *reading, const char *key, const char *fallback)
{
    return reading_activation_named(reading, key, reading_text(reading, key, fallback));
}

Activation reading_activation_named(Reading *reading, const char *key, const char *name)
{
    const char *known = "";
    for (size_t i = 0; i < sizeof activations / sizeof *activations; i++) {
        if (strcmp(activations[i].name, name) == 0) return activations[i].activation;
        known = arena_format(reading->arena, "%s%s%s", known, i ? ", " : "", activations[i].name);
    }
    reading_refuse(reading, key, EXIT_UNSUPPORTED_OPERATOR, arena_format(reading->arena, "there are %s", known),
                   arena_format(reading->arena, "the activation '%.100s' is not supported", name));
    return ACTIVATION_GELU;
}

static bool is_known(const Reading *reading, const json_t *object, const char *key)
{
    for (size_t i = 0; i < reading->asked_count; i++)
        if (reading->asked[i].object == object && strcmp(reading->asked[i].key, key) == 0) return true;
    if (object == reading->root && config_member_is_harmless(reading->family, key)) return true;
    return json_is_null(json_object_get(object, key));
}

void reading_refuse_unknown(Reading *reading, const json_t *object, const char *place)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        if (is_known(reading, object, key)) continue;
        reading_refuse(reading, arena_format(reading->arena, "%s%.100s", place, key), EXIT_UNSUPPORTED_OPERATOR,
                       "remove it from config.json if it changes nothing of what the model computes",
                       "skycc does not know this member, which may change what the model computes");
    }
}
