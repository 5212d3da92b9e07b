/* The tables of a stage (runtime/program/program.h): calls, tensors, parameters. */
#include <stdlib.h>
#include <string.h>

#include "codegen/stage/stage_builder.h"
#include "graph/ops/operator.h"

const Kernel *stage_intern_kernel(StageBuilder *builder, Kernel *kernel)
{
    kernel_canonicalize(kernel);
    kernel_set_precision(kernel, builder->index->precision);
    kernel_verify(kernel);
    Hash hash = kernel_hash(kernel);
    for (size_t i = 0; i < builder->kernel_count; i++)
        if (builder->kernels[i].hash.high == hash.high && builder->kernels[i].hash.low == hash.low)
            return builder->kernels[i].kernel;
    Kernel *copy = arena_copy(&builder->code->arena, kernel, sizeof *kernel);
    copy->label = arena_string(&builder->code->arena, kernel->label);
    KernelEntry entry = {hash, copy};
    array_push(builder->kernels, builder->kernel_count, builder->kernel_capacity, entry);
    return copy;
}

/* The calls of a table, by where they are in the lowering: the first of each group and wave gets their number. */
static void count_groups_and_waves(const StageBuilder *builder, SkyCall *calls, const size_t *lowered, uint32_t count)
{
    SkyCall *group = calls, *wave = calls;
    for (uint32_t i = 0; i < count; i++) {
        size_t c = lowered[i], before = i ? lowered[i - 1] : c;
        if (builder->groups[c].group != builder->groups[before].group) group = &calls[i];
        if (builder->wave[c] != builder->wave[before]) wave = &calls[i];
        if (builder->groups[c].group) group->group_count++;
        wave->wave_count++;
    }
}

/* The kernel of a call, and what it does where lines are absent. */
static const Kernel *cut_kernel(StageBuilder *builder, size_t c, SkyLocation *locations, LineCut *cut)
{
    const LoweredCall *call = &builder->lowering.calls[c];
    *cut = (LineCut){0};
    kernel_canonicalize(call->kernel);
    if (!builder->code->lines_vary) return stage_intern_kernel(builder, call->kernel);
    Kernel kernel = *call->kernel;
    if (!stage_cut_lines(builder, call, builder->groups[c].blocks, &kernel, cut)) bug("a call cannot be cut twice");
    for (int i = 0; i < kernel.operand_count; i++) locations[i].line_bytes = cut->line_bytes[i];
    return stage_intern_kernel(builder, &kernel);
}

/* What the call leaves out tokens of that others read. */
static void set_tails(const StageBuilder *builder, const LoweredCall *lowered, SkyCall *call)
{
    const Graph *graph = builder->graph;
    int operands = lowered->kernel->operand_count;
    if (!call->token_extent) return;
    SkyLocation *tails = arena_new_array(&builder->code->arena, SkyLocation, (size_t)operands);
    for (int i = 0; i < operands; i++) {
        ValueId value = lowered->operands[i].value;
        if (!lowered->kernel->operands[i].written || !builder->needs_tail[value]) continue;
        tails[call->tail_count] = builder->location[value];
        tails[call->tail_count++].line_bytes = stage_value_bytes(graph, value) / graph->packing.lines;
    }
    call->tails = call->tail_count ? tails : NULL;
}

/* Where a call of a group needs all blocks, all of the group's run. */
static void agree_on_blocks(SkyCall *calls, uint32_t count)
{
    for (uint32_t first = 0; first < count; first += sky_group_size(&calls[first])) {
        uint32_t end = first + sky_group_size(&calls[first]);
        bool agree = true;
        for (uint32_t c = first; c < end; c++) agree &= calls[c].line_blocks == calls[first].line_blocks;
        for (uint32_t c = first; c < end && !agree; c++) calls[c].line_blocks = 0;
    }
}

