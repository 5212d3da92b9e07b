#include "runtime/train/evaluate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "runtime/program/label_names.h"
#include "runtime/program/step.h"
#include "runtime/train/answers.h"
#include "runtime/train/entities.h"

/* What is compared. */
typedef enum Compared { COMPARES_LABELS, COMPARES_ANSWERS, COMPARES_PAIRS } Compared;

typedef struct Counting {
    Pipeline *pipeline;
    const PipelineBatch *batch; /* that is evaluated */
    Compared compared;
    int stage;                         /* the one on this rank with labels and predictions; -1: none */
    const SkyTensor *labels, *outputs; /* in its slot; of answers and pairs two outputs, and no labels */
    const SkyTensor *others;           /* where answers end; embeddings of partners */
    SkyLabelKind kind;
    int64_t columns; /* labels per row, unless the kind is classes */
    ClassCounts classes;
    LabelSets sets;       /* instead of classes, for several columns of probabilities */
    NumberPairs *numbers; /* [columns] */
    Arena arena;
    EntityTags tags;
    EntityCounter entities; /* where labels are tags */
    AnswerTexts texts;
    BestAnswer *answers;
    double *starts, *ends; /* scores of a row */
    int64_t pairs, pairs_right;
} Counting;

static const SkyTensor *find_labels(const SkyProgram *program, const SkyStage *stage)
{
    for (uint32_t i = 0; i < stage->input_count; i++)
        if (strcmp(stage->inputs[i].name, program->labels[0].name) == 0) return &stage->inputs[i];
    return NULL;
}

/* Whether the output has `numbers` floats for each label, in the order of the labels. */
static bool has_for_each(const SkyTensor *output, const SkyTensor *labels, int64_t numbers)
{
    if (output->dtype != DTYPE_F32 || output->rank < labels->rank ||
        memcmp(output->dim, labels->dim, labels->rank * sizeof *labels->dim) != 0)
        return false;
    return output->rank == labels->rank ? numbers == 1
                                        : output->rank == labels->rank + 1 && output->dim[labels->rank] == numbers;
}

/* What the labels are compared with: scores of classes, or numbers. */
static const SkyTensor *find_outputs(const SkyProgram *program, const SkyStage *stage, const SkyTensor *labels)
{
    bool classes = program->labels[0].kind == SKY_LABELS_CLASSES;
    bool numbers = program->labels[0].kind == SKY_LABELS_NUMBERS;
    if (numbers && !dtype_is_float((DType)labels->dtype)) return NULL; /* integers cannot mark padding */
    for (uint32_t o = 0; o < stage->output_count; o++)
        if (has_for_each(&stage->outputs[o], labels, classes ? program->labels[0].classes : 1))
            return &stage->outputs[o];
    return NULL;
}

static bool are_counted(const SkyProgram *program)
{
    /* With several kinds of labels it is not known which output to measure. */
    if (program->label_count != 1) return false;
    const SkyLabels *labels = &program->labels[0];
    return labels->kind != SKY_LABELS_CLASSES || labels->classes > 0;
}

/* One, unless labels and outputs have a dimension after that of the rows. */
static int64_t count_columns(const SkyTensor *labels, const SkyTensor *outputs)
{
    return labels->rank > 1 && labels->rank == outputs->rank ? labels->dim[labels->rank - 1] : 1;
}

static void find_labelled(Counting *counting)
{
    const SkyProgram *program = counting->pipeline->program;
    if (!are_counted(program)) return;
    for (uint32_t s = 0; s < program->stage_count; s++) {
        const SkyStage *stage = &program->stages[s];
        const SkyTensor *labels = stage->has_loss ? find_labels(program, stage) : NULL;
        const SkyTensor *outputs = labels ? find_outputs(program, stage, labels) : NULL;
        if (!outputs) continue;
        counting->stage = (int)s;
        counting->labels = labels, counting->outputs = outputs;
        counting->kind = (SkyLabelKind)program->labels[0].kind;
        counting->columns = count_columns(labels, outputs);
    }
}

