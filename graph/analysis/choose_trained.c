#include "graph/analysis/choose_trained.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/ops/operator.h"

typedef struct Use {
    NodeId node;
    int input;
} Use;

struct UseSurvey {
    const Graph *graph;
    Use *uses;         /* sorted by value */
    uint32_t *first;   /* per value: its first use; value_count + 1 of them */
    bool *from_inputs; /* per value: depends on a graph input */
    bool *activation;  /* ... on weights as well, or on an input that is itself float: what is learned from passes here,
                          and not only positions and masks */
    bool *outside_trigonometry; /* some output is reached otherwise than through a sine or a cosine */
    bool *visited;              /* nodes, while one parameter is looked at */
};

static void index_uses(UseSurvey *survey)
{
    const Graph *graph = survey->graph;
    for (int fill = 0; fill < 2; fill++) {
        for (NodeId n = 1; n < graph->node_count; n++) {
            const Node *node = graph_node(graph, n);
            for (int i = 0; node->op != OP_NONE && i < node->input_count; i++) {
                ValueId value = node->inputs[i];
                if (!value) continue;
                if (fill)
                    survey->uses[survey->first[value]++] = (Use){n, i};
                else
                    survey->first[value + 1]++;
            }
        }
        if (fill) break;
        for (size_t v = 0; v < graph->value_count; v++) survey->first[v + 1] += survey->first[v];
        survey->uses = memory_allocate((survey->first[graph->value_count] + 1) * sizeof *survey->uses);
    }
    memmove(survey->first + 1, survey->first, graph->value_count * sizeof *survey->first);
    survey->first[0] = 0;
}

static void follow_forward(UseSurvey *survey)
{
    const Graph *graph = survey->graph;
    FREED bool *weight = memory_allocate(graph->value_count);
    for (ValueId v = 1; v < graph->value_count; v++) {
        const Value *value = graph_value(graph, v);
        survey->from_inputs[v] = value->role == ROLE_INPUT;
        survey->activation[v] = value->role == ROLE_INPUT && dtype_is_float(value->dtype);
        weight[v] = (value->role == ROLE_PARAMETER || value->frozen) && shape_elements(&value->shape) > 1;
    }
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        bool from_inputs = false, activation = false, weighs = false;
        for (int i = 0; node->op != OP_NONE && i < node->input_count; i++) {
            from_inputs |= survey->from_inputs[node->inputs[i]];
            activation |= survey->activation[node->inputs[i]];
            weighs |= weight[node->inputs[i]];
        }
        for (int i = 0; i < node->output_count; i++) {
            DType dtype = graph_value(graph, node->outputs[i])->dtype;
            bool floats = dtype_is_float(dtype), quantized = dtype == DTYPE_I8 || dtype == DTYPE_U8;
            bool waves = operator_has(node->op, IS_WAVE); /* of positions: as good as a mask */
            weight[node->outputs[i]] = weighs && (floats || quantized) && !waves;
            survey->from_inputs[node->outputs[i]] = from_inputs;
            survey->activation[node->outputs[i]] = floats && !waves && (activation || (from_inputs && weighs));
        }
    }
}

static void follow_backward(UseSurvey *survey)
{
    const Graph *graph = survey->graph;
    for (size_t i = 0; i < graph->output_count; i++) survey->outside_trigonometry[graph->outputs[i].value] = true;
    for (NodeId n = (NodeId)graph->node_count - 1; n > 0; n--) {
        const Node *node = graph_node(graph, n);
        bool outside = false;
        if (node->op == OP_NONE || operator_has(node->op, IS_WAVE)) continue;
        for (int i = 0; i < node->output_count; i++) outside |= survey->outside_trigonometry[node->outputs[i]];
        for (int i = 0; outside && i < node->input_count; i++) survey->outside_trigonometry[node->inputs[i]] = true;
    }
}

UseSurvey *use_survey_create(const Graph *graph)
{
    UseSurvey *survey = memory_allocate(sizeof *survey);
    *survey = (UseSurvey){.graph = graph,
                          .first = memory_allocate((graph->value_count + 1) * sizeof *survey->first),
                          .from_inputs = memory_allocate(graph->value_count),
                          .activation = memory_allocate(graph->value_count),
                          .outside_trigonometry = memory_allocate(graph->value_count),
                          .visited = memory_allocate(graph->node_count)};
    index_uses(survey);
    follow_forward(survey);
    follow_backward(survey);
    return survey;
}

