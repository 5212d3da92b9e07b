#include "codegen/stage.h"

#include <stdlib.h>
#include <string.h>

#include "codegen/memory.h"
#include "graph/kernel_fusion.h"
#include "graph/operator.h"

typedef struct NodeList {
    NodeId *nodes;
    size_t count, capacity;
} NodeList;

typedef struct ValueList {
    ValueId *values;
    size_t count, capacity;
} ValueList;

typedef struct Builder {
    StageCode *code;
    Graph *graph;
    int first_layer, last_layer;
    Lowering lowering;
    NodeList forward, backward, update;
    ValueList receive_forward, send_forward, receive_backward, send_backward, outputs;
    size_t forward_end, backward_end, update_end; /* in lowering.calls */
    bool *kept;                                   /* per value: lives in the slot, or in the state */
    SkyLocation *location;                        /* per value */
    bool *placed;
    struct KernelTable {
        Hash hash;
        const Kernel *kernel;
    } * kernels;
    size_t kernel_count, kernel_capacity;
    Buffer constants;
    uint64_t state_bytes, slot_bytes;
} Builder;

/* --- Which nodes and values belong to the stage ----------------------------------------------------------------------
 */

static bool in_stage(const Builder *builder, int layer)
{
    return layer >= builder->first_layer && layer <= builder->last_layer;
}

static bool is_last(const Builder *builder) { return builder->last_layer == builder->graph->layer_count - 1; }

static void collect_nodes(Builder *builder)
{
    Graph *graph = builder->graph;
    bool *needed = memory_allocate(graph->value_count);
    bool *chosen = memory_allocate(graph->node_count);
    for (size_t i = 0; i < graph->output_count && is_last(builder); i++) needed[graph->outputs[i].value] = true;
    for (NodeId n = (NodeId)graph->node_count - 1; n > 0; n--) {
        const Node *node = graph_node(graph, n);
        if (node->op == OP_NONE) continue;
        bool wanted = in_stage(builder, node->layer);
        if (node->layer == LAYER_NONE) /* a function of the inputs: computed wherever it is read */
            for (int i = 0; i < node->output_count; i++) wanted |= needed[node->outputs[i]];
        chosen[n] = wanted;
        for (int i = 0; wanted && i < node->input_count; i++) needed[node->inputs[i]] = true;
    }
    for (NodeId n = 1; n < graph->node_count; n++) {
        if (!chosen[n]) continue;
        Phase phase = graph_node(graph, n)->phase;
        NodeList *list = phase == PHASE_FORWARD    ? &builder->forward
                         : phase == PHASE_BACKWARD ? &builder->backward
                                                   : &builder->update;
        array_push(list->nodes, list->count, list->capacity, n);
    }
    free(needed);
    free(chosen);
}

static void list_add(ValueList *list, ValueId value) { array_push(list->values, list->count, list->capacity, value); }

/* The values that cross the cut before layer `cut`, in `phase`: forward ones are made before and read behind it,
 * backward ones the other way round. */
static void collect_crossing(const Graph *graph, int cut, Phase phase, ValueList *list)
{
    if (cut <= 0 || cut >= graph->layer_count) return;
    bool *read_beyond = memory_allocate(graph->value_count);
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        if (node->op == OP_NONE || node->phase != phase || node->layer == LAYER_NONE) continue;
        if ((node->layer >= cut) == (phase == PHASE_FORWARD))
            for (int i = 0; i < node->input_count; i++) read_beyond[node->inputs[i]] = true;
    }
    for (ValueId v = 1; v < graph->value_count; v++) {
        const Value *value = graph_value(graph, v);
        if (!read_beyond[v] || !value->producer) continue;
        const Node *node = graph_node(graph, value->producer);
        if (node->phase == phase && node->layer != LAYER_NONE && (node->layer < cut) == (phase == PHASE_FORWARD))
            list_add(list, v);
    }
    free(read_beyond);
}

