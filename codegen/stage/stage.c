#include "codegen/stage/stage.h"

#include <stdlib.h>
#include <string.h>

#include "codegen/stage/call_fusion.h"
#include "codegen/stage/memory_layout.h"
#include "codegen/stage/stage_builder.h"

static void materialize_all(StageBuilder *builder, const ValueList *list)
{
    for (size_t i = 0; i < list->count; i++) lowering_materialize(&builder->lowering, list->values[i]);
}

static void keep_all(StageBuilder *builder, const ValueList *list)
{
    for (size_t i = 0; i < list->count; i++) builder->kept[list->values[i]] = true;
}

/* Updates of several calls: the first ones of all, then the second ones, so that threads share them all. */
static void order_updates(StageBuilder *builder)
{
    Lowering *lowering = &builder->lowering;
    size_t first = builder->end[SKY_LIST_WEIGHT_GRADIENT], count = lowering->call_count - first,
           updates = builder->nodes[SKY_LIST_UPDATE].count, each = updates ? count / updates : 0;
    if (each * updates != count) bug("updates have different numbers of calls");
    if (each < 2) return;
    FREED LoweredCall *calls = memory_allocate(count * sizeof *calls);
    memcpy(calls, lowering->calls + first, count * sizeof *calls);
    for (size_t c = 0; c < count; c++) lowering->calls[first + c % each * updates + c / each] = calls[c];
}

static void lower_stage(StageBuilder *builder)
{
    Lowering *lowering = &builder->lowering;
    Graph *graph = builder->graph;
    lowering_begin(lowering, graph);
    for (size_t i = 0; i < builder->receive_forward.count; i++)
        lowering_stop_at(lowering, builder->receive_forward.values[i]);
    lowering_run(lowering, builder->nodes[SKY_LIST_FORWARD].nodes, builder->nodes[SKY_LIST_FORWARD].count);
    materialize_all(builder, &builder->send_forward);
    materialize_all(builder, &builder->outputs);
    if (stage_has_loss(builder)) lowering_materialize(lowering, graph->loss);
    builder->end[SKY_LIST_FORWARD] = lowering->call_count;

    for (size_t i = 0; i < builder->receive_backward.count; i++)
        lowering_stop_at(lowering, builder->receive_backward.values[i]);
    lowering_run(lowering, builder->nodes[SKY_LIST_BACKWARD].nodes, builder->nodes[SKY_LIST_BACKWARD].count);
    materialize_all(builder, &builder->send_backward);
    builder->end[SKY_LIST_BACKWARD] = builder->end[SKY_LIST_WEIGHT_GRADIENT] = lowering->call_count;

    lowering_run(lowering, builder->nodes[SKY_LIST_UPDATE].nodes, builder->nodes[SKY_LIST_UPDATE].count);
    order_updates(builder);
    for (int list = SKY_LIST_UPDATE; list < SKY_LIST_COUNT; list++) builder->end[list] = lowering->call_count;
    for (size_t c = 0; c < lowering->call_count; c++)
        for (int i = 0; i < lowering->calls[c].kernel->operand_count; i++)
            value_arrays_visit(builder->index->arrays, lowering->calls[c].operands[i].value);
}

/* Chooses, among the calls first ... end - 1, those that write a needed value; what they touch is needed too. Returns
 * whether it chose any that was not. */
static bool choose_needed(const Lowering *lowering, size_t first, size_t end, bool *needed, bool *chosen)
{
    bool more = false;
    for (size_t c = end; c-- > first;) {
        const LoweredCall *call = &lowering->calls[c];
        bool wanted = chosen[c];
        for (int i = 0; !call->dead && i < call->kernel->operand_count; i++)
            wanted |= call->kernel->operands[i].written && needed[call->operands[i].value];
        for (int i = 0; wanted && i < call->kernel->operand_count; i++) needed[call->operands[i].value] = true;
        more |= wanted && !chosen[c];
        chosen[c] = wanted;
    }
    return more;
}

/* Per call: whether it is of backward and the stage before waits for it; to be freed. Until nothing changes: a gradient
 * that both halves would add to is the first one's alone, or micro-batches would be summed in another order. */
static bool *choose_awaited(const StageBuilder *builder)
{
    const Lowering *lowering = &builder->lowering;
    bool *needed = value_array_new(builder->index->arrays, bool), *chosen = memory_allocate(lowering->call_count + 1);
    for (size_t i = 0; i < builder->send_backward.count; i++) needed[builder->send_backward.values[i]] = true;
    while (choose_needed(lowering, builder->end[SKY_LIST_FORWARD], builder->end[SKY_LIST_BACKWARD], needed, chosen))
        continue;
    value_array_return(builder->index->arrays, needed);
    return chosen;
}

