/* Which calls run block by block: attention's, of which a block is one sequence's one head. */
#include <stdlib.h>

#include "codegen/stage/stage_builder.h"

/* A group under construction. */
typedef struct Group {
    size_t calls[STAGE_GROUP_CALLS];
    Kernel *kernels[STAGE_GROUP_CALLS]; /* cut into blocks */
    int count;
    int64_t blocks;
} Group;

/* How many products of matrices a call consists of; 1 if it is none. */
static int64_t batch_of(const LoweredCall *call)
{
    KernelGemm gemm;
    if (!kernel_match_gemm(call->kernel, &gemm)) return 1;
    int64_t count = 1;
    for (int axis = 0; axis < call->kernel->axis_count - 1; axis++)
        if (axis != gemm.row_axis && axis != gemm.column_axis) count *= call->kernel->extent[axis];
    return count;
}

/* Whether the operand, which belongs to a tensor of so many elements, keeps to the block's share of them: the blocks'
 * shares stand one after another. */
static bool keeps_to_block(const Kernel *kernel, int operand, int64_t offset, int64_t elements, int64_t blocks)
{
    const KernelOperand *place = &kernel->operands[operand];
    int64_t share = elements / blocks, step = share, last = 0;
    if (elements % blocks || offset || place->elements) return false;
    for (int axis = kernel->block_axes - 1; axis >= 0; axis--) {
        if (kernel->extent[axis] > 1 && place->stride[axis] != step) return false;
        step *= kernel->extent[axis];
    }
    for (int axis = kernel->block_axes; axis < kernel->axis_count; axis++) {
        if (place->stride[axis] < 0) return false;
        last += (kernel->extent[axis] - 1) * place->stride[axis];
    }
    return last < share;
}

/* Whether all that call `member` of the group does with the value stays within the block. */
static bool value_keeps_to_block(const StageBuilder *builder, const Group *group, int member, ValueId value)
{
    const LoweredCall *call = &builder->lowering.calls[group->calls[member]];
    int64_t elements = shape_elements(&graph_value(builder->graph, value)->shape);
    for (int i = 0; i < call->kernel->operand_count; i++)
        if (call->operands[i].value == value &&
            !keeps_to_block(group->kernels[member], i, call->operands[i].offset, elements, group->blocks))
            return false;
    return true;
}

typedef struct Access {
    bool read, written;
} Access;

static Access access_of(const LoweredCall *call, ValueId value)
{
    Access access = {0};
    for (int i = 0; i < call->kernel->operand_count; i++) {
        if (call->operands[i].value != value) continue;
        access.read |= call->kernel->operands[i].read;
        access.written |= call->kernel->operands[i].written;
    }
    return access;
}

/* Whether the next live call of the list is a product of as many blocks that reads what call `c` writes. */
static bool feeds_product(const StageBuilder *builder, size_t c, int64_t blocks)
{
    const Lowering *lowering = &builder->lowering;
    const LoweredCall *call = &lowering->calls[c], *next = call + 1;
    const LoweredCall *end = lowering->calls + lowering->call_count;
    while (next < end && next->dead) next++;
    if (next == end || batch_of(next) != blocks) return false;
    for (int i = 0; i < next->kernel->operand_count; i++)
        if (next->kernel->operands[i].read && access_of(call, next->operands[i].value).written) return true;
    return false;
}

/* Whether the group's last call takes what the others make, and that block by block. */
static bool last_fits(const StageBuilder *builder, const Group *group)
{
    int last = group->count - 1;
    const LoweredCall *call = &builder->lowering.calls[group->calls[last]];
    bool connected = false;
    for (int i = 0; i < call->kernel->operand_count; i++) {
        ValueId value = call->operands[i].value;
        Access access = access_of(call, value);
        for (int m = 0; m < last; m++) {
            Access other = access_of(&builder->lowering.calls[group->calls[m]], value);
            if (!other.written && !(other.read && access.written)) continue;
            if (!value_keeps_to_block(builder, group, m, value) || !value_keeps_to_block(builder, group, last, value))
                return false;
            connected |= other.written && access.read;
        }
    }
    return connected || batch_of(call) == group->blocks || feeds_product(builder, group->calls[last], group->blocks);
}