static void collect_boundaries(Builder *builder)
{
    const Graph *graph = builder->graph;
    collect_crossing(graph, builder->first_layer, PHASE_FORWARD, &builder->receive_forward);
    collect_crossing(graph, builder->last_layer + 1, PHASE_FORWARD, &builder->send_forward);
    collect_crossing(graph, builder->last_layer + 1, PHASE_BACKWARD, &builder->receive_backward);
    collect_crossing(graph, builder->first_layer, PHASE_BACKWARD, &builder->send_backward);
    for (size_t i = 0; i < graph->output_count; i++) {
        const Value *value = graph_value(graph, graph->outputs[i].value);
        int layer = value->producer ? graph_node(graph, value->producer)->layer : LAYER_NONE;
        if (layer == LAYER_NONE ? is_last(builder) : in_stage(builder, layer))
            list_add(&builder->outputs, graph->outputs[i].value);
    }
}

/* --- Lowering
 * --------------------------------------------------------------------------------------------------------- */

static void materialize_all(Builder *builder, const ValueList *list)
{
    for (size_t i = 0; i < list->count; i++) lowering_materialize(&builder->lowering, list->values[i]);
}

static void keep_all(Builder *builder, const ValueList *list)
{
    for (size_t i = 0; i < list->count; i++) builder->kept[list->values[i]] = true;
}

static bool stage_has_loss(const Builder *builder) { return builder->graph->loss && is_last(builder); }

static void lower_stage(Builder *builder)
{
    Lowering *lowering = &builder->lowering;
    Graph *graph = builder->graph;
    lowering_begin(lowering, graph);
    for (size_t i = 0; i < builder->receive_forward.count; i++)
        lowering_stop_at(lowering, builder->receive_forward.values[i]);
    lowering_run(lowering, builder->forward.nodes, builder->forward.count);
    materialize_all(builder, &builder->send_forward);
    materialize_all(builder, &builder->outputs);
    if (stage_has_loss(builder)) lowering_materialize(lowering, graph->loss);
    builder->forward_end = lowering->call_count;

    for (size_t i = 0; i < builder->receive_backward.count; i++)
        lowering_stop_at(lowering, builder->receive_backward.values[i]);
    lowering_run(lowering, builder->backward.nodes, builder->backward.count);
    materialize_all(builder, &builder->send_backward);
    builder->backward_end = lowering->call_count;

    lowering_run(lowering, builder->update.nodes, builder->update.count);
    builder->update_end = lowering->call_count;
}

static bool lives_in_state(const Value *value)
{
    return value->role == ROLE_PARAMETER || value->role == ROLE_STATE ||
           (value->role == ROLE_ACTIVATION && value->parameter);
}

/* Marks what must outlive the list of calls it is written by. */
static void mark_kept(Builder *builder)
{
    const Lowering *lowering = &builder->lowering;
    size_t values = builder->graph->value_count;
    builder->kept = memory_allocate(values);
    bool *written = memory_allocate(values);
    for (size_t c = 0; c < builder->backward_end; c++) {
        const LoweredCall *call = &lowering->calls[c];
        for (int i = 0; i < call->kernel->operand_count; i++) {
            ValueId value = call->operands[i].value;
            if (c < builder->forward_end)
                written[value] |= call->kernel->operands[i].written;
            else if (written[value])
                builder->kept[value] = true;
        }
    }
    for (ValueId v = 1; v < values; v++)
        if (lives_in_state(graph_value(builder->graph, v))) builder->kept[v] = true;
    keep_all(builder, &builder->receive_forward);
    keep_all(builder, &builder->send_forward);
    keep_all(builder, &builder->receive_backward);
    keep_all(builder, &builder->send_backward);
    keep_all(builder, &builder->outputs);
    if (stage_has_loss(builder)) builder->kept[builder->graph->loss] = true;
    free(written);
}

/* --- Places
 * ----------------------------------------------------------------------------------------------------------- */

static uint64_t value_bytes(const Graph *graph, ValueId id)
{
    const Value *value = graph_value(graph, id);
    return (uint64_t)shape_elements(&value->shape) * dtype_size(value->dtype);
}

static void place(Builder *builder, ValueId value, SkySpace space, uint64_t *used)
{
    if (builder->placed[value]) return;
    builder->placed[value] = true;
    builder->location[value] = (SkyLocation){.space = (uint32_t)space, .offset = *used};
    *used += align_bytes(value_bytes(builder->graph, value));
}