/* Moves what the stage before does not wait for to the end of backward. */
static void split_backward(StageBuilder *builder)
{
    Lowering *lowering = &builder->lowering;
    size_t first = builder->end[SKY_LIST_FORWARD], end = builder->end[SKY_LIST_BACKWARD], count = 0;
    FREED bool *chosen = choose_awaited(builder);
    FREED LoweredCall *later = memory_allocate((end - first + 1) * sizeof *later);
    size_t kept = first;
    for (size_t c = first; c < end; c++)
        if (chosen[c])
            lowering->calls[kept++] = lowering->calls[c];
        else
            later[count++] = lowering->calls[c];
    memcpy(lowering->calls + kept, later, count * sizeof *later);
    builder->end[SKY_LIST_BACKWARD] = kept;
}

/* What split_backward would have done: the halves have the calls of the whole. */
static void measure_split(StageBuilder *builder)
{
    const Lowering *lowering = &builder->lowering;
    StageCode *code = builder->code;
    FREED bool *chosen = choose_awaited(builder);
    bool *passed = value_array_new(builder->index->arrays, bool);
    bool *puts_off =
        arena_new_array(&code->arena, bool, builder->end[SKY_LIST_BACKWARD] - builder->end[SKY_LIST_FORWARD]);
    size_t count = 0;
    for (size_t c = builder->end[SKY_LIST_FORWARD]; c < builder->end[SKY_LIST_BACKWARD]; c++) {
        const LoweredCall *call = &lowering->calls[c];
        if (!call->dead) puts_off[count++] = !chosen[c];
        for (int i = 0; !call->dead && chosen[c] && i < call->kernel->operand_count; i++)
            passed[call->operands[i].value] |= call->kernel->operands[i].written;
    }
    for (size_t c = builder->end[SKY_LIST_FORWARD]; c < builder->end[SKY_LIST_BACKWARD]; c++) {
        const LoweredCall *call = &lowering->calls[c];
        for (int i = 0; !call->dead && !chosen[c] && i < call->kernel->operand_count; i++) {
            ValueId value = call->operands[i].value;
            uint32_t space = builder->location[value].space;
            if (passed[value] && (space == SKY_SPACE_SCRATCH || space == SKY_SPACE_BLOCK))
                code->split_bytes += align_bytes(stage_value_bytes(builder->graph, value));
            passed[value] = false;
        }
    }
    code->puts_off = puts_off;
    value_array_return(builder->index->arrays, passed);
}

/* The fused calls of forward that make what backward reads. */
static void choose_recomputed(StageBuilder *builder)
{
    const Lowering *lowering = &builder->lowering;
    bool *needed = value_array_new(builder->index->arrays, bool);
    builder->recomputed = memory_allocate(lowering->call_count);
    for (size_t c = builder->end[SKY_LIST_FORWARD]; c < builder->end[SKY_LIST_BACKWARD]; c++) {
        const LoweredCall *call = &lowering->calls[c];
        builder->recomputed[c] = true;
        for (int i = 0; !call->dead && i < call->kernel->operand_count; i++) needed[call->operands[i].value] = true;
    }
    choose_needed(lowering, 0, builder->end[SKY_LIST_FORWARD], needed, builder->recomputed);
    value_array_return(builder->index->arrays, needed);
}

static int list_of(const StageBuilder *builder, size_t call)
{
    int list = 0;
    while (call >= builder->end[list]) list++;
    return list;
}

/* Marks what must outlive the list of calls it is written by. */
static void mark_kept(StageBuilder *builder)
{
    ValueArrays *arrays = builder->index->arrays;
    builder->kept = value_array_new(arrays, bool);
    char *written = value_array_new(arrays, char); /* 1 + the first list of calls that writes it; 0: none */
    for (size_t c = 0; c < builder->end[SKY_LIST_WEIGHT_GRADIENT]; c++) {
        const LoweredCall *call = &builder->lowering.calls[c];
        int list = list_of(builder, c);
        for (int i = 0; i < call->kernel->operand_count; i++) {
            ValueId value = call->operands[i].value;
            if (!written[value] && call->kernel->operands[i].written) written[value] = (char)(1 + list);
            if (written[value] && written[value] <= list) builder->kept[value] = true;
            if (stage_lives_in_state(graph_value(builder->graph, value))) builder->kept[value] = true;
        }
    }
    keep_all(builder, &builder->receive_forward);
    keep_all(builder, &builder->send_forward);
    keep_all(builder, &builder->receive_backward);
    keep_all(builder, &builder->send_backward);
    keep_all(builder, &builder->outputs);
    if (stage_has_loss(builder)) builder->kept[builder->graph->loss] = true;
    value_array_return(arrays, written);
}

