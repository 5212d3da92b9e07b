#include "graph/passes/loss.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/passes/loss_internal.h"
#include "graph/passes/passes.h"

/* Whether `value` is computed from a cross-entropy. */
static bool is_from_cross_entropy(const Graph *graph, ValueId value)
{
    bool *above = memory_allocate(graph->value_count), found = false;
    above[value] = true;
    for (NodeId n = (NodeId)graph->node_count - 1; n > 0 && !found; n--) {
        const Node *node = graph_node(graph, n);
        bool reached = false;
        for (int i = 0; node->op != OP_NONE && i < node->output_count; i++) reached |= above[node->outputs[i]];
        found = reached && node->op == OP_CrossEntropy;
        for (int i = 0; reached && i < node->input_count; i++) above[node->inputs[i]] = true;
    }
    free(above);
    return found;
}

/* Whether `value` is made of nothing but cross-entropies, added up and multiplied by constants: rows whose labels do
 * not count add nothing to it. */
static bool is_mean_over_labels(const Graph *graph, ValueId value)
{
    const Value *v = graph_value(graph, value);
    const Node *node = graph_node(graph, v->producer);
    if (!v->producer) return false;
    if (node->op == OP_CrossEntropy) return true;
    bool scaled = node->op == OP_Mul || node->op == OP_Div, moved = node->op == OP_Reshape || node->op == OP_Cast;
    int of = node->op == OP_Mul && graph_value(graph, node->inputs[0])->role == ROLE_CONSTANT;
    if (scaled && graph_value(graph, node->inputs[!of])->role != ROLE_CONSTANT) return false;
    if (scaled || moved) return is_mean_over_labels(graph, node->inputs[of]);
    return node->op == OP_Add && is_mean_over_labels(graph, node->inputs[0]) &&
           is_mean_over_labels(graph, node->inputs[1]);
}

static ValueId model_loss(const Builder *b, const LossTerm *term)
{
    Graph *graph = b->graph;
    ValueId value = loss_find_output(graph, term->names[0]);
    if (!loss_is_scalar(graph, value))
        return loss_refuse(b, EXIT_BAD_INPUT,
                           value ? "the output '%s', which --loss %s names, is not a float scalar"
                                 : "there is no output '%s', which --loss %s names",
                           term->names[0], term->text);
    value = build_reshape(b, value, &(Shape){0});
    /* The importer has turned a SoftmaxCrossEntropyLoss into an operator that applies the scale itself, also where the
     * loss is computed on from there. */
    if (!is_mean_over_labels(graph, value)) graph->whole_batches = true;
    if (is_from_cross_entropy(graph, value)) return value;
    graph->loss_is_summed = false;
    return build_binary(b, OP_ScaleLoss, value, graph_step_scalars(graph));
}

/* ---- Specifications ---- */

static bool malformed(const char *term, const char *what, Diagnostics *diagnostics)
{
    return usage_error(diagnostics,
                       "write cross-entropy, mse or bce, each with [:OUTPUT[:LABELS]], cosine:A:B[:LABELS], "
                       "contrastive:A:B[:TEMPERATURE], or output:NAME, each perhaps with a factor as in 0.5*mse, "
                       "joined by +; cross-entropy takes ,smoothing=X ,weights=A/B/C and ,shift",
                       "malformed loss '%s': %s", term, what);
}

static ValueId contrastive(const Builder *b, const LossTerm *term)
{
    static const double usual = 0.05; /* Reimers and Gurevych's Sentence-BERT library: cosines times 20 */
    LossTerm sharp = *term;
    char *end = "";
    sharp.temperature = term->names[2] ? strtod(term->names[2], &end) : usual;
    if (*end || end == term->names[2] || !(sharp.temperature >= 1e-3 && sharp.temperature <= 1e3))
        return malformed(term->text, "the temperature is a number from 0.001 to 1000", b->diagnostics), 0;
    return loss_contrastive(b, &sharp);
}

typedef struct LossKind {
    const char *name;
    int least_names, most_names, outputs;
    bool of_classes; /* takes the options of cross-entropy */
    ValueId (*append)(const Builder *b, const LossTerm *term);
} LossKind;

static const LossKind kinds[] = {
    {"cross-entropy", 0, 2, 1, true, loss_cross_entropy}, {"mse", 0, 2, 1, false, loss_squared_error},
    {"bce", 0, 2, 1, false, loss_binary_cross_entropy},   {"cosine", 2, 3, 2, false, loss_cosine},
    {"contrastive", 2, 3, 2, false, contrastive},         {"output", 1, 1, 1, false, model_loss},
};

static bool read_smoothing(LossTerm *term, const char *text, Diagnostics *diagnostics)
{
    char *end;
    term->smoothing = strtod(text, &end);
    return (end != text && !*end && term->smoothing >= 0 && term->smoothing <= 1) ||
           malformed(term->text, "smoothing is a number from 0 to 1", diagnostics);
}

static bool read_weights(Arena *arena, LossTerm *term, const char *text, Diagnostics *diagnostics)
{
    int64_t count = 1;
    for (const char *c = text; *c; c++) count += *c == '/';
    float *weights = arena_new_array(arena, float, (size_t)count);
    bool some = false;
    for (int64_t i = 0; i < count; i++) {
        char *end;
        weights[i] = strtof(text, &end);
        if (end == text || *end != (i + 1 < count ? '/' : '\0') || !(weights[i] >= 0 && isfinite(weights[i])))
            return malformed(term->text, "weights are numbers of 0 and more, one a class, with / between", diagnostics);
        some |= weights[i] > 0;
        text = end + 1;
    }
    term->weights = weights;
    term->weight_count = count;
    return some || malformed(term->text, "all weights are 0", diagnostics);
}