static void place_constant(Builder *builder, ValueId value)
{
    if (builder->placed[value]) return;
    buffer_align(&builder->constants, BUFFER_ALIGNMENT);
    uint64_t used = builder->constants.size;
    place(builder, value, SKY_SPACE_CONSTANT, &used);
    buffer_append(&builder->constants, graph_value(builder->graph, value)->data, value_bytes(builder->graph, value));
}

/* Everything that is not scratch. */
static void place_lasting(Builder *builder)
{
    const Lowering *lowering = &builder->lowering;
    Graph *graph = builder->graph;
    uint64_t step = 0;
    for (size_t i = 0; i < builder->receive_forward.count; i++)
        place(builder, builder->receive_forward.values[i], SKY_SPACE_SLOT, &builder->slot_bytes);
    for (size_t i = 0; i < builder->receive_backward.count; i++)
        place(builder, builder->receive_backward.values[i], SKY_SPACE_SLOT, &builder->slot_bytes);
    for (size_t c = 0; c < lowering->call_count; c++) {
        const LoweredCall *call = &lowering->calls[c];
        for (int i = 0; !call->dead && i < call->kernel->operand_count; i++) {
            ValueId id = call->operands[i].value;
            const Value *value = graph_value(graph, id);
            if (value->role == ROLE_CONSTANT)
                place_constant(builder, id);
            else if (value->role == ROLE_SCALARS)
                place(builder, id, SKY_SPACE_STEP, &step);
            else if (value->role == ROLE_INPUT || (builder->kept[id] && !lives_in_state(value)))
                place(builder, id, SKY_SPACE_SLOT, &builder->slot_bytes);
        }
    }
    /* Outputs that are inputs or constants unchanged still need a place to be read from. */
    for (size_t i = 0; i < builder->outputs.count; i++) {
        ValueId id = builder->outputs.values[i];
        if (graph_value(graph, id)->role == ROLE_CONSTANT)
            place_constant(builder, id);
        else
            place(builder, id, SKY_SPACE_SLOT, &builder->slot_bytes);
    }
}

/* Temporaries of the calls first ... end - 1, packed by lifetime. Returns the bytes they need. */
static uint64_t place_scratch(Builder *builder, size_t first, size_t end)
{
    const Lowering *lowering = &builder->lowering;
    size_t count = 0, capacity = 0;
    BufferLifetime *lifetimes = NULL;
    ValueList values = {0};
    size_t *index = memory_allocate(builder->graph->value_count * sizeof *index); /* 1 + position in lifetimes */
    for (size_t c = first; c < end; c++) {
        const LoweredCall *call = &lowering->calls[c];
        for (int i = 0; !call->dead && i < call->kernel->operand_count; i++) {
            ValueId value = call->operands[i].value;
            if (builder->placed[value]) continue;
            if (!index[value]) {
                if (!call->kernel->operands[i].written)
                    bug("call %zu (%s of '%s') reads value %u before anything writes it", c, call->kernel->label,
                        graph_node(builder->graph, call->node)->name, value);
                BufferLifetime lifetime = {.bytes = value_bytes(builder->graph, value), .first = c};
                array_push(lifetimes, count, capacity, lifetime);
                list_add(&values, value);
                index[value] = count;
            }
            lifetimes[index[value] - 1].last = c;
        }
    }
    uint64_t bytes = memory_pack(lifetimes, count);
    for (size_t i = 0; i < count; i++) {
        builder->placed[values.values[i]] = true;
        builder->location[values.values[i]] = (SkyLocation){.space = SKY_SPACE_SCRATCH, .offset = lifetimes[i].offset};
    }
    free(values.values);
    free(lifetimes);
    free(index);
    return bytes;
}

/* --- Tables
 * ------------------------------------------------------------------------------------------------------------ */

