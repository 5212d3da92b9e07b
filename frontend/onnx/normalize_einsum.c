/* Einsum: products over named dimensions, summed over those that the result does not name. Operands are joined one
 * after the other by matrix products, whose batch dimensions are those that both operands and the result (or a later
 * operand) name. */
#include <string.h>

#include "frontend/onnx/normalize.h"

/* Dimensions are named by letters; those of an ellipsis by '0' ..., counted from the right. */
enum { MAX_TERMS = 16, NAMES = 128 };

typedef struct Term {
    ValueId value; /* 0 while only parsed */
    int rank;
    char name[MAX_RANK];
} Term;

typedef struct Equation {
    OnnxNode *node;
    Term terms[MAX_TERMS];
    int term_count;
    Term result;
    int64_t extent[NAMES]; /* per name; 0: not used */
} Equation;

static bool malformed(OnnxNode *node) { return node_error(node, NULL, "the equation does not fit its inputs"); }

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/* Reads one term up to ',' or the end; an ellipsis stands for `ellipsis` dimensions. */
static bool parse_term(const char **text, int ellipsis, Term *term)
{
    for (; **text && **text != ','; (*text)++) {
        if (**text == ' ') continue;
        bool dots = strncmp(*text, "...", 3) == 0;
        if (!dots && !is_letter(**text)) return false;
        int count = dots ? ellipsis : 1;
        for (int i = 0; i < count; i++) {
            if (term->rank == MAX_RANK) return false;
            term->name[term->rank++] = dots ? (char)('0' + ellipsis - 1 - i) : **text;
        }
        if (dots) *text += 2;
    }
    return true;
}

/* How many dimensions an ellipsis stands for in a term of `rank` dimensions. */
static int ellipsis_rank(const char *text, int rank)
{
    int letters = 0;
    bool dots = false;
    for (; *text && *text != ','; text++) {
        letters += is_letter(*text);
        dots |= *text == '.';
    }
    return dots ? rank - letters : 0;
}

static bool parse_operands(Equation *equation, const char *text, int *widest)
{
    OnnxNode *node = equation->node;
    *widest = 0;
    for (int i = 0; i < node->input_count; i++) {
        Term *term = &equation->terms[i];
        Shape shape = shape_of(node, node->inputs[i]);
        int ellipsis = ellipsis_rank(text, shape.rank);
        if (ellipsis < 0 || !parse_term(&text, ellipsis, term) || term->rank != shape.rank) return malformed(node);
        if (ellipsis > *widest) *widest = ellipsis;
        for (int k = 0; k < term->rank; k++) {
            int64_t *extent = &equation->extent[(unsigned char)term->name[k]];
            if (*extent > 1 && shape.dim[k] != 1 && *extent != shape.dim[k]) return malformed(node);
            if (*extent <= 1) *extent = shape.dim[k];
        }
        term->value = node->inputs[i];
        bool last = i == node->input_count - 1;
        if (*text != (last ? '\0' : ',')) return malformed(node);
        if (!last) text++;
    }
    equation->term_count = node->input_count;
    return true;
}

/* Without '->' the result has the ellipsis and, in alphabetical order, what is named once. */
static bool imply_result(Equation *equation, int ellipsis)
{
    Term *result = &equation->result;
    int uses[NAMES] = {0};
    for (int i = 0; i < equation->term_count; i++)
        for (int k = 0; k < equation->terms[i].rank; k++) uses[(unsigned char)equation->terms[i].name[k]]++;
    for (int i = ellipsis - 1; i >= 0; i--) result->name[result->rank++] = (char)('0' + i);
    for (int c = 'A'; c <= 'z'; c++) {
        if (uses[c] != 1) continue;
        if (result->rank == MAX_RANK) return malformed(equation->node);
        result->name[result->rank++] = (char)c;
    }
    return true;
}

static bool parse(Equation *equation, const char *text)
{
    int ellipsis;
    const char *arrow = strstr(text, "->");
    size_t length = arrow ? (size_t)(arrow - text) : strlen(text);
    const char *operands = arena_string_n(&equation->node->importer->arena, text, length);
    if (!parse_operands(equation, operands, &ellipsis)) return false;
    if (!arrow) return imply_result(equation, ellipsis);
    const char *rest = arrow + 2;
    if (!parse_term(&rest, ellipsis, &equation->result) || *rest) return malformed(equation->node);
    for (int i = 0; i < equation->result.rank; i++) {
        char name = equation->result.name[i];
        if (!equation->extent[(unsigned char)name] || memchr(equation->result.name, name, (size_t)i))
            return malformed(equation->node);
    }
    return true;
}

static int position(const Term *term, char name)
{
    const char *found = memchr(term->name, name, (size_t)term->rank);
    return found ? (int)(found - term->name) : -1;
}

/* Whether the result, or a term after the first `done`, names it. */
static bool needed_later(const Equation *equation, int done, char name)
{
    if (position(&equation->result, name) >= 0) return true;
    for (int i = done; i < equation->term_count; i++)
        if (position(&equation->terms[i], name) >= 0) return true;
    return false;
}

static void drop_dimension(Term *term, int at)
{
    memmove(&term->name[at], &term->name[at + 1], (size_t)(term->rank - at - 1));
    term->rank--;
}