static const SkyTensor *find_rows(const SkyStage *stage, const char *name)
{
    for (uint32_t o = 0; o < stage->output_count; o++)
        if (strcmp(stage->outputs[o].name, name) == 0)
            return stage->outputs[o].rank == 2 && stage->outputs[o].dtype == DTYPE_F32 ? &stage->outputs[o] : NULL;
    return NULL;
}

/* Two outputs of the stage with the loss that are compared with each other, or with texts. */
static void find_both(Counting *counting, const char *one, const char *other, Compared compared)
{
    const SkyProgram *program = counting->pipeline->program;
    for (uint32_t s = 0; s < program->stage_count && !program->packing.slots; s++) {
        const SkyStage *stage = &program->stages[s];
        const SkyTensor *first = find_rows(stage, one), *second = find_rows(stage, other);
        if (!stage->has_loss || !first || !second || first->bytes != second->bytes) continue;
        counting->stage = (int)s, counting->compared = compared;
        counting->outputs = first, counting->others = second;
    }
}

static Counting find_counted(Pipeline *pipeline, const Dataset *dataset)
{
    const SkyProgram *program = pipeline->program;
    Counting counting = {.pipeline = pipeline, .stage = -1};
    size_t count = 0;
    find_labelled(&counting);
    if (counting.stage >= 0 && counting.kind == SKY_LABELS_CLASSES && counting.labels->rank == 2) {
        const char *const *names = label_names_read(dataset->label_names, &counting.arena, &count);
        if ((int64_t)count == program->labels[0].classes) counting.tags = entity_tags(names, count, &counting.arena);
    }
    if (program->label_count == 0) find_both(&counting, "embedding", "embedding_2", COMPARES_PAIRS);
    if (program->label_count != 2 || dataset->rows <= 0) return counting;
    answer_texts_open(&counting.texts, &dataset->file, &counting.arena);
    if (counting.texts.count) find_both(&counting, "start_logits", "end_logits", COMPARES_ANSWERS);
    return counting;
}

static bool counts_sets(const Counting *counting)
{
    return counting->kind == SKY_LABELS_PROBABILITIES && counting->columns > 1;
}

static void counting_open(Counting *counting)
{
    if (counting->stage < 0 || counting->compared == COMPARES_PAIRS) return;
    if (counting->compared == COMPARES_ANSWERS) {
        const AnswerTexts *texts = &counting->texts;
        counting->answers = arena_new_array(&counting->arena, BestAnswer, (size_t)texts->count);
        counting->starts = arena_new_array(&counting->arena, double, 2 * (size_t)counting->outputs->dim[1]);
        counting->ends = counting->starts + counting->outputs->dim[1];
        best_answers_begin(counting->answers, texts);
        return;
    }
    if (counting->tags.count) entity_counter_open(&counting->entities, &counting->tags);
    bool classes = counting->kind == SKY_LABELS_CLASSES;
    if (counting->kind == SKY_LABELS_NUMBERS)
        counting->numbers = memory_allocate((size_t)counting->columns * sizeof *counting->numbers);
    else if (counts_sets(counting))
        label_sets_open(&counting->sets, counting->columns);
    else /* a label that is set or not set is one of two classes */
        class_counts_open(&counting->classes, classes ? counting->pipeline->program->labels[0].classes : 2);
}

static void counting_close(Counting *counting)
{
    class_counts_close(&counting->classes);
    label_sets_close(&counting->sets);
    for (int64_t c = 0; counting->numbers && c < counting->columns; c++) number_pairs_free(&counting->numbers[c]);
    free(counting->numbers);
    entity_counter_close(&counting->entities);
    arena_free(&counting->arena);
}

/* ---- Entities, answers, pairs ---- */