static const Kernel *intern_kernel(Builder *builder, Kernel *kernel)
{
    kernel_canonicalize(kernel);
    kernel_verify(kernel);
    Hash hash = kernel_hash(kernel);
    for (size_t i = 0; i < builder->kernel_count; i++)
        if (builder->kernels[i].hash.high == hash.high && builder->kernels[i].hash.low == hash.low)
            return builder->kernels[i].kernel;
    Kernel *copy = arena_copy(&builder->code->arena, kernel, sizeof *kernel);
    copy->label = arena_string(&builder->code->arena, kernel->label);
    struct KernelTable entry = {hash, copy};
    array_push(builder->kernels, builder->kernel_count, builder->kernel_capacity, entry);
    return copy;
}

static const SkyCall *call_table(Builder *builder, size_t first, size_t end, uint32_t *count)
{
    const Graph *graph = builder->graph;
    Arena *arena = &builder->code->arena;
    SkyCall *calls = arena_new_array(arena, SkyCall, end - first);
    *count = 0;
    for (size_t c = first; c < end; c++) {
        const LoweredCall *lowered = &builder->lowering.calls[c];
        if (lowered->dead) continue;
        int operands = lowered->kernel->operand_count;
        SkyLocation *locations = arena_new_array(arena, SkyLocation, (size_t)operands);
        for (int i = 0; i < operands; i++) {
            ValueId value = lowered->operands[i].value;
            locations[i] = builder->location[value];
            locations[i].offset += (uint64_t)lowered->operands[i].offset * dtype_size(graph_value(graph, value)->dtype);
        }
        const Node *node = graph_node(graph, lowered->node);
        calls[(*count)++] = (SkyCall){
            .operands = locations,
            .operand_count = (uint32_t)operands,
            .layer = (uint32_t)(node->layer == LAYER_NONE ? builder->first_layer : node->layer),
            .units = 1,
            .grain = 1,
            .name = arena_format(arena, "%s %s", node->name, lowered->kernel->label),
            .interpreted = intern_kernel(builder, lowered->kernel),
        };
    }
    return calls;
}

static SkyTensor tensor_of(Builder *builder, ValueId id, const char *name)
{
    const Value *value = graph_value(builder->graph, id);
    SkyTensor tensor = {.dtype = value->dtype,
                        .rank = (uint32_t)value->shape.rank,
                        .bytes = value_bytes(builder->graph, id),
                        .location = builder->location[id]};
    tensor.name = name ? arena_string(&builder->code->arena, name) : arena_format(&builder->code->arena, "%%%u", id);
    memcpy(tensor.dim, value->shape.dim, (size_t)value->shape.rank * sizeof tensor.dim[0]);
    return tensor;
}

static const SkyTensor *tensor_table(Builder *builder, const ValueList *list, uint32_t *count)
{
    SkyTensor *tensors = arena_new_array(&builder->code->arena, SkyTensor, list->count);
    for (size_t i = 0; i < list->count; i++)
        tensors[i] = tensor_of(builder, list->values[i], graph_value(builder->graph, list->values[i])->name);
    *count = (uint32_t)list->count;
    return tensors;
}

/* The least extent of a table that the input indexes, directly or reshaped or converted; 0 if it indexes none. */
static int64_t index_limit(const Graph *graph, ValueId input)
{
    int64_t limit = 0;
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        if (node->op != OP_Gather) continue;
        ValueId source = node->inputs[1];
        while (graph_value(graph, source)->producer) {
            const Node *producer = graph_node(graph, graph_value(graph, source)->producer);
            if (producer->input_count != 1) break;
            source = producer->inputs[0];
        }
        const Shape *shape = &graph_value(graph, node->inputs[0])->shape;
        int64_t axis = node_integer(node, "axis", 0);
        int64_t extent = shape->dim[axis < 0 ? axis + shape->rank : axis];
        if (source == input && (!limit || extent < limit)) limit = extent;
    }
    return limit;
}

static void input_table(Builder *builder)
{
    const Graph *graph = builder->graph;
    SkyStage *stage = &builder->code->stage;
    SkyTensor *inputs = arena_new_array(&builder->code->arena, SkyTensor, graph->input_count);
    for (size_t i = 0; i < graph->input_count; i++) {
        ValueId id = graph->inputs[i];
        if (!builder->placed[id]) continue;
        SkyTensor *tensor = &inputs[stage->input_count++];
        *tensor = tensor_of(builder, id, graph_value(graph, id)->name);
        tensor->value_limit = index_limit(graph, id);
    }
    stage->inputs = inputs;
}