void use_survey_free(UseSurvey *survey)
{
    free(survey->uses);
    free(survey->first);
    free(survey->from_inputs);
    free(survey->activation);
    free(survey->outside_trigonometry);
    free(survey->visited);
    free(survey);
}

static TrainedChoice trained(const char *why) { return (TrainedChoice){.trained = true, .why = why}; }
static TrainedChoice fixed(const char *why) { return (TrainedChoice){.why = why}; }
static TrainedChoice fixed_by_numbers(const char *why) { return (TrainedChoice){.by_numbers = true, .why = why}; }
static TrainedChoice perhaps(bool is_trained, const char *why)
{
    return (TrainedChoice){.trained = is_trained, .unsure = true, .why = why};
}

/* Of two uses the one that says more: being trained for certain, then fixed for certain, then anything. */
static TrainedChoice stronger(TrainedChoice a, TrainedChoice b)
{
    if (!a.why || !b.why) return a.why ? a : b;
    if (a.unsure != b.unsure) return a.unsure ? b : a;
    return b.trained && !a.trained ? b : a;
}

static bool is_constant_filled(const Graph *graph, ValueId parameter)
{
    const Value *value = graph_value(graph, parameter);
    int64_t count = shape_elements(&value->shape);
    size_t size = dtype_size(value->dtype);
    return value->data &&
           (count < 2 || memcmp(value->data, (const char *)value->data + size, (size_t)(count - 1) * size) == 0);
}

/* Whether the value is a product of matrices, perhaps seen otherwise, with columns of one element only: what is added
 * to it is a bias even if it is one number, as that of a regression. */
static bool is_single_column(const Graph *graph, ValueId id)
{
    const Value *value = graph_value(graph, id);
    const Node *node = graph_node(graph, value->producer);
    while (operator_has(node->op, IS_MOVEMENT)) {
        value = graph_value(graph, node->inputs[0]);
        node = graph_node(graph, value->producer);
    }
    return operator_has(node->op, IS_PRODUCT) && value->shape.dim[value->shape.rank - 1] == 1;
}

static bool is_addition(const Node *node) { return operator_has(node->op, IS_SUM) && operator_has(node->op, COMMUTES); }

enum { STEPS_TO_SOFTMAX = 8 };

/* Whether the value, on its way through sums, and perhaps products, is what a softmax normalises next. */
static bool becomes_scores(const UseSurvey *survey, ValueId value, bool through_products, int depth)
{
    unsigned product = through_products ? IS_PRODUCT : 0;
    for (uint32_t u = survey->first[value]; depth > 0 && u < survey->first[value + 1]; u++) {
        const Node *node = graph_node(survey->graph, survey->uses[u].node);
        if (operator_has(node->op, NORMALISES)) return true;
        bool passes = operator_has(node->op, IS_MOVEMENT | CONVERTS | IS_SUM | IS_SCALING | product) ||
                      (operator_has(node->op, IS_MAP) && operator_has(node->op, FILLS));
        if (passes && becomes_scores(survey, node->outputs[0], through_products, depth - 1)) return true;
    }
    return false;
}

static TrainedChoice choose_by_uses(UseSurvey *survey, ValueId parameter, ValueId seen);

/* One number by which, or to which, something is computed. */
static TrainedChoice choose_number(UseSurvey *survey, const Node *node, int input)
{
    if (is_addition(node) && is_single_column(survey->graph, node->inputs[1 - input]))
        return trained("is the bias of a matrix product");
    if (operator_has(node->op, IS_SCALING) && becomes_scores(survey, node->outputs[0], true, STEPS_TO_SOFTMAX))
        return fixed("scales the scores of attention");
    return perhaps(false, "is one number that something is computed with");
}

/* Whether the value has a row for every row of the batch that the node computes. */
static bool has_batch(const Graph *graph, ValueId value, const Node *node)
{
    const Shape *shape = &graph_value(graph, value)->shape, *result = &graph_value(graph, node->outputs[0])->shape;
    return shape->rank > 2 && shape->rank == result->rank && shape->dim[0] > 1 && shape->dim[0] == result->dim[0];
}