/* Whether token `token` of a micro-batch is the first of its row. */
static bool begins_row(const Counting *counting, uint32_t microbatch, int64_t token)
{
    const PackedBatch *packed = counting->batch->packed;
    int64_t width = counting->labels->dim[1], at = token % width, begin = 0;
    if (!packed || at == 0) return at == 0;
    const SkyPacking *packing = &packed->packer.packing;
    const uint32_t *rows =
        packed->row_in_slot + ((size_t)microbatch * packing->lines + (size_t)(token / width)) * packing->slots;
    for (uint32_t slot = 0; slot < packing->slots && rows[slot] != PACKED_NO_ROW && begin < at; slot++)
        begin += packed->lengths[rows[slot]];
    return begin == at;
}

static void count_word(Counting *counting, int64_t label, int64_t prediction)
{
    class_counts_add(&counting->classes, label, prediction);
    if (counting->tags.count) entity_counter_add(&counting->entities, label, prediction);
}

static uint32_t data_row(const Counting *counting, uint32_t microbatch, int64_t row)
{
    return counting->batch->rows[(int64_t)microbatch * counting->outputs->dim[0] + row];
}

static void count_answers(Counting *counting, uint32_t microbatch, const float *starts, const float *ends)
{
    int64_t width = counting->outputs->dim[1];
    for (int64_t r = 0; r < counting->outputs->dim[0]; r++) {
        uint32_t row = data_row(counting, microbatch, r);
        if (row == DATASET_NO_ROW || row >= counting->texts.windows || width > counting->texts.width) continue;
        for (int64_t t = 0; t < width; t++)
            counting->starts[t] = starts[r * width + t], counting->ends[t] = ends[r * width + t];
        best_answer_take(counting->answers, &counting->texts, row, counting->starts, counting->ends, width);
    }
}

static double cosine(const float *a, const float *b, int64_t count)
{
    double both = 0, one = 0, other = 0;
    for (int64_t i = 0; i < count; i++)
        both += (double)a[i] * b[i], one += (double)a[i] * a[i], other += (double)b[i] * b[i];
    return one > 0 && other > 0 ? both / sqrt(one * other) : 0;
}

/* Whether no other row's partner is nearer than its own, and one is further away: to a model that tells nothing apart,
 * all are equally near. A row that is alone in its batch says nothing. */
static void count_pairs(Counting *counting, uint32_t microbatch, const float *texts, const float *partners)
{
    int64_t rows = counting->outputs->dim[0], width = counting->outputs->dim[1];
    for (int64_t r = 0; r < rows; r++) {
        if (data_row(counting, microbatch, r) == DATASET_NO_ROW) continue;
        double own = cosine(texts + r * width, partners + r * width, width);
        int64_t others = 0, further = 0, as_near = 0;
        for (int64_t k = 0; k < rows; k++) {
            if (k == r || data_row(counting, microbatch, k) == DATASET_NO_ROW) continue;
            double other = cosine(texts + r * width, partners + k * width, width);
            others++, further += other < own, as_near += other == own;
        }
        counting->pairs += others > 0;
        counting->pairs_right += further > 0 && further + as_near == others;
    }
}

/* Scores of classes, the largest of which is the prediction. */
static void count_classes(Counting *counting, const SkyLabels *described, uint32_t microbatch, const void *labels,
                          const float *outputs)
{
    const SkyTensor *tensor = counting->labels;
    int64_t classes = described->classes, count = (int64_t)(counting->outputs->bytes / sizeof(float)) / classes;
    int64_t inside = 1, positions = described->shifted ? tensor->dim[1] : 1;
    for (uint32_t i = 2; described->shifted && i < tensor->rank; i++) inside *= tensor->dim[i];
    for (int64_t i = 0; i < count; i++) {
        int64_t label = element_as_integer((DType)tensor->dtype, labels, i), best = 0;
        if (counting->tags.count && begins_row(counting, microbatch, i)) entity_counter_end_row(&counting->entities);
        if (label == described->ignore_index || (described->shifted && i / inside % positions == 0)) continue;
        if (label < 0 || label >= classes) continue;
        const float *scores = outputs + (described->shifted ? i - inside : i) * classes;
        for (int64_t c = 1; c < classes; c++)
            if (scores[c] > scores[best]) best = c;
        count_word(counting, label, best);
    }
    if (counting->tags.count) entity_counter_end_row(&counting->entities);
}

