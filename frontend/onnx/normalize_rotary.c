/* RotaryEmbedding of ONNX (opset 23) and of com.microsoft: pairs of elements of queries and keys are turned by angles
 * that grow with the position. */
#include "frontend/onnx/normalize.h"

typedef struct Rotation {
    OnnxNode *node;
    ValueId x;            /* [batch, heads, length, width] */
    ValueId cosine, sine; /* [batch or 1, 1, length, pairs] */
    int64_t pairs, interleaved;
} Rotation;

/* Elements `first`, `first` + `step` ... of the last axis, `count` of them. */
static ValueId take(OnnxNode *node, ValueId x, int64_t first, int64_t step, int64_t count)
{
    Shape shape = shape_of(node, x);
    int64_t starts[MAX_RANK] = {0}, steps[MAX_RANK];
    for (int i = 0; i < shape.rank; i++) steps[i] = 1;
    starts[shape.rank - 1] = first;
    steps[shape.rank - 1] = step;
    shape.dim[shape.rank - 1] = count;
    return emit_slice(node, x, starts, steps, &shape);
}

static ValueId rotate(const Rotation *rotation)
{
    OnnxNode *node = rotation->node;
    int64_t pairs = rotation->pairs, step = rotation->interleaved ? 2 : 1;
    Shape whole = shape_of(node, rotation->x);
    ValueId a = take(node, rotation->x, 0, step, pairs);
    ValueId b = take(node, rotation->x, rotation->interleaved ? 1 : pairs, step, pairs);
    ValueId first = emit_binary(node, OP_Sub, emit_binary(node, OP_Mul, a, rotation->cosine),
                                emit_binary(node, OP_Mul, b, rotation->sine));
    ValueId second = emit_binary(node, OP_Add, emit_binary(node, OP_Mul, a, rotation->sine),
                                 emit_binary(node, OP_Mul, b, rotation->cosine));
    if (!first || !second) return 0;
    ValueId result;
    if (rotation->interleaved) {
        Shape column = {5, {whole.dim[0], whole.dim[1], whole.dim[2], pairs, 1}};
        Shape turned = {4, {whole.dim[0], whole.dim[1], whole.dim[2], 2 * pairs}};
        result = emit_concat(node, emit_reshape(node, first, &column), emit_reshape(node, second, &column), 4);
        result = emit_reshape(node, result, &turned);
    } else {
        result = emit_concat(node, first, second, 3);
    }
    if (2 * pairs == whole.dim[3]) return result;
    return emit_concat(node, result, take(node, rotation->x, 2 * pairs, 1, whole.dim[3] - 2 * pairs), 3);
}

/* Rows of a table [positions, pairs], or the table itself if there are no positions, as [batch or 1, 1, length, pairs].
 * */
static ValueId angles(OnnxNode *node, ValueId table, ValueId positions)
{
    if (positions) table = emit_lookup(node, table, positions, 0);
    if (!table) return 0;
    Shape shape = shape_of(node, table);
    if (shape.rank != 2 && shape.rank != 3)
        return node_error(node, NULL, "takes cosines of 2 or 3 dimensions, not of %d", shape.rank), 0;
    bool batched = shape.rank == 3;
    Shape wide = {4, {batched ? shape.dim[0] : 1, 1, shape.dim[batched], shape.dim[batched + 1]}};
    return emit_reshape(node, table, &wide);
}

ValueId emit_rotation(OnnxNode *node, ValueId x, const ValueId tables[2], ValueId positions, int64_t heads,
                      int64_t width_turned, int64_t interleaved)
{
    Shape shape = shape_of(node, x);
    if (shape.rank != 3 && shape.rank != 4) return node_error(node, NULL, "takes a tensor of 3 or 4 dimensions"), 0;
    Rotation rotation = {.node = node,
                         .x = x,
                         .cosine = angles(node, tables[0], positions),
                         .sine = angles(node, tables[1], positions),
                         .interleaved = interleaved};
    if (!rotation.cosine || !rotation.sine) return 0;
    rotation.pairs = shape_of(node, rotation.cosine).dim[3];
    int64_t width = shape.rank == 4 ? shape.dim[3] : heads ? shape.dim[2] / heads : 2 * rotation.pairs;
    if (shape.rank == 3) {
        if (width < 1) return node_error(node, NULL, "cannot be split into its heads"), 0;
        rotation.x = emit_split_heads(node, x, shape.dim[2] / width);
        if (!rotation.x) return 0;
    }
    if (rotation.pairs < 1 || 2 * rotation.pairs > width || (width_turned && width_turned != 2 * rotation.pairs))
        return node_error(node, NULL, "has %lld cosines for heads of %lld elements", (long long)rotation.pairs,
                          (long long)width),
               0;
    ValueId result = rotate(&rotation);
    return shape.rank == 3 ? emit_join_heads(node, result) : result;
}

static bool emit_rotary(OnnxNode *node, const ValueId tables[2], ValueId positions)
{
    int64_t heads = integer_attribute(node, "num_heads", 0), width = integer_attribute(node, "rotary_embedding_dim", 0),
            interleaved = integer_attribute(node, "interleaved", 0);
    return set_output(node, 0, emit_rotation(node, node->inputs[0], tables, positions, heads, width, interleaved));
}

bool normalize_rotary(OnnxNode *node) { return emit_rotary(node, &node->inputs[1], optional_input(node, 3)); }

/* Of com.microsoft: positions stand before the tables, and may be the first one only. */
bool normalize_rotary_microsoft(OnnxNode *node)
{
    if (integer_attribute(node, "is_packed_batching", 0) || float_attribute(node, "scale", 1) != 1)
        return node_unsupported(node, NULL, "is packed or scaled, which is not supported");
    Shape shape = shape_of(node, node->inputs[0]), given = shape_of(node, node->inputs[1]);
    ValueId positions = node->inputs[1];
    if (given.rank < 2) {
        int64_t length = shape.rank < 3 ? 1 : shape.dim[shape.rank == 4 ? 2 : 1];
        positions = emit_binary(node, OP_Add, emit_counting(node, 0, &(Shape){1, {length}}), positions);
    }
    return emit_rotary(node, &node->inputs[2], positions);
}