static bool read_option(Arena *arena, LossTerm *term, char *option, Diagnostics *diagnostics)
{
    char *value = option, *name = strsep(&value, "=");
    if (strcmp(name, "shift") == 0 && !value) return term->shift = true;
    if (strcmp(name, "smoothing") == 0 && value) return read_smoothing(term, value, diagnostics);
    if (strcmp(name, "weights") == 0 && value) return read_weights(arena, term, value, diagnostics);
    return malformed(term->text, arena_format(arena, "there is no option '%s'", name), diagnostics);
}

/* The factor before '*', 1 without one; negative after reporting. */
static double read_factor(LossTerm *term, char **text, Diagnostics *diagnostics)
{
    char *star = strchr(*text, '*'), *end;
    if (!star) return 1;
    double factor = strtod(*text, &end);
    bool ok = end != *text && end == star && factor >= 0 && isfinite((float)factor) && !strchr(star + 1, '*');
    *text = star + 1;
    return ok ? factor
              : (malformed(term->text, "a term has at most one factor, a number of 0 and more, followed by *",
                           diagnostics),
                 -1);
}

/* Takes `text` apart; NULL after reporting. */
static const LossKind *read_term(Arena *arena, LossTerm *term, char *text, Diagnostics *diagnostics)
{
    enum { MOST_NAMES = sizeof term->names / sizeof *term->names - 1 }; /* then NULL */
    *term = (LossTerm){.text = arena_string(arena, text)};
    if ((term->factor = read_factor(term, &text, diagnostics)) < 0) return NULL;
    char *options = text, *names = strsep(&options, ",");
    const char *name = strsep(&names, ":");
    const LossKind *kind = NULL;
    int count = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, name) == 0) kind = &kinds[i];
    while (names && count < MOST_NAMES) term->names[count++] = strsep(&names, ":");
    if (!kind) return malformed(term->text, "there is no such kind", diagnostics), NULL;
    if (names || count < kind->least_names || count > kind->most_names)
        return malformed(term->text, "it has too many names or too few", diagnostics), NULL;
    if (options && !kind->of_classes)
        return malformed(term->text, "only cross-entropy takes options", diagnostics), NULL;
    term->output_count = kind->outputs;
    while (options)
        if (!read_option(arena, term, strsep(&options, ","), diagnostics)) return NULL;
    return kind;
}

/* Whether the scores are one for each token of a row, as those of where an answer begins and ends are. */
static bool is_for_tokens(const Graph *graph, ValueId scores)
{
    const Value *value = graph_value(graph, scores);
    return scores && dtype_is_float(value->dtype) && value->shape.rank == 2 && value->shape.dim[1] > 1;
}

/* What the outputs themselves say the loss is; NULL after reporting if they do not. */
static const char *default_loss(const Builder *b)
{
    const Graph *graph = b->graph;
    if (loss_is_scalar(graph, loss_find_output(graph, "loss"))) return "output:loss";
    if (is_for_tokens(graph, loss_find_output(graph, "start_logits")) &&
        is_for_tokens(graph, loss_find_output(graph, "end_logits")))
        return LOSS_OF_ANSWERS;
    const Shape *shape = &graph_value(graph, loss_default_output(graph))->shape;
    if (shape->rank > 1 && shape->dim[shape->rank - 1] > 1) return "cross-entropy";
    loss_refuse(b, EXIT_USAGE, "no loss is given, and the outputs do not say what to train for");
    return NULL;
}

bool loss_compares_rows(const char *spec)
{
    static const char kind[] = "contrastive:";
    const char *found = spec ? strstr(spec, kind) : NULL;
    return found && (found == spec || found[-1] == '+' || found[-1] == '*');
}

bool attach_loss(Graph *graph, const PassOptions *options, Diagnostics *diagnostics)
{
    NodeOrigin origin = {.name = "loss", .phase = PHASE_FORWARD, .layer = LAYER_NONE};
    Builder b = {.graph = graph, .origin = origin, .diagnostics = diagnostics};
    const char *spec = options->loss;
    if (!options->want_loss) return true;
    if (!spec || !*spec) spec = default_loss(&b);
    if (!spec) return false;
    char *rest = arena_string(&graph->arena, spec);
    ValueId total = 0;
    bool counts = false;
    graph->loss_is_summed = true; /* unless a term is not */
    for (char *text; (text = strsep(&rest, "+"));) {
        LossTerm term;
        const LossKind *kind = read_term(&graph->arena, &term, text, diagnostics);
        ValueId loss = kind ? kind->append(&b, &term) : 0;
        if (!loss) return false;
        counts |= (float)term.factor > 0;
        if (term.factor != 1) {
            ValueId factor = graph_constant_scalar(graph, graph_value(graph, loss)->dtype, term.factor);
            loss = build_binary(&b, OP_Mul, loss, factor);
        }
        total = total ? build_binary(&b, OP_Add, total, loss) : loss;
    }
    graph->loss = total;
    return counts || malformed(spec, "all factors are 0, so there is nothing to train for", diagnostics);
}