static void count_numbers(Counting *counting, const void *labels, const float *outputs)
{
    for (int64_t i = 0, count = (int64_t)(counting->outputs->bytes / sizeof(float)); i < count; i++) {
        double label = element_as_double((DType)counting->labels->dtype, labels, i);
        if (!isnan(label)) number_pairs_add(&counting->numbers[i % counting->columns], outputs[i], label);
    }
}

/* The outputs are logits of labels that are set or not set. A prediction or label is set if its probability is above a
 * half. */
static void count_probabilities(Counting *counting, int64_t ignore_index, const void *labels, const float *outputs)
{
    int64_t columns = counting->columns, rows = (int64_t)(counting->outputs->bytes / sizeof(float)) / columns;
    for (int64_t r = 0; r < rows; r++) {
        bool counted = false, right = true;
        for (int64_t c = 0; c < columns; c++) {
            double label = element_as_double((DType)counting->labels->dtype, labels, r * columns + c);
            if (isnan(label) || label == (double)ignore_index) continue;
            bool has = label > 0.5, predicted = outputs[r * columns + c] > 0;
            counted = true;
            right &= has == predicted;
            if (columns > 1)
                label_sets_add(&counting->sets, c, has, predicted);
            else
                class_counts_add(&counting->classes, has, predicted);
        }
        if (columns > 1) label_sets_end_row(&counting->sets, counted, right);
    }
}

static void count_microbatch(void *context, uint32_t local_stage, uint32_t microbatch, uint32_t slot)
{
    Counting *counting = context;
    if ((int)local_stage != counting->stage) return;
    const Execution *execution = counting->pipeline->execution;
    const SkyLabels *described = execution->program->labels;
    const SkyTensor *from = counting->outputs, *other = counting->others;
    const float *outputs = execution_fetch(execution, local_stage, slot, from->location, from->bytes);
    if (counting->compared != COMPARES_LABELS) {
        const float *others = execution_fetch(execution, local_stage, slot, other->location, other->bytes);
        (counting->compared == COMPARES_ANSWERS ? count_answers : count_pairs)(counting, microbatch, outputs, others);
        return;
    }
    const void *labels = execution_address(execution, local_stage, slot, counting->labels->location);
    if (described->kind == SKY_LABELS_CLASSES)
        count_classes(counting, described, microbatch, labels, outputs);
    else if (described->kind == SKY_LABELS_PROBABILITIES)
        count_probabilities(counting, described->ignore_index, labels, outputs);
    else
        count_numbers(counting, labels, outputs);
}

/* ---- Which metrics ---- */

/* What this rank can measure: bits 1 << Metric. */
static uint32_t measurable(const Counting *counting)
{
    enum { OF_NUMBERS = 1 << METRIC_PEARSON | 1 << METRIC_SPEARMAN };
    enum { OF_CLASSES = 1 << METRIC_ACCURACY | 1 << METRIC_F1 | 1 << METRIC_MATTHEWS | 1 << METRIC_PERPLEXITY };
    enum { OF_SETS = 1 << METRIC_ACCURACY | 1 << METRIC_F1 };
    enum { OF_ONE_LABEL = OF_SETS | 1 << METRIC_MATTHEWS }; /* no perplexity: the loss is not per word */
    if (counting->stage < 0) return 1 << METRIC_LOSS;
    if (counting->compared == COMPARES_ANSWERS) return 1 << METRIC_LOSS | 1 << METRIC_EXACT | 1 << METRIC_F1;
    if (counting->compared == COMPARES_PAIRS) return 1 << METRIC_LOSS | 1 << METRIC_ACCURACY;
    uint32_t of_kind = counting->kind == SKY_LABELS_CLASSES   ? OF_CLASSES
                       : counting->kind == SKY_LABELS_NUMBERS ? OF_NUMBERS
                       : counts_sets(counting)                ? OF_SETS
                                                              : OF_ONE_LABEL;
    return 1 << METRIC_LOSS | of_kind;
}

