#include "runtime/evaluate.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/step.h"

typedef struct Counting {
    Pipeline *pipeline;
    int stage;                        /* on this rank, that has labels and logits; -1: none */
    const SkyTensor *labels, *logits; /* in its slot */
    int64_t correct;
} Counting;

static const SkyTensor *find_labels(const SkyProgram *program, const SkyStage *stage)
{
    for (uint32_t i = 0; i < stage->input_count; i++)
        if (strcmp(stage->inputs[i].name, program->labels[0].name) == 0) return &stage->inputs[i];
    return NULL;
}

/* The output with one float per label and class. */
static const SkyTensor *find_logits(const SkyProgram *program, const SkyStage *stage, const SkyTensor *labels)
{
    for (uint32_t o = 0; o < stage->output_count; o++) {
        const SkyTensor *output = &stage->outputs[o];
        if (output->dtype == DTYPE_F32 && output->rank == labels->rank + 1 &&
            output->dim[labels->rank] == program->labels[0].classes &&
            memcmp(output->dim, labels->dim, labels->rank * sizeof *labels->dim) == 0)
            return output;
    }
    return NULL;
}

static Counting find_counted(Pipeline *pipeline)
{
    const SkyProgram *program = pipeline->program;
    Counting counting = {.pipeline = pipeline, .stage = -1};
    if (program->label_count != 1 || program->labels[0].classes == 0) return counting; /* which output would it be? */
    for (uint32_t s = 0; s < program->stage_count; s++) {
        const SkyStage *stage = &program->stages[s];
        const SkyTensor *labels = stage->has_loss ? find_labels(program, stage) : NULL;
        const SkyTensor *logits = labels ? find_logits(program, stage, labels) : NULL;
        if (logits) counting = (Counting){pipeline, (int)s, labels, logits, 0};
    }
    return counting;
}

static void count_correct(void *context, uint32_t local_stage, uint32_t microbatch, uint32_t slot)
{
    Counting *counting = context;
    (void)microbatch;
    if ((int)local_stage != counting->stage) return;
    const Execution *execution = counting->pipeline->execution;
    const SkyProgram *program = execution->program;
    const void *labels = execution_address(execution, local_stage, slot, counting->labels->location);
    const float *logits = execution_address(execution, local_stage, slot, counting->logits->location);
    int64_t classes = program->labels[0].classes;
    int64_t count = (int64_t)(counting->logits->bytes / sizeof(float)) / classes;
    for (int64_t i = 0; i < count; i++, logits += classes) {
        int64_t label = element_as_integer((DType)counting->labels->dtype, labels, i), best = 0;
        for (int64_t c = 1; c < classes; c++)
            if (logits[c] > logits[best]) best = c;
        counting->correct += label != program->labels[0].ignore_index && label == best;
    }
}

int64_t evaluation_rows(const SkyProgram *program, int64_t rows)
{
    int64_t batch = (int64_t)program->microbatch_count * program->microbatch_size;
    return program->label_count && program->loss_is_summed ? rows : rows / batch * batch;
}

static double batch_loss(const Pipeline *pipeline)
{
    double loss = 0;
    for (uint32_t m = 0; m < pipeline->program->microbatch_count; m++) loss += pipeline->losses[m];
    return loss;
}

/* What the loss of a batch of `rows` rows counts for in the mean over batches. */
static int64_t batch_weight(const SkyProgram *program, const Dataset *dataset, const int64_t *valid, int64_t rows)
{
    for (uint32_t i = 0; program->loss_is_summed && i < program->label_count; i++)
        if (dataset->labels[i]) return valid[i];
    return rows;
}

bool evaluate(Pipeline *pipeline, const Dataset *dataset, int64_t rows, int64_t step, EvaluationResult *result,
              Diagnostics *diagnostics)
{
    const SkyProgram *program = pipeline->program;
    int64_t batch = (int64_t)program->microbatch_count * program->microbatch_size,
            used = evaluation_rows(program, rows);
    uint32_t *batch_rows = memory_allocate((size_t)batch * sizeof *batch_rows);
    Counting counting = find_counted(pipeline);
    double weighted = 0, weights = 0;
    int64_t labels = 0;
    bool ok = true;
    for (int64_t first = 0; first < used && ok; first += batch) {
        for (int64_t i = 0; i < batch; i++) batch_rows[i] = first + i < used ? (uint32_t)(first + i) : DATASET_NO_ROW;
        int64_t counts[SKY_MOST_LABELS];
        dataset_valid_labels(dataset, program, batch_rows, batch, counts);
        int64_t valid = batch_weight(program, dataset, counts, batch);
        step_scalars_losses(pipeline->execution->step, program, counts);
        step_scalars_set(pipeline->execution->step, SKY_STEP_DROPOUT, 0);
        PipelineBatch work = {
            .dataset = dataset, .rows = batch_rows, .step = step, .after_forward = count_correct, .context = &counting};
        ok = pipeline_evaluate(pipeline, &work, diagnostics);
        weighted += batch_loss(pipeline) * (double)valid;
        weights += (double)valid;
        labels += valid;
    }
    free(batch_rows);
    *result =
        (EvaluationResult){.loss = weights > 0 ? weighted / weights : 0,
                           .accuracy = counting.stage < 0 || !labels ? -1 : (double)counting.correct / (double)labels,
                           .labels = labels};
    return ok;
}
