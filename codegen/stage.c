#include "codegen/stage.h"

#include <stdlib.h>

#include "codegen/stage_builder.h"
#include "graph/kernel_fusion.h"

static void materialize_all(StageBuilder *builder, const ValueList *list)
{
    for (size_t i = 0; i < list->count; i++) lowering_materialize(&builder->lowering, list->values[i]);
}

static void keep_all(StageBuilder *builder, const ValueList *list)
{
    for (size_t i = 0; i < list->count; i++) builder->kept[list->values[i]] = true;
}

static void lower_stage(StageBuilder *builder)
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

/* Marks what must outlive the list of calls it is written by. */
static void mark_kept(StageBuilder *builder)
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
        if (stage_lives_in_state(graph_value(builder->graph, v))) builder->kept[v] = true;
    keep_all(builder, &builder->receive_forward);
    keep_all(builder, &builder->send_forward);
    keep_all(builder, &builder->receive_backward);
    keep_all(builder, &builder->send_backward);
    keep_all(builder, &builder->outputs);
    if (stage_has_loss(builder)) builder->kept[builder->graph->loss] = true;
    free(written);
}

static void free_builder(StageBuilder *builder)
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
    free(builder->parameters.values);
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
    StageBuilder builder = {.code = code, .graph = graph, .first_layer = first_layer, .last_layer = last_layer};
    stage_collect_nodes(&builder);
    stage_collect_boundaries(&builder);
    stage_collect_parameters(&builder);
    lower_stage(&builder);
    mark_kept(&builder);
    fuse_calls(&builder.lowering, 0, builder.forward_end, builder.kept);
    fuse_calls(&builder.lowering, builder.forward_end, builder.backward_end, builder.kept);

    builder.location = memory_allocate(graph->value_count * sizeof *builder.location);
    builder.placed = memory_allocate(graph->value_count);
    stage_place_parameters(&builder);
    stage_place_lasting(&builder);
    uint64_t scratch = stage_place_scratch(&builder, 0, builder.forward_end);
    scratch = greatest(scratch, stage_place_scratch(&builder, builder.forward_end, builder.backward_end));
    scratch = greatest(scratch, stage_place_scratch(&builder, builder.backward_end, builder.update_end));
    code->stage.space_bytes[SKY_SPACE_SCRATCH] = scratch;
    stage_make_tables(&builder);
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