static void output_table(Builder *builder)
{
    const Graph *graph = builder->graph;
    SkyStage *stage = &builder->code->stage;
    SkyTensor *outputs = arena_new_array(&builder->code->arena, SkyTensor, builder->outputs.count);
    for (size_t i = 0; i < graph->output_count; i++)
        for (size_t k = 0; k < builder->outputs.count; k++)
            if (builder->outputs.values[k] == graph->outputs[i].value && stage->output_count < builder->outputs.count) {
                outputs[stage->output_count++] = tensor_of(builder, graph->outputs[i].value, graph->outputs[i].name);
                break;
            }
    stage->outputs = outputs;
}

/* 1: a bias; 2: gain or bias of a normalisation; 0: everything else. */
static uint32_t decay_exempt_class(const Graph *graph, ValueId parameter)
{
    const Value *value = graph_value(graph, parameter);
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        if (node->op == OP_LayerNormalization &&
            (node->inputs[1] == parameter || (node->input_count > 2 && node->inputs[2] == parameter)))
            return 2;
    }
    return value->shape.rank == 1 ? 1 : 0;
}

static const Node *update_of(const Builder *builder, ValueId parameter, uint32_t *index)
{
    for (size_t i = 0; i < builder->update.count; i++) {
        const Node *node = graph_node(builder->graph, builder->update.nodes[i]);
        if (node->inputs[0] == parameter) {
            *index = (uint32_t)i;
            return node;
        }
    }
    return NULL;
}

/* Parameters that the stage's nodes read, in the order of the model. State: all values, then all gradients, then the
 * optimiser's. */
static void place_parameters(Builder *builder)
{
    Graph *graph = builder->graph;
    StageCode *code = builder->code;
    SkyStage *stage = &code->stage;
    bool *used = memory_allocate(graph->value_count);
    const NodeList *lists[] = {&builder->forward, &builder->backward};
    for (int l = 0; l < 2; l++)
        for (size_t i = 0; i < lists[l]->count; i++) {
            const Node *node = graph_node(graph, lists[l]->nodes[i]);
            for (int k = 0; k < node->input_count; k++) used[node->inputs[k]] = true;
        }
    ValueList parameters = {0};
    for (ValueId v = 1; v < graph->value_count; v++)
        if (graph_value(graph, v)->role == ROLE_PARAMETER && used[v]) list_add(&parameters, v);
    for (size_t i = 0; i < parameters.count; i++)
        place(builder, parameters.values[i], SKY_SPACE_STATE, &builder->state_bytes);
    stage->gradient_offset = builder->state_bytes;
    for (size_t i = 0; i < parameters.count; i++)
        if (parameters.values[i] < graph->gradient_count && graph->gradients[parameters.values[i]])
            place(builder, graph->gradients[parameters.values[i]], SKY_SPACE_STATE, &builder->state_bytes);
    stage->gradient_bytes = builder->state_bytes - stage->gradient_offset;

    SkyParameter *table = arena_new_array(&code->arena, SkyParameter, parameters.count);
    uint32_t global_index = 0;
    for (ValueId v = 1, i = 0; v < graph->value_count; v++) {
        if (graph_value(graph, v)->role != ROLE_PARAMETER) continue;
        uint32_t index = global_index++;
        if (!used[v]) continue;
        SkyParameter *parameter = &table[i++];
        parameter->value = tensor_of(builder, v, graph_value(graph, v)->name);
        parameter->global_index = index;
        parameter->decay_exempt_class = decay_exempt_class(graph, v);
        if (v < graph->gradient_count && graph->gradients[v])
            parameter->gradient = builder->location[graph->gradients[v]];
        const Node *update = update_of(builder, v, &parameter->update);
        for (int k = 3; update && k < update->input_count; k++) {
            place(builder, update->inputs[k], SKY_SPACE_STATE, &builder->state_bytes);
            parameter->states[parameter->state_count++] = builder->location[update->inputs[k]];
        }
    }
    stage->parameters = table;
    stage->parameter_count = (uint32_t)parameters.count;
    code->parameter_values = arena_copy(&code->arena, parameters.values, parameters.count * sizeof(ValueId));
    free(parameters.values);
    free(used);
}

