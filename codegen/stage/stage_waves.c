/* Which calls do not wait for each other: threads share them all, and need not meet in between. */
#include "codegen/stage/stage_builder.h"

Touched stage_touched_create(const StageBuilder *builder)
{
    return (Touched){builder->index->arrays, value_array_new(builder->index->arrays, ValueTurns), 1};
}

void stage_touched_clear(Touched *touched) { touched->turn++; }

void stage_touched_free(Touched *touched) { value_array_return(touched->arrays, touched->turns); }

/* Values of one shared parameter have one place. */
static ValueId place_of(const StageBuilder *builder, ValueId value)
{
    ValueId holder = builder->holder[value];
    return holder ? holder : value;
}

bool stage_waits(const StageBuilder *builder, const LoweredCall *call, const Touched *touched)
{
    for (int i = 0; !call->dead && i < call->kernel->operand_count; i++) {
        ValueTurns turns = touched->turns[place_of(builder, call->operands[i].value)];
        bool writes = call->kernel->operands[i].written;
        if (turns.written == touched->turn || (writes && turns.read == touched->turn)) return true;
    }
    return false;
}

void stage_touch(const StageBuilder *builder, const LoweredCall *call, Touched *touched)
{
    for (int i = 0; !call->dead && i < call->kernel->operand_count; i++) {
        ValueTurns *turns = &touched->turns[place_of(builder, call->operands[i].value)];
        *(call->kernel->operands[i].written ? &turns->written : &turns->read) = touched->turn;
    }
}

/* Where the group ends that the call begins; calls that belong to none end after themselves. */
static size_t group_end(const StageBuilder *builder, size_t c, size_t end)
{
    uint32_t group = builder->groups[c].group;
    size_t last = c;
    for (size_t i = c + 1; group && i < end && (builder->lowering.calls[i].dead || builder->groups[i].group == group);
         i++)
        if (!builder->lowering.calls[i].dead) last = i;
    return last + 1;
}

void stage_find_waves(StageBuilder *builder, size_t first, size_t end, bool across_layers)
{
    const Lowering *lowering = &builder->lowering;
    FREED_WITH(stage_touched_free) Touched touched = stage_touched_create(builder);
    size_t wave = 0;
    int layer = LAYER_NONE;
    for (size_t c = first, next; c < end; c = next) {
        next = group_end(builder, c, end);
        if (lowering->calls[c].dead) continue;
        int own_layer = graph_node(builder->graph, lowering->calls[c].node)->layer;
        bool apart = !wave || (own_layer != layer && !across_layers);
        for (size_t i = c; i < next && !apart; i++) apart = stage_waits(builder, &lowering->calls[i], &touched);
        if (apart) stage_touched_clear(&touched);
        if (apart) wave = c + 1;
        layer = own_layer;
        for (size_t i = c; i < next; i++) {
            stage_touch(builder, &lowering->calls[i], &touched);
            builder->wave[i] = wave;
        }
    }
}