/* Whether all parts along the axis are equal. */
static bool repeats_along(const Value *value, int axis)
{
    size_t inner = dtype_size(value->dtype), outer = 1;
    for (int i = 0; i < value->shape.rank; i++) {
        if (i < axis) outer *= (size_t)value->shape.dim[i];
        if (i > axis) inner *= (size_t)value->shape.dim[i];
    }
    size_t count = (size_t)value->shape.dim[axis];
    for (size_t o = 0; o < outer; o++)
        for (size_t k = 1; k < count; k++)
            if (memcmp((const char *)value->data + o * count * inner,
                       (const char *)value->data + (o * count + k) * inner, inner) != 0)
                return false;
    return true;
}

/* What is added to the scores of attention: no bias of a product, which is a vector. */
static TrainedChoice choose_bias_of_scores(const Graph *graph, ValueId parameter, const Node *node, int input)
{
    const Value *value = graph_value(graph, parameter);
    bool filled = is_constant_filled(graph, parameter);
    if (filled && has_batch(graph, node->inputs[input], node))
        return fixed_by_numbers("is one number throughout, added to the scores of every row of the batch: a mask");
    if (filled) return perhaps(false, "is one number throughout, added to the scores of attention, as a mask is");
    if (elements_are_linear(value)) return fixed_by_numbers("is linear in positions, added to the scores of attention");
    if (value->data && has_batch(graph, parameter, node) && !repeats_along(value, 0))
        return perhaps(false, "has other numbers for every row of the batch, added to the scores of attention");
    return perhaps(true, "is added to the scores of attention, as what an exporter folded of positions is");
}

static TrainedChoice choose_sum(UseSurvey *survey, ValueId parameter, const Node *node, int input)
{
    ValueId other = node->inputs[1 - input];
    if (!survey->activation[other]) return choose_by_uses(survey, parameter, node->outputs[0]);
    if (!is_addition(node)) return perhaps(false, "is subtracted, or subtracted from");
    const Graph *graph = survey->graph;
    const Shape *shape = &graph_value(graph, parameter)->shape;
    bool looked_up = shape->rank == 2 && graph_value(graph, node->inputs[input])->shape.rank > 2;
    if (shape->rank > 1 && !looked_up && becomes_scores(survey, node->outputs[0], false, STEPS_TO_SOFTMAX))
        return choose_bias_of_scores(graph, parameter, node, input);
    if (shape->rank == 2 && shape->dim[0] == 1 && is_constant_filled(graph, parameter))
        return perhaps(false, "is a row of one number throughout, as buffers are (biases are vectors)");
    return trained(shape->rank > 1 ? "is a table that is added" : "is a bias");
}

static TrainedChoice choose_factor(const UseSurvey *survey, const Node *node, int input)
{
    if (!survey->activation[node->inputs[1 - input]]) return perhaps(false, "multiplies positions or masks only");
    if (operator_has(node->op, COMMUTES)) return trained("is a gain");
    return perhaps(false, input ? "divides" : "is divided");
}

static TrainedChoice choose_filling(UseSurvey *survey, ValueId parameter, bool joined)
{
    if (is_constant_filled(survey->graph, parameter))
        return perhaps(false, joined ? "is padding, one number throughout" : "fills places, one number throughout");
    return joined ? trained("is joined with activations") : trained("stands in for activations");
}

static const char a_factor[] = "is a factor of a matrix product";

static TrainedChoice choose_by_use(UseSurvey *survey, ValueId parameter, Use use)
{
    const Graph *graph = survey->graph;
    const Node *node = graph_node(graph, use.node);
    if (!dtype_is_float(graph_value(graph, node->outputs[0])->dtype)) return fixed("is only compared with");
    if (operator_has(node->op, IS_MOVEMENT | CONVERTS)) return choose_by_uses(survey, parameter, node->outputs[0]);
    if (operator_has(node->op, HAS_GAIN) && use.input > 0)
        return trained(use.input == 1 ? "is the gain of a normalisation" : "is the bias of a normalisation");
    bool number = shape_elements(&graph_value(graph, parameter)->shape) == 1;
    bool joins_map = operator_has(node->op, IS_MAP) && node->input_count > 1;
    if (number && (joins_map || operator_has(node->op, FILLS))) return choose_number(survey, node, use.input);
    if (operator_has(node->op, SELECTS) && operator_has(node->op, IS_LOOKUP) && use.input == 0 &&
        survey->from_inputs[node->inputs[1]])
        return graph_value(graph, parameter)->shape.rank > 1
                   ? trained("is a table that is gathered from")
                   : perhaps(false, "is a vector that is gathered from, as the weights of classes are");
    if (operator_has(node->op, IS_PRODUCT) && survey->from_inputs[node->inputs[1 - use.input]])
        return trained(a_factor);
    if (!survey->from_inputs[node->outputs[0]]) { /* weights of weights: what they become decides */
        TrainedChoice choice = choose_by_uses(survey, parameter, node->outputs[0]);
        return choice.why || !operator_has(node->op, IS_PRODUCT) ? choice : trained(a_factor);
    }
    if (operator_has(node->op, IS_SUM)) return choose_sum(survey, parameter, node, use.input);
    if (operator_has(node->op, IS_SCALING)) return choose_factor(survey, node, use.input);
    if (operator_has(node->op, FILLS)) return choose_filling(survey, parameter, !joins_map);
    if (operator_has(node->op, IS_LOOKUP)) return trained("is a table that is gathered from");
    if (joins_map) return perhaps(false, "is an exponent or a bound");
    return perhaps(true, "is used in a way that says neither");
}