static void finish_tables(Builder *builder)
{
    SkyStage *stage = &builder->code->stage;
    stage->forward = call_table(builder, 0, builder->forward_end, &stage->forward_count);
    stage->backward = call_table(builder, builder->forward_end, builder->backward_end, &stage->backward_count);
    stage->update = call_table(builder, builder->backward_end, builder->update_end, &stage->update_count);
    if (stage->update_count != builder->update.count) bug("an update takes one call");
    stage->receive_forward = tensor_table(builder, &builder->receive_forward, &stage->receive_forward_count);
    stage->send_forward = tensor_table(builder, &builder->send_forward, &stage->send_forward_count);
    stage->receive_backward = tensor_table(builder, &builder->receive_backward, &stage->receive_backward_count);
    stage->send_backward = tensor_table(builder, &builder->send_backward, &stage->send_backward_count);
    input_table(builder);
    output_table(builder);
    stage->has_loss = stage_has_loss(builder);
    if (stage->has_loss) stage->loss = builder->location[builder->graph->loss];
    stage->constants = arena_copy(&builder->code->arena, buffer_text(&builder->constants), builder->constants.size);
    stage->space_bytes[SKY_SPACE_CONSTANT] = builder->constants.size;
    stage->space_bytes[SKY_SPACE_STATE] = builder->state_bytes;
    stage->space_bytes[SKY_SPACE_SLOT] = builder->slot_bytes;
    stage->space_bytes[SKY_SPACE_STEP] = SKY_STEP_SCALARS * sizeof(float);
}

static void free_builder(Builder *builder)
{
    lowering_free(&builder->lowering);
    free(builder->forward.nodes);
    free(builder->backward.nodes);
    free(builder->update.nodes);
    free(builder->receive_forward.values);
    free(builder->send_forward.values);
    free(builder->receive_backward.values);
    free(builder->send_backward.values);
    free(builder->outputs.values);
    free(builder->kept);
    free(builder->location);
    free(builder->placed);
    free(builder->kernels);
    buffer_free(&builder->constants);
}

static uint64_t greatest(uint64_t a, uint64_t b) { return a > b ? a : b; }

void stage_build(StageCode *code, Graph *graph, int first_layer, int last_layer)
{
    *code = (StageCode){0};
    code->stage.first_layer = (uint32_t)first_layer;
    code->stage.last_layer = (uint32_t)last_layer;
    Builder builder = {.code = code, .graph = graph, .first_layer = first_layer, .last_layer = last_layer};
    collect_nodes(&builder);
    collect_boundaries(&builder);
    lower_stage(&builder);
    mark_kept(&builder);
    fuse_calls(&builder.lowering, 0, builder.forward_end, builder.kept);
    fuse_calls(&builder.lowering, builder.forward_end, builder.backward_end, builder.kept);

    builder.location = memory_allocate(graph->value_count * sizeof *builder.location);
    builder.placed = memory_allocate(graph->value_count);
    place_parameters(&builder);
    place_lasting(&builder);
    uint64_t scratch = place_scratch(&builder, 0, builder.forward_end);
    scratch = greatest(scratch, place_scratch(&builder, builder.forward_end, builder.backward_end));
    scratch = greatest(scratch, place_scratch(&builder, builder.backward_end, builder.update_end));
    code->stage.space_bytes[SKY_SPACE_SCRATCH] = scratch;
    finish_tables(&builder);
    free_builder(&builder);
}

void stage_free(StageCode *code)
{
    arena_free(&code->arena);
    *code = (StageCode){0};
}

uint64_t stage_bytes(const SkyStage *stage, uint32_t slot_count)
{
    return stage->space_bytes[SKY_SPACE_CONSTANT] + stage->space_bytes[SKY_SPACE_STATE] +
           stage->space_bytes[SKY_SPACE_SLOT] * slot_count + stage->space_bytes[SKY_SPACE_SCRATCH] +
           stage->thread_scratch_bytes;
}
