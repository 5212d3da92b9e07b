#include <math.h>
#include <string.h>

#include "frontend/huggingface/config_reading.h"

static const char *const kinds[] = {
    [ROTARY_DEFAULT] = "default", [ROTARY_LINEAR] = "linear", [ROTARY_DYNAMIC] = "dynamic",
    [ROTARY_LLAMA3] = "llama3",   [ROTARY_YARN] = "yarn",     [ROTARY_LONGROPE] = "longrope",
};

static void read_kind(Reading *reading, const json_t *rotary, const char *place, RotaryConfig *config)
{
    const json_t *old = reading_member(reading, rotary, "type"), *given = reading_member(reading, rotary, "rope_type");
    const char *name = json_string_value(given ? given : old);
    if (!given && !old) return;
    if (name && strcmp(name, "su") == 0) name = kinds[ROTARY_LONGROPE]; /* as Phi-3 called it first */
    for (size_t i = 0; name && i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i], name) == 0) {
            config->kind = (RotaryKind)i;
            return;
        }
    reading_refuse(reading, arena_format(reading->arena, "%srope_type", place), EXIT_UNSUPPORTED_OPERATOR,
                   "there are default, linear, dynamic, llama3, yarn and longrope",
                   arena_format(reading->arena, "rotary positions '%.100s' are not supported", name ? name : "?"));
}

static double *read_factors(Reading *reading, const json_t *rotary, const char *place, const char *key, int64_t count)
{
    const json_t *array = reading_member(reading, rotary, key);
    double *factors = arena_new_array(reading->arena, double, (size_t)count + 1);
    bool ok = json_array_size(array) == (size_t)count;
    for (int64_t i = 0; ok && i < count; i++) {
        factors[i] = json_number_value(json_array_get(array, (size_t)i));
        ok = factors[i] > 0;
    }
    if (!ok)
        reading_refuse(reading, arena_format(reading->arena, "%s%s", place, key), EXIT_BAD_INPUT, NULL,
                       arena_format(reading->arena,
                                    "must be an array of %lld positive numbers, one for each pair that is "
                                    "turned",
                                    (long long)count));
    return factors;
}

static double magnitude(double factor, double scale) { return factor <= 1 ? 1 : 0.1 * scale * log(factor) + 1; }

static void read_yarn(Reading *reading, const json_t *rotary, RotaryConfig *config)
{
    double one = reading_number(reading, rotary, "mscale", 0),
           all = reading_number(reading, rotary, "mscale_all_dim", 0);
    double usual = one > 0 && all > 0 ? magnitude(config->factor, one) / magnitude(config->factor, all)
                                      : magnitude(config->factor, 1);
    const json_t *truncate = reading_member(reading, rotary, "truncate");
    config->attention_factor = reading_number(reading, rotary, "attention_factor", usual);
    config->high = reading_number(reading, rotary, "beta_fast", 32);
    config->low = reading_number(reading, rotary, "beta_slow", 1);
    config->truncate = !truncate || json_is_true(truncate);
}

static void read_longrope(Reading *reading, const json_t *rotary, const char *place, RotaryConfig *config)
{
    double usual = config->factor <= 1 ? 1 : sqrt(1 + log(config->factor) / log((double)config->original));
    config->attention_factor = reading_number(reading, rotary, "attention_factor", usual);
    config->short_factors = read_factors(reading, rotary, place, "short_factor", config->width / 2);
    config->long_factors = read_factors(reading, rotary, place, "long_factor", config->width / 2);
}

static void read_scaling(Reading *reading, const json_t *rotary, const char *place, RotaryConfig *config)
{
    bool by_lengths = config->kind == ROTARY_YARN || config->kind == ROTARY_LONGROPE;
    double usual = by_lengths ? (double)config->positions / (double)config->original : 0;
    config->factor = reading_number(reading, rotary, "factor", usual);
    if (config->factor <= 0)
        reading_refuse(reading, arena_format(reading->arena, "%sfactor", place), EXIT_BAD_INPUT, NULL,
                       "must be a positive number");
    if (config->kind == ROTARY_YARN) read_yarn(reading, rotary, config);
    if (config->kind == ROTARY_LONGROPE) read_longrope(reading, rotary, place, config);
    if (config->kind != ROTARY_LLAMA3) return;
    config->low = reading_number(reading, rotary, "low_freq_factor", 0);
    config->high = reading_number(reading, rotary, "high_freq_factor", 0);
    if (config->low <= 0 || config->high <= config->low)
        reading_refuse(reading, arena_format(reading->arena, "%shigh_freq_factor", place), EXIT_BAD_INPUT, NULL,
                       "must be greater than low_freq_factor, and that greater than 0");
}

void rotary_config_read(Reading *reading, const json_t *rotary, const char *place, RotaryConfig *config)
{
    config->theta = reading_number(reading, rotary, "rope_theta", config->theta);
    double partial = reading_number(reading, rotary, "partial_rotary_factor", config->partial);
    config->attention_factor = 1;
    config->width = (int64_t)((double)config->width * partial);
    if (partial > 1 || config->width < 2 || config->width % 2)
        reading_refuse(reading, arena_format(reading->arena, "%spartial_rotary_factor", place), EXIT_BAD_INPUT, NULL,
                       "must let an even number of elements of a head be turned");
    if (config->theta <= 1)
        reading_refuse(reading, arena_format(reading->arena, "%srope_theta", place), EXIT_BAD_INPUT, NULL,
                       "must be greater than 1");
    read_kind(reading, rotary, place, config);
    const json_t *original = reading_member(reading, rotary, "original_max_position_embeddings");
    if (original && !config->knows_original) config->original = json_integer_value(original);
    if (config->original < 1)
        reading_refuse(reading, arena_format(reading->arena, "%soriginal_max_position_embeddings", place),
                       EXIT_BAD_INPUT, NULL, "must be a positive number");
    if (reading->ok && config->kind != ROTARY_DEFAULT) read_scaling(reading, rotary, place, config);
    if (reading->ok && rotary) reading_refuse_unknown(reading, rotary, place);
}
