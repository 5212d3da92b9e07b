/* The optimiser's specification, and the updates: one node per parameter that has a gradient, with its states
 * ("adam.m/NAME", "adam.v/NAME", "momentum/NAME"). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/ops/add_node.h"
#include "graph/ops/operator.h"
#include "graph/passes/passes.h"

static const struct {
    const char *name;
    SkyOptimizer defaults;
} optimizers[] = {
    {"sgd", {SKY_SGD, 0, 1e-2, 0, 0, 0, 0}},
    {"momentum", {SKY_MOMENTUM, 0, 1e-2, 0.9, 0, 0, 0}},
    {"adam", {SKY_ADAM, 0, 1e-3, 0.9, 0.999, 1e-8, 0}},
    {"adamw", {SKY_ADAMW, 0, 1e-3, 0.9, 0.999, 1e-8, 0.01}},
    {"lamb", {SKY_LAMB, 0, 1e-3, 0.9, 0.999, 1e-6, 0.01}},
};

/* The field of `numbers` that `key` names, with the least and the exclusive upper value it may take. */
static double *option(SkyOptimizer *numbers, const char *key, size_t length, double *below)
{
    static const struct {
        const char *name;
        size_t offset;
        double below;
    } options[] = {
        {"lr", offsetof(SkyOptimizer, learning_rate), INFINITY},
        {"momentum", offsetof(SkyOptimizer, beta1), 1},
        {"beta1", offsetof(SkyOptimizer, beta1), 1},
        {"beta2", offsetof(SkyOptimizer, beta2), 1},
        {"eps", offsetof(SkyOptimizer, epsilon), INFINITY},
        {"weight_decay", offsetof(SkyOptimizer, weight_decay), INFINITY},
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (strlen(options[i].name) == length && strncmp(options[i].name, key, length) == 0) {
            *below = options[i].below;
            return (double *)((char *)numbers + options[i].offset);
        }
    return NULL;
}

bool optimizer_parse(OptimizerSpec *spec, const char *text, Diagnostics *diagnostics)
{
    size_t name_length = strcspn(text, ":");
    bool known = false;
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++)
        if (strlen(optimizers[i].name) == name_length && strncmp(text, optimizers[i].name, name_length) == 0) {
            *spec = (OptimizerSpec){.numbers = optimizers[i].defaults};
            known = true;
        }
    if (!known)
        return usage_error(diagnostics, "use sgd, momentum, adam, adamw or lamb", "unknown optimizer '%.*s'",
                           (int)name_length, text);
    const char *rest = text + name_length + (text[name_length] == ':');
    while (*rest) {
        size_t item = strcspn(rest, ","), key = strcspn(rest, "=,");
        double below = 0, *field = option(&spec->numbers, rest, key, &below);
        char *end = NULL;
        double value = key < item ? strtod(rest + key + 1, &end) : 0;
        if (!field || item <= key + 1 || end != rest + item || !(value >= 0 && value < below))
            return usage_error(diagnostics,
                               "write for instance adamw:lr=1e-3,beta1=0.9,beta2=0.999,eps=1e-8,weight_decay=0.01",
                               "malformed optimizer option '%.*s'", (int)item, rest);
        *field = value;
        spec->rate_given |= field == &spec->numbers.learning_rate;
        rest += item + (rest[item] == ',');
    }
    return true;
}

bool append_updates(Graph *graph, const PassOptions *options, Diagnostics *diagnostics)
{
    const OptimizerSpec *spec = options->optimizer;
    static const struct {
        Opcode op;
        int states;
        const char *state_names[2];
    } updates[] = {
        [SKY_SGD] = {OP_SgdUpdate, 0, {NULL, NULL}},
        [SKY_MOMENTUM] = {OP_MomentumUpdate, 1, {"momentum", NULL}},
        [SKY_ADAM] = {OP_AdamUpdate, 2, {"adam.m", "adam.v"}},
        [SKY_ADAMW] = {OP_AdamUpdate, 2, {"adam.m", "adam.v"}},
        [SKY_LAMB] = {OP_LambUpdate, 2, {"adam.m", "adam.v"}},
    };
    if (!spec) return true;
    ValueId scalars = graph_step_scalars(graph);
    for (ValueId p = 1; p < graph->gradient_count; p++) {
        ValueId gradient = graph_gradient(graph, p);
        if (!gradient) continue;
        const char *name = graph_value(graph, p)->name;
        if (graph_value(graph, p)->dtype != DTYPE_F32)
            return diagnostics_error(diagnostics, EXIT_BAD_INPUT, (Place){.file = graph->file, .object = name},
                                     "export the model in float32", "is a parameter of type %s; only f32 is trained",
                                     dtype_name(graph_value(graph, p)->dtype));
        ValueId inputs[5] = {p, gradient, scalars};
        int count = 3;
        for (int i = 0; i < updates[spec->numbers.kind].states; i++) {
            const char *state = arena_format(&graph->arena, "%s/%s", updates[spec->numbers.kind].state_names[i], name);
            inputs[count++] = graph_add_state(graph, state, p);
        }
        Attribute decoupled = attribute_integer("decoupled", spec->numbers.kind == SKY_ADAMW);
        const Node *last = graph_producer(graph, gradient);
        NodeOrigin origin = {
            .name = name, .phase = PHASE_UPDATE, .differentiates = last->differentiates, .layer = last->layer};
        if (!graph_add_node(graph, updates[spec->numbers.kind].op, origin, inputs, count, &decoupled, 1, NULL, 0,
                            diagnostics))
            return false;
    }
    return true;
}