/* Where forward is recomputed, backward begins with the calls of it that were chosen. */
static void call_list(StageBuilder *builder, SkyListKind list)
{
    const bool *chosen = list == SKY_LIST_BACKWARD ? builder->recomputed : NULL;
    size_t first = chosen ? 0 : stage_list_begin(builder, list), end = builder->end[list];
    uint32_t count = 0;
    const Graph *graph = builder->graph;
    Arena *arena = &builder->code->arena;
    SkyCall *calls = arena_new_array(arena, SkyCall, end - first);
    FREED size_t *from = memory_allocate((end - first + 1) * sizeof *from);
    for (size_t c = first; c < end; c++) {
        const LoweredCall *lowered = &builder->lowering.calls[c];
        if (lowered->dead || (chosen && !chosen[c])) continue;
        int operands = lowered->kernel->operand_count;
        SkyLocation *locations = arena_new_array(arena, SkyLocation, (size_t)operands);
        for (int i = 0; i < operands; i++) {
            ValueId value = lowered->operands[i].value;
            locations[i] = builder->location[value];
            locations[i].offset += (uint64_t)dtype_bytes(graph_value(graph, value)->dtype, lowered->operands[i].offset);
        }
        const Node *node = graph_node(graph, lowered->node);
        LineCut cut;
        const Kernel *kernel = cut_kernel(builder, c, locations, &cut);
        from[count] = c;
        calls[count++] = (SkyCall){
            .operands = locations,
            .operand_count = (uint32_t)operands,
            .block_count = builder->groups[c].blocks,
            .layer = (uint32_t)(node->layer == LAYER_NONE ? builder->first_layer : node->layer),
            .line_loops = cut.loops,
            .line_axis = cut.axis,
            .line_extent = cut.extent,
            .token_extent = cut.token_extent,
            .line_blocks = cut.blocks,
            .sum_extent = cut.sum_extent,
            .units = 1,
            .name = stage_call_name(builder, lowered),
            .interpreted = kernel,
        };
        set_tails(builder, lowered, &calls[count - 1]);
    }
    count_groups_and_waves(builder, calls, from, count);
    agree_on_blocks(calls, count);
    builder->code->stage.lists[list] = (SkyCallList){.calls = calls, .count = count};
}

static SkyTensor tensor_of(StageBuilder *builder, ValueId id, const char *name)
{
    const Value *value = graph_value(builder->graph, id);
    SkyTensor tensor = {.dtype = value->dtype,
                        .rank = (uint32_t)value->shape.rank,
                        .bytes = stage_value_bytes(builder->graph, id),
                        .by_lines = value_growth(value) == LINES_FIRST,
                        .location = builder->location[id]};
    tensor.name = name ? arena_string(&builder->code->arena, name) : arena_format(&builder->code->arena, "%%%u", id);
    memcpy(tensor.dim, value->shape.dim, (size_t)value->shape.rank * sizeof tensor.dim[0]);
    return tensor;
}

static const SkyTensor *tensor_table(StageBuilder *builder, const ValueList *list, uint32_t *count)
{
    SkyTensor *tensors = arena_new_array(&builder->code->arena, SkyTensor, list->count);
    for (size_t i = 0; i < list->count; i++)
        tensors[i] = tensor_of(builder, list->values[i], graph_value(builder->graph, list->values[i])->name);
    *count = (uint32_t)list->count;
    return tensors;
}

static void input_table(StageBuilder *builder)
{
    const Graph *graph = builder->graph;
    SkyStage *stage = &builder->code->stage;
    SkyTensor *inputs = arena_new_array(&builder->code->arena, SkyTensor, graph->input_count);
    for (size_t i = 0; i < graph->input_count; i++) {
        ValueId id = graph->inputs[i];
        if (!builder->placed[id]) continue;
        SkyTensor *tensor = &inputs[stage->input_count++];
        *tensor = tensor_of(builder, id, graph_value(graph, id)->name);
        tensor->value_limit = builder->index->index_limit[i];
        tensor->fill = graph_value(graph, id)->fill;
    }
    stage->inputs = inputs;
}

static void output_table(StageBuilder *builder)
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

/* Adds a use of a parameter that several layers of the model share. */
static void add_use(StageBuilder *builder, ValueId value, SkyParameter *parameter)
{
    const ParameterNumber *numbers = builder->index->numbers;
    const Graph *graph = builder->graph;
    uint32_t most = numbers[shared_parameter(graph, value)].uses;
    if (most < 2 || !graph_gradient(graph, builder->holder[value])) return;
    if (!parameter->uses) parameter->uses = arena_new_array(&builder->code->arena, SkyUse, most);
    ((SkyUse *)parameter->uses)[parameter->use_count++] =
        (SkyUse){.number = numbers[value].use, .gradient = builder->location[graph_gradient(graph, value)]};
}