/* What --metric may name here. */
static void name_measurable(const Counting *counting, Buffer *text)
{
    buffer_print(text, "what can be: %s", metric_name(METRIC_LOSS));
    for (Metric metric = METRIC_LOSS + 1; metric < METRIC_COUNT; metric++)
        if (measurable(counting) & 1u << metric) buffer_print(text, ", %s", metric_name(metric));
}

static bool refuse_metric(const Counting *counting, Metric metric, Diagnostics *diagnostics)
{
    static const char *const labels[] = {[SKY_LABELS_CLASSES] = "labels that are classes",
                                         [SKY_LABELS_NUMBERS] = "labels that are numbers",
                                         [SKY_LABELS_PROBABILITIES] = "one label that is there or not"};
    FREED_WITH(buffer_free) Buffer hint = {0};
    name_measurable(counting, &hint);
    if (counting->compared != COMPARES_LABELS)
        usage_error(diagnostics, buffer_text(&hint), "%s cannot be measured with %s", metric_name(metric),
                    counting->compared == COMPARES_PAIRS ? "pairs" : "answers");
    else if (counting->stage < 0)
        usage_error(diagnostics, buffer_text(&hint),
                    "%s cannot be measured: the stage with the loss has no output that could be compared with "
                    "its labels",
                    metric_name(metric));
    else
        usage_error(diagnostics, buffer_text(&hint), "%s cannot be measured with %s", metric_name(metric),
                    counts_sets(counting) ? "several labels a row" : labels[counting->kind]);
    return false;
}

/* Reports a kind of F1 that does not fit the labels. */
static bool check_f1(const Counting *counting, F1Kind kind, Diagnostics *diagnostics)
{
    if (kind != F1_BINARY || counting->stage < 0 || counting->compared != COMPARES_LABELS) return true;
    int64_t classes = counting->pipeline->program->labels[0].classes;
    if (counts_sets(counting))
        return usage_error(diagnostics, "f1-micro counts all labels together, f1-macro is the mean over them",
                           "f1-binary is for one label a row, but this model has %lld", (long long)counting->columns);
    return counting->kind != SKY_LABELS_CLASSES || classes == 2 ||
           usage_error(diagnostics, "f1-macro is the mean over the classes",
                       "f1-binary is for two classes, but this model has %lld", (long long)classes);
}

/* The default metrics: for words the perplexity, instead of a mean over thousands of classes. */
static uint32_t suggested(const Counting *counting)
{
    enum { MOST_CLASSES = 256 };
    uint32_t metrics = measurable(counting);
    bool words = counting->labels && counting->pipeline->program->labels[0].classes > MOST_CLASSES;
    return metrics & ~(words ? 1u << METRIC_F1 | 1u << METRIC_MATTHEWS : 1u << METRIC_PERPLEXITY);
}

bool evaluation_choose(Pipeline *pipeline, const Dataset *dataset, const MetricChoice *wanted, uint32_t besides,
                       MetricChoice *choice, Diagnostics *diagnostics)
{
    FREED_WITH(counting_close) Counting counting = find_counted(pipeline, dataset);
    bool has_loss = false, ok = true;
    if (counting.compared == COMPARES_PAIRS && dataset->rows == 1)
        ok = input_error(diagnostics, dataset->path, "give it at least two rows",
                         "has only one pair: there is no other to tell it from");
    for (uint32_t s = 0; s < pipeline->program->stage_count; s++) has_loss |= pipeline->program->stages[s].has_loss;
    *choice = *wanted;
    choice->metrics |= besides;
    if (has_loss) {
        uint32_t possible = measurable(&counting);
        if (!wanted->metrics) choice->metrics |= suggested(&counting);
        choice->metrics |= 1 << METRIC_LOSS;
        for (Metric metric = 0; ok && metric < METRIC_COUNT; metric++)
            if (choice->metrics & ~possible & 1u << metric) ok = refuse_metric(&counting, metric, diagnostics);
        ok = ok && check_f1(&counting, wanted->f1, diagnostics);
    }
    return ok;
}

