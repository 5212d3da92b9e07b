/* Where a stage's values live: state, slots, constants, and temporaries packed by lifetime. */
#include <stdlib.h>

#include "codegen/stage/memory_layout.h"
#include "codegen/stage/stage_builder.h"

bool stage_lives_in_state(const Value *value)
{
    return value->role == ROLE_PARAMETER || value->role == ROLE_STATE ||
           (value->role == ROLE_ACTIVATION && value->parameter);
}

uint64_t stage_value_bytes(const Graph *graph, ValueId id)
{
    const Value *value = graph_value(graph, id);
    return (uint64_t)dtype_bytes(value->dtype, shape_elements(&value->shape));
}

static void place(StageBuilder *builder, ValueId value, SkySpace space, uint64_t *used)
{
    if (builder->placed[value]) return;
    builder->placed[value] = true;
    builder->location[value] = (SkyLocation){.space = (uint32_t)space, .offset = *used};
    *used += align_bytes(stage_value_bytes(builder->graph, value));
}

static void place_constant(StageBuilder *builder, ValueId value)
{
    if (builder->placed[value]) return;
    buffer_align(&builder->constants, BUFFER_ALIGNMENT);
    uint64_t used = builder->constants.size;
    place(builder, value, SKY_SPACE_CONSTANT, &used);
    buffer_append(&builder->constants, graph_value(builder->graph, value)->data,
                  stage_value_bytes(builder->graph, value));
}

/* An update walks through a parameter, its gradient and its moments at once. Were they multiples of half a megabyte
 * apart, as their sizes often are, all would stand in the same bank of memory; so large ones stand further apart. */
static void place_state(StageBuilder *builder, ValueId value)
{
    bool large = !builder->placed[value] && stage_value_bytes(builder->graph, value) >= STAGE_LARGE_STATE;
    place(builder, value, SKY_SPACE_STATE, &builder->state_bytes);
    if (large) builder->state_bytes += STAGE_STATE_GAP;
}

/* The state: all values, then all gradients, then the optimiser's, with the room that updates need: all of them run at
 * the same time. */
void stage_place_parameters(StageBuilder *builder)
{
    const ValueList *parameters = &builder->parameters;
    for (size_t i = 0; i < parameters->count; i++) {
        ValueId value = parameters->values[i], holder = builder->holder[value];
        place_state(builder, holder);
        builder->location[value] = builder->location[holder];
        builder->placed[value] = true;
    }
    for (size_t i = 0; i < parameters->count; i++) {
        ValueId gradient = graph_gradient(builder->graph, parameters->values[i]);
        if (gradient) place_state(builder, gradient);
    }
    for (size_t i = 0; i < parameters->count; i++) {
        const Node *update = stage_update_of(builder, parameters->values[i], NULL);
        for (int k = UPDATE_FIRST_STATE; update && k < update->input_count; k++)
            place_state(builder, update->inputs[k]);
        for (int k = 0; update && k < update->output_count; k++) place_state(builder, update->outputs[k]);
    }
}

static bool contains(const ValueList *list, ValueId value)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->values[i] == value) return true;
    return false;
}

/* What is read by a later list of calls, or from outside. Where backward makes the stash again, the former is scratch
 * that lives through all of backward. */
static void place_kept(StageBuilder *builder, ValueId value)
{
    bool seen = graph_value(builder->graph, value)->role == ROLE_INPUT || contains(&builder->send_forward, value) ||
                contains(&builder->send_backward, value) || contains(&builder->outputs, value) ||
                value == builder->graph->loss;
    if (builder->form == STAGE_RECOMPUTE && !seen)
        place(builder, value, SKY_SPACE_SCRATCH, &builder->stash_bytes);
    else
        place(builder, value, SKY_SPACE_SLOT, &builder->slot_bytes);
}

void stage_place_lasting(StageBuilder *builder)
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
            else if (value->role == ROLE_INPUT || (builder->kept[id] && !stage_lives_in_state(value)))
                place_kept(builder, id);
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

/* When a call runs. All calls of a wave run at the same time, but those of a group one after another for the one block
 * in the space of blocks. */
static size_t moment(const StageBuilder *builder, size_t call, SkySpace space)
{
    return space == SKY_SPACE_BLOCK ? call : builder->wave[call] - 1;
}

uint64_t stage_place_temporaries(StageBuilder *builder, size_t first, size_t end, SkySpace space, uint64_t base)
{
    size_t count = 0, capacity = 0;
    FREED BufferLifetime *lifetimes = NULL;
    ValueList values = {0};
    uint32_t *index = value_array_new(builder->index->arrays, uint32_t); /* 1 + position in lifetimes */
    for (size_t c = first; c < end; c++) {
        const LoweredCall *call = &builder->lowering.calls[c];
        size_t now = moment(builder, c, space);
        for (int i = 0; !call->dead && i < call->kernel->operand_count; i++) {
            ValueId value = call->operands[i].value;
            uint64_t block_bytes = builder->block_bytes[value];
            if (builder->placed[value] || (space == SKY_SPACE_BLOCK && !block_bytes)) continue;
            if (!index[value]) {
                if (!call->kernel->operands[i].written)
                    bug("call %zu (%s of '%s') reads value %u before anything writes it", c, call->kernel->label,
                        graph_node(builder->graph, call->node)->name, value);
                uint64_t bytes = block_bytes ? block_bytes : stage_value_bytes(builder->graph, value);
                BufferLifetime lifetime = {.bytes = bytes, .first = now};
                array_push(lifetimes, count, capacity, lifetime);
                value_list_add(&values, value);
                index[value] = (uint32_t)count;
            }
            lifetimes[index[value] - 1].last = now;
        }
    }
    uint64_t bytes = memory_pack(lifetimes, count);
    for (size_t i = 0; i < count; i++) {
        builder->placed[values.values[i]] = true;
        builder->location[values.values[i]] =
            (SkyLocation){.space = (uint32_t)space,
                          .block_bytes = (uint32_t)builder->block_bytes[values.values[i]],
                          .offset = base + lifetimes[i].offset};
    }
    free(values.values);
    value_array_return(builder->index->arrays, index);
    return base + bytes;
}