/* The rows that a micro-batch looks up, where one lookup along the first axis is all that adds to the gradient. */
static uint32_t rows_read(const Graph *graph, ValueId gradient)
{
    const Node *node = gradient ? graph_node(graph, graph_value(graph, gradient)->producer) : NULL;
    if (!node || node->op != OP_AccumulateGradient) return 0;
    NodeId maker = graph_value(graph, node->inputs[0])->producer;
    node = maker ? graph_node(graph, maker) : NULL;
    if (!node || node->op != OP_GatherGradient || node_integer(node, "axis", 0) != 0) return 0;
    int64_t rows = shape_elements(&graph_value(graph, node->inputs[0])->shape);
    return rows < UINT32_MAX ? (uint32_t)rows : 0;
}

/* All of a parameter but its uses. */
static void describe_parameter(StageBuilder *builder, ValueId holder, SkyParameter *parameter)
{
    const Graph *graph = builder->graph;
    Arena *arena = &builder->code->arena;
    ValueId shared = shared_parameter(graph, holder), gradient = graph_gradient(graph, holder);
    ParameterNumber number = builder->index->numbers[shared];
    parameter->value = tensor_of(builder, holder, graph_value(graph, shared)->name);
    parameter->global_index = number.index;
    const char *alias = graph_value(graph, shared)->use;
    parameter->alias = alias ? arena_string(arena, alias) : NULL;
    parameter->block = builder->index->blocks[shared];
    parameter->decay_exempt_class = builder->index->exempt[shared];
    if (gradient) parameter->gradient = builder->location[gradient];
    if (number.uses < 2) parameter->reads = rows_read(graph, gradient);
    const Node *update = stage_update_of(builder, holder, &parameter->update);
    parameter->frozen = !update;
    if (builder->code->stage.lists[SKY_LIST_UPDATE].count > builder->nodes[SKY_LIST_UPDATE].count)
        parameter->update_stride = (uint32_t)builder->nodes[SKY_LIST_UPDATE].count;
    for (int k = UPDATE_FIRST_STATE; update && k < update->input_count; k++)
        parameter->states[parameter->state_count++] = builder->location[update->inputs[k]];
}

static void parameter_table(StageBuilder *builder)
{
    const ValueList *values = &builder->parameters;
    StageCode *code = builder->code;
    ValueArrays *arrays = builder->index->arrays;
    SkyParameter *table = arena_new_array(&code->arena, SkyParameter, values->count);
    ValueId *parameters = arena_new_array(&code->arena, ValueId, values->count);
    uint32_t count = 0, *number = value_array_new(arrays, uint32_t); /* 1 + the holder's place in the table */
    for (size_t i = 0; i < values->count; i++) {
        ValueId value = values->values[i], holder = builder->holder[value];
        if (value == holder) {
            parameters[count] = shared_parameter(builder->graph, value);
            describe_parameter(builder, value, &table[count]);
            number[value] = ++count;
        }
        add_use(builder, value, &table[number[holder] - 1]);
    }
    value_array_return(arrays, number);
    code->stage.parameters = table;
    code->stage.parameter_count = count;
    code->parameter_values = parameters;
}

void stage_make_tables(StageBuilder *builder)
{
    SkyStage *stage = &builder->code->stage;
    stage_find_lines(builder);
    if (builder->code->lines_vary) stage_find_tails(builder);
    for (int list = 0; list <= SKY_LIST_UPDATE; list++) call_list(builder, (SkyListKind)list);
    stage->receive_forward = tensor_table(builder, &builder->receive_forward, &stage->receive_forward_count);
    stage->send_forward = tensor_table(builder, &builder->send_forward, &stage->send_forward_count);
    stage->receive_backward = tensor_table(builder, &builder->receive_backward, &stage->receive_backward_count);
    stage->send_backward = tensor_table(builder, &builder->send_backward, &stage->send_backward_count);
    parameter_table(builder);
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