/* The mean over the columns. */
static double correlation(const Counting *counting, double number_pairs_correlation(NumberPairs *))
{
    double all = 0;
    for (int64_t c = 0; c < counting->columns; c++) all += number_pairs_correlation(&counting->numbers[c]);
    return all / (double)counting->columns;
}

static void measure(Counting *counting, const MetricChoice *choice, double loss, double values[METRIC_COUNT])
{
    const ClassCounts *classes = &counting->classes;
    uint32_t metrics = choice->metrics & measurable(counting);
    for (Metric metric = 0; metric < METRIC_COUNT; metric++) values[metric] = NAN;
    values[METRIC_LOSS] = loss;
    if (!isfinite(loss)) return; /* its predictions are worthless */
    bool sets = counts_sets(counting);
    if (counting->compared == COMPARES_ANSWERS && metrics & (1 << METRIC_EXACT | 1 << METRIC_F1)) {
        best_answers_measure(counting->answers, &counting->texts, &values[METRIC_EXACT], &values[METRIC_F1]);
        return;
    }
    if (counting->compared == COMPARES_PAIRS && metrics & 1 << METRIC_ACCURACY) {
        values[METRIC_ACCURACY] = counting->pairs ? (double)counting->pairs_right / (double)counting->pairs : NAN;
        return;
    }
    if (metrics & 1 << METRIC_ACCURACY)
        values[METRIC_ACCURACY] = sets ? label_sets_accuracy(&counting->sets) : class_counts_accuracy(classes);
    if (metrics & 1 << METRIC_F1 && counting->tags.count)
        values[METRIC_F1] = entity_counter_f1(&counting->entities, choice->f1);
    else if (metrics & 1 << METRIC_F1)
        values[METRIC_F1] = sets ? label_sets_f1(&counting->sets, choice->f1) : class_counts_f1(classes, choice->f1);
    if (metrics & 1 << METRIC_MATTHEWS) values[METRIC_MATTHEWS] = class_counts_matthews(classes);
    if (metrics & 1 << METRIC_PEARSON) values[METRIC_PEARSON] = correlation(counting, number_pairs_pearson);
    if (metrics & 1 << METRIC_SPEARMAN) values[METRIC_SPEARMAN] = correlation(counting, number_pairs_spearman);
    if (metrics & 1 << METRIC_PERPLEXITY) values[METRIC_PERPLEXITY] = exp(loss);
}

/* ---- Going through the rows ---- */

static double batch_loss(const Pipeline *pipeline)
{
    double loss = 0;
    for (uint32_t m = 0; m < pipeline->program->microbatch_count; m++) loss += pipeline->losses[m];
    return loss;
}

/* The batch's weight in the mean over batches, and its number of labels or rows. */
static LabelCount batch_weight(const SkyProgram *program, const Dataset *dataset, const LabelCount *counts,
                               int64_t rows)
{
    for (uint32_t i = 0; program->loss_is_summed && i < program->label_count; i++)
        if (dataset->labels[i]) return counts[i];
    return (LabelCount){rows, (double)rows};
}

static void take_pairs(void *context, const void *bytes, size_t size)
{
    NumberPairs *pairs = context;
    const NumberPair *taken = bytes;
    for (size_t i = 0; i < size / sizeof *taken; i++) number_pairs_add(pairs, taken[i].predicted, taken[i].label);
}