/* `seen` is the parameter, or what is computed of it and of nothing that depends on inputs. */
static TrainedChoice choose_by_uses(UseSurvey *survey, ValueId parameter, ValueId seen)
{
    TrainedChoice choice = {0};
    for (uint32_t u = survey->first[seen]; u < survey->first[seen + 1]; u++) {
        Use use = survey->uses[u];
        if (survey->visited[use.node]) continue;
        survey->visited[use.node] = true;
        choice = stronger(choice, choose_by_use(survey, parameter, use));
        if (choice.trained && !choice.unsure) break;
    }
    return choice;
}

/* With fixed shapes an exporter expands a parameter to all rows of the batch, or all positions, and folds what it
 * becomes: token types, or the vector of a first token. */
static bool is_expanded(const UseSurvey *survey, ValueId parameter)
{
    const Value *value = graph_value(survey->graph, parameter);
    if (!value->data || value->shape.rank < 3) return false;
    for (uint32_t u = survey->first[parameter]; u < survey->first[parameter + 1]; u++) {
        const Node *node = graph_node(survey->graph, survey->uses[u].node);
        const Shape *result = &graph_value(survey->graph, node->outputs[0])->shape;
        if (!operator_has(node->op, IS_MAP | FILLS) || !survey->from_inputs[node->outputs[0]]) continue;
        if (has_batch(survey->graph, parameter, node) && repeats_along(value, 0)) return true;
        if (value->shape.rank == result->rank && value->shape.dim[1] > 1 && value->shape.dim[1] == result->dim[1] &&
            !is_constant_filled(survey->graph, parameter) && repeats_along(value, 1))
            return true;
    }
    return false;
}

/* Weights have no dimension for a batch. */
static bool is_activation(const UseSurvey *survey, ValueId parameter)
{
    const Shape *shape = &graph_value(survey->graph, parameter)->shape;
    for (uint32_t u = survey->first[parameter]; u < survey->first[parameter + 1]; u++)
        if (shape->rank > 3 && shape->dim[0] == 1 &&
            operator_has(graph_node(survey->graph, survey->uses[u].node)->op, IS_PRODUCT))
            return true;
    return false;
}

TrainedChoice choose_trained(UseSurvey *survey, ValueId parameter)
{
    const Value *value = graph_value(survey->graph, parameter);
    if (!survey->outside_trigonometry[parameter])
        return fixed_by_numbers("reaches outputs through sines and cosines only: frequencies of positions");
    if (elements_are_sinusoids(value->dtype, &value->shape, value->data))
        return fixed_by_numbers("holds sines and cosines of positions");
    memset(survey->visited, 0, survey->graph->node_count);
    TrainedChoice choice = choose_by_uses(survey, parameter, parameter);
    bool table = shape_elements(&value->shape) > 1 && choice.trained, product = choice.why == a_factor;
    if (table && value->shape.rank > 1 && elements_are_mask(value->dtype, &value->shape, value->data)) {
        choice = fixed_by_numbers("holds nothing but 0 and one number: a mask");
        choice.mask = true;
    }
    choice.matrix = (choice.trained || choice.mask) && value->shape.rank == 2 && product;
    choice.copies = choice.trained && is_expanded(survey, parameter);
    choice.activation = choice.trained && is_activation(survey, parameter);
    return choice.why ? choice : perhaps(false, "reaches no output by itself");
}