/* A name that stands twice in a term means its diagonal: everything else becomes zero and is summed away. */
static bool take_diagonal(Equation *equation, Term *term, int first, int second)
{
    OnnxNode *node = equation->node;
    Shape shape = shape_of(node, term->value), mask_shape = {.rank = shape.rank};
    int64_t extent = shape.dim[first], axis = second;
    if (extent != shape.dim[second]) return malformed(node);
    for (int i = 0; i < shape.rank; i++) mask_shape.dim[i] = i == first || i == second ? extent : 1;
    void *bits;
    ValueId mask = emit_constant(node, DTYPE_BOOL, &mask_shape, &bits);
    if (!mask) return false;
    for (int64_t i = 0; i < extent; i++) ((unsigned char *)bits)[i * extent + i] = 1;
    ValueId zero = emit_scalar(node, dtype_of(node, term->value), 0);
    term->value = emit_reduce(node, OP_ReduceSum, emit_where(node, mask, term->value, zero), &axis, 1, false);
    drop_dimension(term, second);
    return term->value != 0;
}

/* Takes repeated names, dimensions that only broadcast, and what nobody else names out of a term. */
static bool simplify(Equation *equation, Term *term, int number)
{
    OnnxNode *node = equation->node;
    for (int i = 0; i < term->rank; i++)
        for (int k = term->rank - 1; k > i; k--)
            if (term->name[k] == term->name[i] && !take_diagonal(equation, term, i, k)) return false;
    Shape shape = shape_of(node, term->value), rest = {0};
    for (int i = term->rank - 1; i >= 0; i--)
        if (shape.dim[i] == 1 && equation->extent[(unsigned char)term->name[i]] != 1) drop_dimension(term, i);
    for (int i = 0; i < term->rank; i++) rest.dim[rest.rank++] = equation->extent[(unsigned char)term->name[i]];
    term->value = emit_reshape(node, term->value, &rest);
    int64_t axes[MAX_RANK];
    int count = 0;
    for (int i = 0; i < term->rank; i++) {
        bool needed = position(&equation->result, term->name[i]) >= 0;
        for (int k = 0; k < equation->term_count; k++)
            needed |= k != number && position(&equation->terms[k], term->name[i]) >= 0;
        if (!needed) axes[count++] = i;
    }
    if (term->value) term->value = emit_reduce(node, OP_ReduceSum, term->value, axes, count, false);
    while (count > 0) drop_dimension(term, (int)axes[--count]);
    return term->value != 0;
}

/* The names of a term sorted into groups, and the term brought to them: batch dimensions, then rows, then columns, the
 * latter two as one dimension each. */
static ValueId arrange(OnnxNode *node, const Term *term, const Term *batch, const Term *rows, const Term *columns)
{
    const Term *groups[3] = {batch, rows, columns};
    Shape shape = shape_of(node, term->value), result = {0};
    int64_t perm[MAX_RANK];
    int count = 0;
    for (int g = 0; g < 3; g++) {
        int64_t product = 1;
        for (int i = 0; i < groups[g]->rank; i++) {
            int at = position(term, groups[g]->name[i]);
            perm[count++] = at;
            product *= shape.dim[at];
            if (g == 0) result.dim[result.rank++] = shape.dim[at];
        }
        if (g > 0) result.dim[result.rank++] = product;
    }
    return emit_reshape(node, emit_transpose(node, term->value, perm), &result);
}

static void add_name(Term *term, char name) { term->name[term->rank++] = name; }

/* Replaces `left` by its product with `right`, term number `number`. */
static bool join(Equation *equation, Term *left, const Term *right, int number)
{
    OnnxNode *node = equation->node;
    Term batch = {0}, rows = {0}, columns = {0}, inner = {0};
    for (int i = 0; i < left->rank; i++) {
        char name = left->name[i];
        if (position(right, name) < 0)
            add_name(&rows, name);
        else
            add_name(needed_later(equation, number + 1, name) ? &batch : &inner, name);
    }
    for (int i = 0; i < right->rank; i++)
        if (position(left, right->name[i]) < 0) add_name(&columns, right->name[i]);
    if (batch.rank + rows.rank + columns.rank > MAX_RANK || batch.rank > MAX_RANK - 3)
        return node_unsupported(node, NULL, "makes a tensor of too many dimensions");
    ValueId a = arrange(node, left, &batch, &rows, &inner), b = arrange(node, right, &batch, &inner, &columns);
    ValueId product = emit_binary(node, OP_MatMul, a, b);
    *left = (Term){0};
    Shape shape = {0};
    const Term *groups[3] = {&batch, &rows, &columns};
    for (int g = 0; g < 3; g++)
        for (int i = 0; i < groups[g]->rank; i++) {
            add_name(left, groups[g]->name[i]);
            shape.dim[shape.rank++] = equation->extent[(unsigned char)groups[g]->name[i]];
        }
    left->value = emit_reshape(node, product, &shape);
    return left->value != 0;
}

bool normalize_einsum(OnnxNode *node)
{
    const char *text = string_attribute(node, "equation", NULL);
    if (!text) return node_error(node, NULL, "has no equation");
    if (node->input_count > MAX_TERMS) return node_unsupported(node, NULL, "has more than %d inputs", MAX_TERMS);
    Equation equation = {.node = node};
    if (!parse(&equation, text)) return false;
    for (int i = 0; i < equation.term_count; i++)
        if (!simplify(&equation, &equation.terms[i], i)) return false;
    Term product = equation.terms[0];
    for (int i = 1; i < equation.term_count; i++)
        if (!join(&equation, &product, &equation.terms[i], i)) return false;

    /* Dimensions of the result that every operand broadcast along are 1 in all of them. */
    int64_t perm[MAX_RANK];
    for (int i = 0; i < equation.result.rank; i++) perm[i] = position(&product, equation.result.name[i]);
    return set_output(node, 0, emit_transpose(node, product.value, perm));
}