static void take_answers(void *context, const void *bytes, size_t size)
{
    Counting *counting = context;
    best_answers_merge(counting->answers, bytes, (int64_t)(size / sizeof *counting->answers));
}

/* Brings what the replicas counted together. */
static void count_together(Counting *counting, LossRanks *losses)
{
    if (losses->count < 2 || counting->stage < 0) return;
    if (counting->compared == COMPARES_PAIRS) {
        loss_ranks_count(losses, &counting->pairs, 1);
        loss_ranks_count(losses, &counting->pairs_right, 1);
        return;
    }
    if (counting->compared == COMPARES_ANSWERS) {
        size_t size = (size_t)counting->texts.count * sizeof *counting->answers;
        loss_ranks_bring(losses, counting->answers, size, take_answers, counting);
        return;
    }
    if (counting->tags.count)
        loss_ranks_count(losses, counting->entities.each.predicted, 3 * (size_t)counting->tags.type_count);
    ClassCounts *classes = counts_sets(counting) ? &counting->sets.each : &counting->classes;
    loss_ranks_count(losses, classes->predicted, 3 * (size_t)classes->classes);
    loss_ranks_count(losses, &counting->sets.rows, 1);
    loss_ranks_count(losses, &counting->sets.right, 1);
    for (int64_t c = 0; counting->numbers && c < counting->columns; c++)
        loss_ranks_bring(losses, counting->numbers[c].items, counting->numbers[c].count * sizeof(NumberPair),
                         take_pairs, &counting->numbers[c]);
}

bool evaluate(Pipeline *pipeline, LossRanks *losses, const Dataset *dataset, const EvaluationRows *rows, int64_t step,
              const MetricChoice *choice, EvaluationResult *result, Diagnostics *diagnostics)
{
    const SkyProgram *program = pipeline->program;
    int64_t batch = sky_batch_rows(program), used = rows->count;
    PackedBatch *packed = program->packing.slots ? rows->packed : NULL;
    FREED uint32_t *batch_rows = memory_allocate((size_t)batch * sizeof *batch_rows);
    FREED_WITH(counting_close) Counting counting = find_counted(pipeline, dataset);
    counting_open(&counting);
    double weighted = 0, weights = 0;
    int64_t labels = 0;
    bool ok = true;
    for (int64_t first = 0; first < used && ok; first += batch) {
        int64_t there = used - first < batch ? used - first : batch;
        for (int64_t i = 0; i < batch; i++)
            batch_rows[i] = i < there || program->whole_batches ? (uint32_t)((first + i) % used) : DATASET_NO_ROW;
        int64_t row_count = program->whole_batches ? batch : there;
        LabelCount counts[SKY_MOST_LABELS];
        dataset_count_labels(dataset, program, batch_rows, batch, counts);
        LabelCount counted = batch_weight(program, dataset, counts, there);
        step_scalars_losses(pipeline->execution->step, program, counts, row_count);
        step_scalars_set(pipeline->execution->step, SKY_STEP_DROPOUT, 0);
        if (packed) packed_batch_place(packed, rows->lengths, batch_rows);
        PipelineBatch work = {.dataset = dataset,
                              .rows = batch_rows,
                              .row_count = row_count,
                              .packed = packed,
                              .step = step,
                              .after_forward = count_microbatch,
                              .context = &counting};
        counting.batch = &work;
        world_note(pipeline->world, true, (used + batch - 1) / batch,
                   pipeline_microbatches(pipeline, packed, row_count));
        ok = pipeline_evaluate(pipeline, &work, diagnostics);
        loss_ranks_add(losses, pipeline->losses, program->microbatch_count);
        weighted += batch_loss(pipeline) * counted.weight;
        weights += counted.weight;
        labels += counted.count;
    }
    result->labels = labels;
    result->rows = counting.texts.count ? counting.texts.count : used;
    count_together(&counting, losses);
    measure(&counting, choice, weights > 0 ? weighted / weights : NAN, result->values);
    return ok;
}
