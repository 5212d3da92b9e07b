#include "frontend/huggingface/rotary.h"

#include <math.h>

/* theta^(2i / width), for pair i */
static float power(const RotaryConfig *config, int64_t pair)
{
    return powf((float)config->theta, (float)(2 * pair) / (float)config->width);
}

/* Llama 3.1 (Grattafiori et al., 2024): long waves are stretched, short ones not, those between partly. */
static float llama3_frequency(const RotaryConfig *config, float frequency)
{
    const double pi = 3.14159265358979323846, original = (double)config->original;
    double wave = 2 * pi / frequency;
    if (wave < original / config->high) return frequency;
    if (wave > original / config->low) return frequency / (float)config->factor;
    float smooth = (float)((original / wave - config->low) / (config->high - config->low));
    return (1 - smooth) * frequency / (float)config->factor + smooth * frequency;
}

/* The pair that turns `turns` times over the length of pretraining. */
static double pair_of_turns(const RotaryConfig *config, double turns)
{
    const double pi = 3.14159265358979323846;
    return (double)config->width * log((double)config->original / (turns * 2 * pi)) / (2 * log(config->theta));
}

/* YaRN (Peng et al., 2023): a ramp over the pairs, from frequencies as they were to stretched ones. */
static float yarn_frequency(const RotaryConfig *config, int64_t pair)
{
    double low = pair_of_turns(config, config->high), high = pair_of_turns(config, config->low);
    if (config->truncate) low = floor(low), high = ceil(high);
    if (low < 0) low = 0;
    if (high > (double)config->width - 1) high = (double)config->width - 1;
    if (low == high) high += 0.001;
    float ramp = (float)(((double)pair - low) / (high - low));
    ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
    return 1 / ((float)config->factor * power(config, pair)) * ramp + 1 / power(config, pair) * (1 - ramp);
}

static float frequency_of(const RotaryConfig *config, int64_t pair, bool is_long)
{
    float usual = 1 / power(config, pair);
    switch (config->kind) {
    case ROTARY_LINEAR: return usual / (float)config->factor;
    case ROTARY_LLAMA3: return llama3_frequency(config, usual);
    case ROTARY_YARN: return yarn_frequency(config, pair);
    case ROTARY_LONGROPE:
        return 1 / ((float)(is_long ? config->long_factors : config->short_factors)[pair] * power(config, pair));
    default: return usual;
    }
}

float rotary_frequency(const RotaryConfig *config, int64_t pair) { return frequency_of(config, pair, false); }

/* (width): every pair's frequency, once for each half. */
static const char *constant_frequencies(Network *network, const char *scope, const RotaryConfig *config, bool is_long)
{
    float *frequencies = arena_new_array(&network->builder.arena, float, (size_t)config->width);
    for (int64_t i = 0; i < config->width; i++) frequencies[i] = frequency_of(config, i % (config->width / 2), is_long);
    return onnx_builder_floats(&network->builder, scope, frequencies, &(Shape){1, {config->width}});
}

/* Dynamic scaling by the length of the sequence, where it exceeds the longest one of pretraining. */
static const char *dynamic_frequencies(Network *network, const char *scope, const RotaryConfig *config)
{
    OnnxBuilder *builder = &network->builder;
    const float most = (float)config->positions, width = (float)config->width;
    float *exponents = arena_new_array(&builder->arena, float, (size_t)config->width);
    for (int64_t i = 0; i < config->width; i++) exponents[i] = -(float)(2 * (i % (config->width / 2))) / width;
    const char *length =
        network_cast(network, scope, network_length(network, scope, network_integer(network, scope, 1)),
                     ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT);
    length = network_apply(network, scope, "Max", length, onnx_builder_float(builder, scope, most));
    length =
        network_apply(network, scope, "Mul", length, onnx_builder_float(builder, scope, (float)config->factor / most));
    length =
        network_apply(network, scope, "Sub", length, onnx_builder_float(builder, scope, (float)config->factor - 1));
    length = network_apply(network, scope, "Pow", length, onnx_builder_float(builder, scope, width / (width - 2)));
    const char *theta =
        network_apply(network, scope, "Mul", length, onnx_builder_float(builder, scope, (float)config->theta));
    return network_apply(network, scope, "Pow", theta,
                         onnx_builder_floats(builder, scope, exponents, &(Shape){1, {config->width}}));
}

static const char *frequencies(Network *network, const char *scope, const RotaryConfig *config)
{
    if (config->kind == ROTARY_DYNAMIC && config->width > 2) return dynamic_frequencies(network, scope, config);
    const char *usual = constant_frequencies(network, scope, config, false);
    if (config->kind != ROTARY_LONGROPE) return usual;
    const char *is_long =
        network_apply(network, scope, "Greater", network_length(network, scope, network_integer(network, scope, 1)),
                      network_integer(network, scope, config->original));
    return network_apply(network, scope, "Where", is_long, constant_frequencies(network, scope, config, true), usual);
}

Rotation rotary_add(Network *network, const char *scope, const RotaryConfig *config, int64_t head_width)
{
    Rotation rotation = {.width = config->width, .head_width = head_width};
    const char *positions =
        network_apply(network, scope, "Unsqueeze",
                      network_cast(network, scope, network->positions, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT),
                      network_list(network, scope, 0, 3));
    const char *angles = network_apply(network, scope, "Mul", positions, frequencies(network, scope, config));
    const char *parts[2] = {network_apply(network, scope, "Cos", angles), network_apply(network, scope, "Sin", angles)};
    for (int i = 0; i < 2 && config->attention_factor != 1; i++)
        parts[i] = network_apply(network, scope, "Mul", parts[i],
                                 onnx_builder_float(&network->builder, scope, (float)config->attention_factor));
    rotation.cosine = parts[0];
    rotation.sine = parts[1];
    return rotation;
}

const char *rotary_turn(Network *network, const char *scope, const char *x, const Rotation *rotation)
{
    const int64_t width = rotation->width;
    bool partial = width < rotation->head_width;
    const char *rest = partial ? network_slice(network, scope, x, 3, width, rotation->head_width) : NULL;
    if (partial) x = network_slice(network, scope, x, 3, 0, width);
    const char *first = network_slice(network, scope, x, 3, 0, width / 2),
               *second = network_slice(network, scope, x, 3, width / 2, width);
    const char *halves[2] = {network_apply(network, scope, "Neg", second), first};
    Onnx__NodeProto *turned = onnx_builder_node(&network->builder, scope, "Concat", halves, 2);
    onnx_node_integer(&network->builder, turned, "axis", -1);
    x = network_apply(network, scope, "Add", network_apply(network, scope, "Mul", x, rotation->cosine),
                      network_apply(network, scope, "Mul", onnx_node_output(turned), rotation->sine));
    if (!partial) return x;
    Onnx__NodeProto *whole = onnx_builder_node(&network->builder, scope, "Concat", (const char *const[]){x, rest}, 2);
    onnx_node_integer(&network->builder, whole, "axis", -1);
    return onnx_node_output(whole);
}
