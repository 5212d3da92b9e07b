#include "driver/compile/recipe.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

static Hash add_text(Hash hash, const char *text)
{
    return text ? hash_extend(hash, text, strlen(text) + 1) : hash_extend(hash, "", 0);
}

static Hash add_number(Hash hash, int64_t number) { return hash_extend(hash, &number, sizeof number); }
static Hash add_double(Hash hash, double number) { return hash_extend(hash, &number, sizeof number); }

static Hash add_value(Hash hash, const Value *value)
{
    const int64_t fields[] = {value->dtype, value->role,      value->parameter, value->frozen,
                              value->fill,  value->line_axis, value->by_token,  value->shape.rank};
    hash = hash_extend(hash, fields, sizeof fields);
    hash = hash_extend(hash, value->shape.dim, (size_t)value->shape.rank * sizeof *value->shape.dim);
    if (value->role != ROLE_ACTIVATION && value->role != ROLE_CONSTANT) hash = add_text(hash, value->name);
    if (value->role == ROLE_CONSTANT)
        hash = hash_extend(hash, value->data, (size_t)shape_elements(&value->shape) * dtype_size(value->dtype));
    return hash;
}

static Hash add_attribute(Hash hash, const Attribute *attribute)
{
    hash = add_number(add_text(hash, attribute->name), attribute->kind);
    switch (attribute->kind) {
    case ATTRIBUTE_INTEGER: return add_number(hash, attribute->integer);
    case ATTRIBUTE_FLOAT: return add_double(hash, attribute->number);
    case ATTRIBUTE_STRING: return add_text(hash, attribute->string);
    case ATTRIBUTE_INTEGERS:
        return hash_extend(hash, attribute->integers, (size_t)attribute->count * sizeof *attribute->integers);
    }
    bug("attribute kind %d", (int)attribute->kind);
}

static Hash add_node(Hash hash, const Node *node)
{
    const int64_t fields[] = {node->phase, node->layer, node->input_count, node->output_count, node->attribute_count};
    hash = hash_extend(add_text(hash, opcodes[node->op].name), fields, sizeof fields);
    hash = hash_extend(hash, node->inputs, (size_t)node->input_count * sizeof *node->inputs);
    hash = hash_extend(hash, node->outputs, (size_t)node->output_count * sizeof *node->outputs);
    for (int i = 0; i < node->attribute_count; i++) hash = add_attribute(hash, &node->attributes[i]);
    return hash;
}

static Hash add_graph(Hash hash, const Graph *graph)
{
    for (ValueId v = 1; v < graph->value_count; v++) hash = add_value(hash, graph_value(graph, v));
    for (NodeId n = 1; n < graph->node_count; n++)
        if (graph_node(graph, n)->op != OP_NONE) hash = add_node(hash, graph_node(graph, n));
    for (int i = 0; i < graph->label_count; i++) {
        const Labels *labels = &graph->labels[i];
        const int64_t fields[] = {labels->input, labels->kind, labels->ignore_index, labels->weights, labels->shifted};
        hash = hash_extend(hash, fields, sizeof fields);
    }
    return hash_extend(add_number(hash, graph->loss), &graph->packing, sizeof graph->packing);
}

static const char *hash_text(Hash hash, Arena *arena)
{
    char text[33];
    return arena_string(arena, hash_format(hash, text));
}

/* In the order of the model, so that the cuts between stages do not matter. */
static Hash hash_weights(const SkyProgram *program, const StageCode *stages, size_t stage_count)
{
    FREED const SkyParameter **parameters = memory_allocate((program->total_parameter_count + 1) * sizeof *parameters);
    Hash hash = {0};
    bool drawn = false;
    for (size_t s = 0; s < stage_count; s++)
        for (uint32_t p = 0; p < stages[s].stage.parameter_count; p++)
            parameters[stages[s].stage.parameters[p].global_index] = &stages[s].stage.parameters[p];
    for (uint32_t i = 0; i < program->total_parameter_count; i++) {
        const SkyParameter *parameter = parameters[i];
        if (!parameter) continue;
        hash = add_number(add_text(hash, parameter->value.name), (int64_t)parameter->initial_check);
        hash = add_double(add_double(hash, parameter->initial_mean), parameter->initial_deviation);
        drawn |= parameter->initial_deviation > 0;
    }
    return drawn ? add_number(hash, (int64_t)program->seed) : hash;
}

static const char *describe_settings(const SkyProgram *program, Arena *arena, const TrainingModel *model,
                                     WeightInit init)
{
    static const char *const precisions[] = {"f32", "bf16", "bf16x3"};
    static const char *const names[SKY_OPTIMIZER_COUNT] = {"sgd", "momentum", "adam", "adamw", "lamb"};
    const SkyOptimizer *optimizer = &program->optimizer;
    return arena_format(
        arena,
        "%s--precision %s\n--optimizer %s:lr=%.15g,beta1=%.15g,beta2=%.15g,eps=%.15g,weight_decay=%.15g\n"
        "--clip %.15g\n--init %s\n--seed %llu\n",
        model->settings, precisions[model->precision], names[optimizer->kind], optimizer->learning_rate,
        optimizer->beta1, optimizer->beta2, optimizer->epsilon, optimizer->weight_decay, program->clip,
        init.drawn ? arena_format(arena, "normal:%.6g", (double)init.deviation) : "none",
        (unsigned long long)program->seed);
}

SkyOptimizer recipe_optimizer(const TrainingModel *model)
{
    static const double fine_tuning_rate = 5e-5;
    SkyOptimizer optimizer = model->optimizer.numbers;
    bool adam = optimizer.kind == SKY_ADAM || optimizer.kind == SKY_ADAMW;
    if (adam && !model->optimizer.rate_given) optimizer.learning_rate = fine_tuning_rate;
    return optimizer;
}

void recipe_describe(SkyProgram *program, Arena *arena, const TrainingModel *model, WeightInit init)
{
    Hash hash = add_graph((Hash){0}, &model->graph);
    hash = hash_extend(add_number(hash, model->precision), &program->optimizer, sizeof program->optimizer);
    program->recipe_hash = hash_text(add_double(hash, program->clip), arena);
    program->settings = describe_settings(program, arena, model, init);
}

void recipe_describe_weights(SkyProgram *program, Arena *arena, const StageCode *stages, size_t stage_count)
{
    program->weights_hash = hash_text(hash_weights(program, stages, stage_count), arena);
}