static bool add_call(const StageBuilder *builder, Group *group, size_t c)
{
    const Lowering *lowering = &builder->lowering;
    const LoweredCall *call = &lowering->calls[c];
    if (group->count == STAGE_GROUP_CALLS) return false;
    if (group->count && graph_node(lowering->graph, call->node)->layer !=
                            graph_node(lowering->graph, lowering->calls[group->calls[0]].node)->layer)
        return false;
    Kernel *kernel = arena_copy(&((Lowering *)lowering)->arena, call->kernel, sizeof *kernel);
    if (!kernel_cut_blocks(kernel, group->blocks)) return false;
    group->calls[group->count] = c;
    group->kernels[group->count++] = kernel;
    if (group->count == 1 || last_fits(builder, group)) return true;
    group->count--;
    return false;
}

/* The calls of a list between which a value is touched. */
typedef struct GroupReach {
    size_t first, last;
} GroupReach;

/* Per value; to be returned. */
static GroupReach *find_reach(const StageBuilder *builder, size_t first, size_t end)
{
    GroupReach *reach = value_array_new(builder->index->arrays, GroupReach);
    bool *seen = value_array_new(builder->index->arrays, bool);
    for (size_t c = first; c < end; c++) {
        const LoweredCall *call = &builder->lowering.calls[c];
        for (int i = 0; !call->dead && i < call->kernel->operand_count; i++) {
            ValueId value = call->operands[i].value;
            if (!seen[value]) reach[value].first = c;
            seen[value] = true;
            reach[value].last = c;
        }
    }
    value_array_return(builder->index->arrays, seen);
    return reach;
}

/* Whether room for one block of the value will do: only the group touches it, block by block. */
static bool may_shrink(const StageBuilder *builder, const Group *group, ValueId value, GroupReach reach)
{
    if (builder->placed[value] || reach.first < group->calls[0] || reach.last > group->calls[group->count - 1] ||
        stage_value_bytes(builder->graph, value) / (uint64_t)group->blocks > UINT32_MAX)
        return false;
    for (int m = 0; m < group->count; m++)
        if (!value_keeps_to_block(builder, group, m, value)) return false;
    return true;
}

/* Whether any value of the group needs room for one block only: these do from now on. */
static bool shrink_values(StageBuilder *builder, const Group *group, const GroupReach *reach)
{
    bool any = false;
    for (int m = 0; m < group->count; m++) {
        const LoweredCall *call = &builder->lowering.calls[group->calls[m]];
        for (int i = 0; i < call->kernel->operand_count; i++) {
            ValueId value = call->operands[i].value;
            if (!call->kernel->operands[i].written || !may_shrink(builder, group, value, reach[value])) continue;
            builder->block_bytes[value] = stage_value_bytes(builder->graph, value) / (uint64_t)group->blocks;
            any = true;
        }
    }
    return any;
}

bool stage_group_calls(StageBuilder *builder, size_t first, size_t end)
{
    Lowering *lowering = &builder->lowering;
    GroupReach *reach = NULL;
    bool any = false;
    for (size_t c = first, next; c < end; c = next) {
        next = c + 1;
        Group group = {.blocks = lowering->calls[c].dead ? 1 : batch_of(&lowering->calls[c])};
        if (group.blocks < 2 || group.blocks > UINT32_MAX || !add_call(builder, &group, c)) continue;
        while (next < end && (lowering->calls[next].dead || add_call(builder, &group, next))) next++;
        if (!reach) reach = find_reach(builder, first, end);
        if (!shrink_values(builder, &group, reach)) continue;
        any = true;
        for (int m = 0; m < group.count; m++) {
            builder->groups[group.calls[m]] = (LoweredGroup){(uint32_t)c + 1, (uint32_t)group.blocks};
            lowering->calls[group.calls[m]].kernel = group.kernels[m];
        }
    }
    value_array_return(builder->index->arrays, reach);
    return any;
}