static void free_builder(StageBuilder *builder)
{
    lowering_free(&builder->lowering);
    for (int list = 0; list < SKY_LIST_COUNT; list++) free(builder->nodes[list].nodes);
    free(builder->receive_forward.values);
    free(builder->send_forward.values);
    free(builder->receive_backward.values);
    free(builder->send_backward.values);
    free(builder->outputs.values);
    free(builder->parameters.values);
    free(builder->recomputed);
    free(builder->groups);
    free(builder->wave);
    free(builder->kernels);
    void *taken[] = {builder->holder, builder->update,      builder->kept,      builder->location,
                     builder->placed, builder->block_bytes, builder->needs_tail};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) value_array_return(builder->index->arrays, taken[i]);
    value_arrays_clear(builder->index->arrays);
    buffer_free(&builder->constants);
}

static uint64_t greatest(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* Joins the calls of a list into groups and waves, and lays out what only they touch. */
static void place_list(StageBuilder *builder, SkyListKind list)
{
    size_t first = stage_list_begin(builder, list), end = builder->end[list];
    uint64_t *bytes = builder->code->stage.space_bytes;
    uint64_t stash = list <= SKY_LIST_BACKWARD ? builder->stash_bytes : 0;
    bool updates = list == SKY_LIST_UPDATE; /* which have no temporaries */
    bool groups = !updates && stage_group_calls(builder, first, end);
    stage_find_waves(builder, first, end, updates);
    if (groups)
        bytes[SKY_SPACE_BLOCK] =
            greatest(bytes[SKY_SPACE_BLOCK], stage_place_temporaries(builder, first, end, SKY_SPACE_BLOCK, 0));
    bytes[SKY_SPACE_SCRATCH] =
        greatest(bytes[SKY_SPACE_SCRATCH], stage_place_temporaries(builder, first, end, SKY_SPACE_SCRATCH, stash));
}

void stage_build(StageCode *code, Graph *graph, int first_layer, int last_layer)
{
    stage_build_as(code, graph, first_layer, last_layer, STAGE_PLAIN);
}

void stage_build_as(StageCode *code, Graph *graph, int first_layer, int last_layer, StageForm form)
{
    StageIndex *index = stage_index_create(graph, PRODUCTS_F32);
    stage_build_indexed(code, index, first_layer, last_layer, form);
    stage_index_free(index);
}

void stage_build_indexed(StageCode *code, const StageIndex *index, int first_layer, int last_layer, StageForm form)
{
    Graph *graph = index->graph;
    *code = (StageCode){0};
    code->stage.first_layer = (uint32_t)first_layer;
    code->stage.last_layer = (uint32_t)last_layer;
    StageBuilder builder = {.code = code,
                            .index = index,
                            .graph = graph,
                            .first_layer = first_layer,
                            .last_layer = last_layer,
                            .form = form};
    stage_collect_nodes(&builder);
    stage_collect_boundaries(&builder);
    stage_collect_parameters(&builder);
    lower_stage(&builder);
    if (form == STAGE_SPLIT) split_backward(&builder);
    mark_kept(&builder);
    for (int list = 0; list < SKY_LIST_UPDATE; list++)
        fuse_calls(&builder.lowering, stage_list_begin(&builder, list), builder.end[list], builder.kept, index->arrays);
    stage_add_sums(&builder);
    stage_cut_sums(&builder);
    if (form == STAGE_RECOMPUTE) choose_recomputed(&builder);

    builder.location = value_array_new(index->arrays, SkyLocation);
    builder.placed = value_array_new(index->arrays, bool);
    builder.groups = memory_allocate((builder.lowering.call_count + 1) * sizeof *builder.groups);
    builder.wave = memory_allocate((builder.lowering.call_count + 1) * sizeof *builder.wave);
    builder.block_bytes = value_array_new(index->arrays, uint64_t);
    stage_place_parameters(&builder);
    stage_place_lasting(&builder);
    for (int list = 0; list <= SKY_LIST_UPDATE; list++) place_list(&builder, (SkyListKind)list);
    if (form == STAGE_PLAIN) measure_split(&builder);
    stage_make_tables(&builder);
    stage_list_gradient_calls(&builder);
    free_builder(&builder);
}

void stage_free(StageCode *code)
{
    arena_free(&code->arena);
    *code = (StageCode){0};
}

uint64_t stage_bytes(const SkyStage *stage, uint32_t slot_count, uint32_t threads)
{
    return stage->space_bytes[SKY_SPACE_CONSTANT] + stage->space_bytes[SKY_SPACE_STATE] +
           stage->space_bytes[SKY_SPACE_SLOT] * slot_count + stage->space_bytes[SKY_SPACE_SCRATCH] +
           (stage->space_bytes[SKY_SPACE_BLOCK] + stage->thread_scratch_bytes) * threads;
}
