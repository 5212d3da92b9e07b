/* Long sums into few numbers, as the gradients of small matrices, biases and gains are, over all rows of a micro-batch:
 * each is computed in parts, some rows each, which are added up later. So threads share the rows, as they share those
 * of the products in between, and none reads what all have made. */
#include <stdlib.h>
#include <string.h>

#include "codegen/stage/stage_builder.h"
#include "graph/ops/operator.h"

typedef struct CallList {
    LoweredCall *calls;
    size_t count, capacity;
} CallList;

/* The operand that the call writes; -1 if there are several. */
static int only_written(const LoweredCall *call)
{
    int written = -1;
    for (int i = 0; i < call->kernel->operand_count; i++) {
        if (!call->kernel->operands[i].written) continue;
        if (written >= 0) return -1;
        written = i;
    }
    return written;
}

/* Where parts of the sums go that the node accumulates; 0 if it keeps none. */
static ValueId parts_of(const Graph *graph, ValueId gradient)
{
    const Value *value = graph_value(graph, gradient);
    if (!value->producer || graph_node(graph, value->producer)->op != OP_AccumulateGradient) return 0;
    ValueId parts = graph_node(graph, value->producer)->outputs[1];
    return shape_elements(&graph_value(graph, parts)->shape) ? parts : 0;
}

/* A call that adds the parts up. */
static LoweredCall addition(Arena *arena, const LoweredCall *call, ValueId parts, const Shape *shape, ValueId gradient,
                            DType dtype)
{
    LoweredCall later = {.kernel = arena_allocate(arena, sizeof(Kernel)), .node = call->node};
    int64_t count = shape->dim[0], sums = shape->dim[1];
    kernel_begin(later.kernel, "PartialSums+AccumulateGradient", 2, (int64_t[]){sums, count});
    Register part = kernel_load(later.kernel, kernel_operand(later.kernel, dtype, (int64_t[]){1, sums}));
    Register sum = kernel_reduce(later.kernel, KERNEL_SUM, part);
    kernel_begin_phase(later.kernel, false);
    kernel_store_add(later.kernel, kernel_operand(later.kernel, dtype, (int64_t[]){1, 0}), sum);
    later.operands[0].value = parts;
    later.operands[1].value = gradient;
    return later;
}

/* Has the call compute parts, if it is such a sum; `later` adds them up. */
static bool cut_sum(StageBuilder *builder, LoweredCall *call, LoweredCall *later)
{
    const Graph *graph = builder->graph;
    Arena *arena = &builder->lowering.arena;
    int written = only_written(call);
    if (written < 0 || kernel_classify(call->kernel) == KERNEL_CLASS_SCATTER) return false;
    ValueId gradient = call->operands[written].value, parts = parts_of(graph, gradient);
    if (!parts) return false;
    const Shape *shape = &graph_value(graph, parts)->shape;
    int64_t sums = 1;
    for (int axis = 0; axis < call->kernel->axis_count - 1; axis++) sums *= call->kernel->extent[axis];
    if (sums != shape->dim[1] || kernel_inner_extent(call->kernel) < shape->dim[0] * STAGE_PART_ROWS) return false;
    Kernel *kernel = arena_copy(arena, call->kernel, sizeof *kernel);
    if (!kernel_cut_sum(kernel, shape->dim[0], sums)) return false;
    call->kernel = kernel;
    call->operands[written].value = parts;
    *later = addition(arena, call, parts, shape, gradient, graph_value(graph, gradient)->dtype);
    return true;
}

static void append(CallList *to, CallList *from)
{
    for (size_t i = 0; i < from->count; i++) array_push(to->calls, to->count, to->capacity, from->calls[i]);
    from->count = 0;
}

/* Copies the calls first ... end - 1 to `calls`. Parts are added up where threads meet next, next to other work, or at
 * the end of their layer. */
static void cut_list(StageBuilder *builder, size_t first, size_t end, CallList *calls)
{
    CallList waiting = {0};
    FREED_WITH(stage_touched_free) Touched touched = stage_touched_create(builder);
    int layer = LAYER_NONE;
    for (size_t c = first; c < end; c++) {
        LoweredCall call = builder->lowering.calls[c], later;
        if (call.dead) continue;
        int own_layer = graph_node(builder->graph, call.node)->layer;
        if (own_layer != layer || stage_waits(builder, &call, &touched)) {
            append(calls, &waiting);
            stage_touched_clear(&touched);
        }
        layer = own_layer;
        if (cut_sum(builder, &call, &later)) array_push(waiting.calls, waiting.count, waiting.capacity, later);
        stage_touch(builder, &call, &touched);
        array_push(calls->calls, calls->count, calls->capacity, call);
    }
    append(calls, &waiting);
    free(waiting.calls);
}

void stage_cut_sums(StageBuilder *builder)
{
    Lowering *lowering = &builder->lowering;
    CallList calls = {0};
    for (size_t list = 0, first = 0; list < SKY_LIST_COUNT; list++) {
        size_t end = builder->end[list];
        cut_list(builder, first, end, &calls);
        builder->end[list] = calls.count;
        first = end;
    }
    free(lowering->calls);
    lowering->calls = calls.calls;
    lowering->call_count = calls.count;
    lowering->call_capacity = calls.capacity;
}
