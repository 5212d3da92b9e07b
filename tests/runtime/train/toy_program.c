/* A small classifier as a compiled program, hand-written: an embedding mean, dense layers with tanh, softmax and
 * cross-entropy. Its shape comes from the environment, so that one executable is every rank of every plan:
 *
 *   TOY_STAGES   rank of each stage, "0,1,2,3"        TOY_SCHEDULE  gpipe or 1f1b
 *   TOY_TIED     1: the first and last dense layer share their weights
 *   TOY_READS    1: the last stage is given input_ids too
 *   TOY_FROZEN   1: the first dense layer keeps its weights
 *   TOY_FAULT    "kill 1 3": rank 1 dies in its third update; also hang, nan, cut (it empties
 *                the file "cut"), orphan (its parent dies); "plan 1 0": rank 1 has another plan;
 *                "recipe 1 0": another recipe, "weights 1 0": other initial weights;
 *                "spoil 1 3 2": for two steps from the third on a gradient of rank 1 is no number;
 *                "surge 1 3 2": its activations are none, or the loss
 *   TOY_SLOWDOWN emulated slowdown of every rank      TOY_INITIAL   file with the embedding's initial value
 *   TOY_LINK     latency of every emulated link, and seconds a message occupies it
 *   TOY_HOST     name of the host that the runtime is told, in which % stands for the rank
 *   TOY_PLANNED  seconds that a step takes in the plan; a fifth of them in every update
 *   TOY_MICROBATCHES  and how many micro-batches it has there
 *   TOY_WORK     seconds of processor time that every update takes
 *   TOY_WAIT     seconds that every update sleeps
 *   TOY_FIRST    and how many more the first one sleeps
 *   TOY_SPARE    bytes that copies of what checkpoints save may have
 *   TOY_SLOW_DISK  seconds that it takes to write a file through
 *   TOY_RANK     instead of the launcher's rank number */
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/dtype.h"
#include "runtime/program/program.h"

enum {
    ROWS = 2,
    LENGTH = 6,
    VOCABULARY = 50,
    WIDTH = 32,
    CLASSES = 3,
    DENSE = 6,
    LAYERS = DENSE + 2,
    MICROBATCHES = 4,
    MAX_STAGES = 8,
    MAX_CALLS = 4 * LAYERS,
    MAX_INSTRUCTIONS = 8 * MICROBATCHES * MAX_STAGES
};

/* The definition of `sky_program`: filled in before main runs, constant from then on. */
SkyProgram toy_program __asm__("sky_program");

static int fault_step, fault_steps = 1; /* fault_step 0: none on this rank */
static char fault_kind[16];

static const char *setting(const char *name, const char *otherwise)
{
    const char *value = getenv(name);
    return value && *value ? value : otherwise;
}

/* In the place of the C library's. */
int gethostname(char *name, size_t size)
{
    struct utsname system;
    if (uname(&system) != 0) return -1;
    const char *host = setting("TOY_HOST", system.nodename), *rank = setting("PMI_RANK", "0");
    char *number = strchr(host, '%');
    snprintf(name, size, "%.*s%s", number ? (int)(number - host) : (int)strlen(host), host, number ? rank : "");
    return 0;
}

/* ---- Kernels ---- */

static void embed(void *const *o, int64_t begin, int64_t end, void *scratch, int64_t limit)
{
    const int64_t *ids = o[0];
    const float *table = o[1];
    float *out = o[2];
    (void)scratch, (void)limit;
    for (int64_t b = begin; b < end; b++)
        for (int j = 0; j < WIDTH; j++) {
            float sum = 0;
            for (int s = 0; s < LENGTH; s++) sum += table[ids[b * LENGTH + s] * WIDTH + j];
            out[b * WIDTH + j] = sum / LENGTH;
        }
}

static void embed_gradient(void *const *o, int64_t begin, int64_t end, void *scratch, int64_t limit)
{
    const int64_t *ids = o[0];
    const float *gradient = o[1];
    float *table = o[2];
    (void)scratch, (void)limit;
    for (int64_t j = begin; j < end; j++)
        for (int b = 0; b < ROWS; b++)
            for (int s = 0; s < LENGTH; s++) table[ids[b * LENGTH + s] * WIDTH + j] += gradient[b * WIDTH + j] / LENGTH;
}

static void dense(void *const *o, int64_t begin, int64_t end, void *scratch, int64_t limit)
{
    const float *x = o[0], *weight = o[1];
    float *y = o[2];
    (void)scratch, (void)limit;
    for (int64_t b = begin; b < end; b++)
        for (int j = 0; j < WIDTH; j++) {
            float sum = 0;
            for (int k = 0; k < WIDTH; k++) sum += x[b * WIDTH + k] * weight[k * WIDTH + j];
            y[b * WIDTH + j] = tanhf(sum);
        }
}

/* dx = (dy (1 - y^2)) W' */
static void dense_input_gradient(void *const *o, int64_t begin, int64_t end, void *scratch, int64_t limit)
{
    const float *y = o[0], *weight = o[1], *dy = o[2];
    float *dx = o[3];
    float *inner = scratch; /* [WIDTH] */
    (void)limit;
    for (int64_t b = begin; b < end; b++) {
        for (int j = 0; j < WIDTH; j++) inner[j] = dy[b * WIDTH + j] * (1 - y[b * WIDTH + j] * y[b * WIDTH + j]);
        for (int k = 0; k < WIDTH; k++) {
            float sum = 0;
            for (int j = 0; j < WIDTH; j++) sum += inner[j] * weight[k * WIDTH + j];
            dx[b * WIDTH + k] = sum;
        }
    }
}

/* dW += x' (dy (1 - y^2)) */
static void dense_weight_gradient(void *const *o, int64_t begin, int64_t end, void *scratch, int64_t limit)
{
    const float *x = o[0], *y = o[1], *dy = o[2];
    float *gradient = o[3];
    (void)scratch, (void)limit;
    for (int64_t k = begin; k < end; k++)
        for (int j = 0; j < WIDTH; j++)
            for (int b = 0; b < ROWS; b++)
                gradient[k * WIDTH + j] +=
                    x[b * WIDTH + k] * dy[b * WIDTH + j] * (1 - y[b * WIDTH + j] * y[b * WIDTH + j]);
}

static void head(void *const *o, int64_t begin, int64_t end, void *scratch, int64_t limit)
{
    const float *x = o[0], *weight = o[1], *scalars = o[3];
    const int64_t *labels = o[2];
    float *logits = o[4], *gradient = o[5], *loss = o[6];
    float total = 0;
    (void)begin, (void)end, (void)scratch, (void)limit;
    for (int b = 0; b < ROWS; b++) {
        float sum = 0;
        for (int c = 0; c < CLASSES; c++) {
            float logit = 0;
            for (int k = 0; k < WIDTH; k++) logit += x[b * WIDTH + k] * weight[k * CLASSES + c];
            logits[b * CLASSES + c] = logit;
            sum += expf(logit);
        }
        for (int c = 0; c < CLASSES; c++) {
            float share = labels[b] < 0 ? 0 : expf(logits[b * CLASSES + c]) / sum - (labels[b] == c ? 1.0f : 0.0f);
            gradient[b * CLASSES + c] = share * scalars[SKY_STEP_LOSS_SCALE];
        }
        if (labels[b] >= 0) total += logf(sum) - logits[b * CLASSES + labels[b]];
    }
    *loss = total * scalars[SKY_STEP_LOSS_SCALE];
}

static void head_gradient(void *const *o, int64_t begin, int64_t end, void *scratch, int64_t limit)
{
    const float *x = o[0], *weight = o[1], *gradient = o[2];
    float *dx = o[3], *weight_gradient = o[4];
    (void)scratch, (void)limit;
    for (int64_t k = begin; k < end; k++)
        for (int b = 0; b < ROWS; b++) {
            float sum = 0;
            for (int c = 0; c < CLASSES; c++) {
                sum += gradient[b * CLASSES + c] * weight[k * CLASSES + c];
                weight_gradient[k * CLASSES + c] += x[b * WIDTH + k] * gradient[b * CLASSES + c];
            }
            dx[b * WIDTH + k] = sum;
        }
}

/* Of rows of WIDTH, or CLASSES in the last layer: a unit each. */
static void squares_of(void *const *o, int64_t begin, int64_t end, int columns)
{
    const float *values = o[0];
    double *parts = o[1];
    for (int64_t row = begin; row < end; row++) {
        parts[row] = 0;
        for (int i = 0; i < columns; i++) parts[row] += (double)values[row * columns + i] * values[row * columns + i];
    }
}

static void squares(void *const *o, int64_t begin, int64_t end, void *scratch, int64_t limit)
{
    (void)scratch, (void)limit;
    squares_of(o, begin, end, WIDTH);
}

static void head_squares(void *const *o, int64_t begin, int64_t end, void *scratch, int64_t limit)
{
    (void)scratch, (void)limit;
    squares_of(o, begin, end, CLASSES);
}

static void adamw(void *const *o, int64_t begin, int64_t end, void *scratch, int64_t limit)
{
    float *value = o[0], *gradient = o[1], *m = o[2], *v = o[3];
    const float *s = o[4];
    (void)scratch, (void)limit;
    for (int64_t i = begin; i < end; i++) {
        float g = gradient[i] * s[SKY_STEP_GRADIENT_SCALE];
        gradient[i] = 0;
        m[i] = s[SKY_STEP_BETA1] * m[i] + (1 - s[SKY_STEP_BETA1]) * g;
        v[i] = s[SKY_STEP_BETA2] * v[i] + (1 - s[SKY_STEP_BETA2]) * g * g;
        float root = sqrtf(v[i] * s[SKY_STEP_CORRECTION2]) + s[SKY_STEP_EPSILON];
        value[i] -=
            s[SKY_STEP_LEARNING_RATE] * (m[i] * s[SKY_STEP_CORRECTION1] / root + s[SKY_STEP_WEIGHT_DECAY] * value[i]);
    }
}

static bool is_misbehaving;
static double update_work, update_wait, first_wait;

/* In the place of the C library's: a handler of signals may not call it. */
char *strsignal(int number)
{
    if (is_misbehaving) abort();
    return (char *)(number == SIGKILL ? "Killed" : "another");
}

static void sleep_for(double seconds)
{
    if (seconds > 0) usleep((useconds_t)(1e6 * seconds));
}

/* First call of a rank's update: misbehaves when its time has come. */
static void misbehave(void *const *o, int64_t begin, int64_t end, void *scratch, int64_t limit)
{
    static int updates;
    for (double start = thread_seconds(); thread_seconds() - start < update_work;) continue;
    sleep_for(update_wait + (updates ? 0 : first_wait));
    (void)begin, (void)end, (void)scratch, (void)limit;
    if (++updates != fault_step) return;
    is_misbehaving = true; /* in this process, not in the one that watches it */
    if (strcmp(fault_kind, "kill") == 0) raise(SIGKILL);
    if (strcmp(fault_kind, "cut") == 0 && truncate("cut", 0) != 0) abort();
    if (strcmp(fault_kind, "nan") == 0) *(float *)o[0] = NAN;
    if (strcmp(fault_kind, "orphan") == 0) kill(getppid(), SIGKILL);
    while (strcmp(fault_kind, "hang") == 0 || strcmp(fault_kind, "orphan") == 0) pause();
}

/* After every backward and, of the activations, forward: whether its time, a number of steps, has come. */
static bool is_spoilt(const char *kind, int *calls)
{
    int step = (*calls)++ / MICROBATCHES + 1;
    return strcmp(fault_kind, kind) == 0 && step >= fault_step && step < fault_step + fault_steps;
}

static void spoil_gradient(void *const *o, int64_t begin, int64_t end, void *scratch, int64_t limit)
{
    static int calls;
    (void)begin, (void)end, (void)scratch, (void)limit;
    if (is_spoilt("spoil", &calls)) *(float *)o[0] = NAN;
}

static void spoil_activations(void *const *o, int64_t begin, int64_t end, void *scratch, int64_t limit)
{
    static int calls;
    (void)begin, (void)end, (void)scratch, (void)limit;
    if (is_spoilt("surge", &calls)) *(float *)o[0] = NAN;
}

/* ---- Layout ---- */

typedef struct ToyStage {
    SkyCall calls[SKY_LIST_COUNT][MAX_CALLS];
    SkyParameter parameters[LAYERS];
    SkyUse use; /* of the tied parameter */
    SkyTensor inputs[2], output, boundary[4];
    SkyLocation operands[512];
    int operand_count;
    SkyLocation slot[LAYERS + 1], slot_gradient[2]; /* activation before each layer; gradients, alternating */
} ToyStage;

static ToyStage toy[MAX_STAGES];
static SkyStage stages[MAX_STAGES];
static SkyInstruction instructions[MAX_INSTRUCTIONS];
static uint32_t stage_rank[MAX_STAGES];
static int stage_total, tied;

static SkyLocation reserve(SkyStage *stage, uint32_t space, uint64_t bytes)
{
    SkyLocation location = {.space = space, .offset = stage->space_bytes[space]};
    stage->space_bytes[space] += (bytes + 63) / 64 * 64;
    return location;
}

static SkyTensor tensor(const char *name, uint32_t dtype, int64_t rows, int64_t columns, SkyLocation location)
{
    SkyTensor result = {.name = name, .dtype = dtype, .rank = columns ? 2 : 1, .dim = {rows, columns}};
    result.bytes = (uint64_t)(rows * (columns ? columns : 1)) * dtype_size((DType)dtype);
    result.location = location;
    return result;
}

static void add_call(ToyStage *t, SkyStage *stage, SkyListKind list, SkyKernel *kernel, int64_t units, const char *name,
                     int operand_count, const SkyLocation *operands)
{
    SkyLocation *place = &t->operands[t->operand_count];
    memcpy(place, operands, (size_t)operand_count * sizeof *operands);
    t->operand_count += operand_count;
    t->calls[list][stage->lists[list].count++] = (SkyCall){.kernel = kernel,
                                                           .operands = place,
                                                           .operand_count = (uint32_t)operand_count,
                                                           .units = units,
                                                           .nanoseconds = 1000000,
                                                           .name = name};
}

#define ADD(list, kernel, units, ...)                                                                                  \
    add_call(t, stage, SKY_LIST_##list, kernel, units, #kernel,                                                        \
             (int)(sizeof((SkyLocation[]){__VA_ARGS__}) / sizeof(SkyLocation)), (SkyLocation[]){__VA_ARGS__})

/* Adds the parameter of a layer with its update, or finds the one it is tied to. */
static SkyParameter *add_parameter(ToyStage *t, SkyStage *stage, int layer)
{
    static char names[LAYERS][32];
    int index = tied && layer == DENSE ? 1 : layer;
    for (uint32_t p = 0; p < stage->parameter_count; p++)
        if (t->parameters[p].global_index == (uint32_t)index) return &t->parameters[p];
    int64_t rows = layer == 0 ? VOCABULARY : WIDTH, columns = layer == LAYERS - 1 ? CLASSES : WIDTH;
    SkyParameter *p = &t->parameters[stage->parameter_count++];
    snprintf(names[index], sizeof names[index], index == 0 ? "embedding" : "layer.%d.weight", index);
    uint64_t bytes = (uint64_t)(rows * columns) * sizeof(float);
    p->value = tensor(names[index], DTYPE_F32, rows, columns, reserve(stage, SKY_SPACE_STATE, bytes));
    for (int i = 0; i < 2; i++) p->states[i] = reserve(stage, SKY_SPACE_STATE, bytes);
    p->state_count = 2;
    p->global_index = (uint32_t)index;
    p->initial_deviation = 0.3f;
    if (layer == 0) p->initial_file = getenv("TOY_INITIAL");
    p->frozen = index == 1 && *setting("TOY_FROZEN", "0") == '1';
    p->decay_exempt_class = layer == LAYERS - 1 ? 1 : 0;
    return p;
}

/* Gradients lie at the end of the state; updates follow when it is known where they are. */
static void add_updates(ToyStage *t, SkyStage *stage)
{
    const SkyLocation step = {.space = SKY_SPACE_STEP};
    ADD(UPDATE, misbehave, 1, t->parameters[0].value.location);
    for (uint32_t i = 0; i < stage->parameter_count; i++) {
        SkyParameter *p = &t->parameters[i];
        if (p->frozen) continue;
        p->update = stage->lists[SKY_LIST_UPDATE].count;
        ADD(UPDATE, adamw, (int64_t)(p->value.bytes / sizeof(float)), p->value.location, p->gradient, p->states[0],
            p->states[1], step);
        p->squares = stage->lists[SKY_LIST_SQUARES].count;
        p->square_parts = (uint32_t)p->value.dim[0];
        SkyLocation parts = reserve(stage, SKY_SPACE_STATE, p->square_parts * sizeof(double));
        if (p->value.dim[1] == CLASSES)
            ADD(SQUARES, head_squares, p->square_parts, p->gradient, parts, p->value.location, p->states[0],
                p->states[1]);
        else
            ADD(SQUARES, squares, p->square_parts, p->gradient, parts, p->value.location, p->states[0], p->states[1]);
    }
}

static void lay_out_parameters(ToyStage *t, SkyStage *stage)
{
    for (uint32_t layer = stage->first_layer; layer <= stage->last_layer; layer++) add_parameter(t, stage, (int)layer);
    for (uint32_t p = 0; p < stage->parameter_count; p++) {
        if (t->parameters[p].frozen) continue;
        t->parameters[p].gradient = reserve(stage, SKY_SPACE_STATE, t->parameters[p].value.bytes);
        if (!tied || t->parameters[p].global_index != 1) continue;
        t->use = (SkyUse){.number = stage->first_layer > 1, .gradient = t->parameters[p].gradient};
        t->parameters[p].uses = &t->use;
        t->parameters[p].use_count = 1;
    }
    stage->parameters = t->parameters;
    add_updates(t, stage);
}

static SkyTensor boundary(SkyLocation location) { return tensor("boundary", DTYPE_F32, ROWS, WIDTH, location); }

static void add_boundaries(ToyStage *t, SkyStage *stage, int last)
{
    if (stage->index > 0) {
        t->boundary[0] = boundary(t->slot[stage->first_layer]);
        t->boundary[1] = boundary(t->slot_gradient[stage->first_layer % 2]);
        stage->receive_forward = &t->boundary[0];
        stage->send_backward = &t->boundary[1];
        stage->receive_forward_count = stage->send_backward_count = 1;
    }
    if (!last) {
        t->boundary[2] = boundary(t->slot[stage->last_layer + 1]);
        t->boundary[3] = boundary(t->slot_gradient[(stage->last_layer + 1) % 2]);
        stage->send_forward = &t->boundary[2];
        stage->receive_backward = &t->boundary[3];
        stage->send_forward_count = stage->receive_backward_count = 1;
    }
}

static void add_layer(ToyStage *t, SkyStage *stage, int layer, SkyLocation ids, SkyLocation labels)
{
    const SkyLocation step = {.space = SKY_SPACE_STEP};
    SkyParameter *p = add_parameter(t, stage, layer);
    SkyLocation weight = p->value.location, x = t->slot[layer];
    if (layer == 0) {
        ADD(FORWARD, embed, ROWS, ids, weight, t->slot[1]);
    } else if (layer < LAYERS - 1) {
        ADD(FORWARD, dense, ROWS, x, weight, t->slot[layer + 1]);
    } else {
        SkyLocation gradient = reserve(stage, SKY_SPACE_SLOT, ROWS * CLASSES * sizeof(float));
        SkyLocation logits = reserve(stage, SKY_SPACE_SLOT, ROWS * CLASSES * sizeof(float));
        stage->loss = reserve(stage, SKY_SPACE_SLOT, sizeof(float));
        stage->has_loss = 1;
        t->output = tensor("logits", DTYPE_F32, ROWS, CLASSES, logits);
        stage->outputs = &t->output;
        stage->output_count = 1;
        ADD(FORWARD, head, 1, x, weight, labels, step, logits, gradient, stage->loss);
        ADD(BACKWARD, head_gradient, WIDTH, x, weight, gradient, t->slot_gradient[layer % 2], p->gradient);
    }
}

static void build_stage(int index)
{
    SkyStage *stage = &stages[index];
    ToyStage *t = &toy[index];
    int last = index == stage_total - 1;
    *stage = (SkyStage){.index = (uint32_t)index,
                        .first_layer = (uint32_t)(index * LAYERS / stage_total),
                        .last_layer = (uint32_t)((index + 1) * LAYERS / stage_total - 1),
                        .thread_scratch_bytes = WIDTH * sizeof(float)};
    for (int list = 0; list < SKY_LIST_COUNT; list++) stage->lists[list].calls = t->calls[list];
    lay_out_parameters(t, stage);
    SkyLocation ids = {0}, labels = {0};
    stage->inputs = t->inputs;
    if (index == 0) {
        ids = reserve(stage, SKY_SPACE_SLOT, ROWS * LENGTH * sizeof(int64_t));
        t->inputs[stage->input_count] = tensor("input_ids", DTYPE_I64, ROWS, LENGTH, ids);
        t->inputs[stage->input_count++].value_limit = VOCABULARY;
    }
    if (last && index > 0 && *setting("TOY_READS", "0") == '1')
        t->inputs[stage->input_count++] = tensor("input_ids", DTYPE_I64, ROWS, LENGTH,
                                                 reserve(stage, SKY_SPACE_SLOT, ROWS * LENGTH * sizeof(int64_t)));
    if (last) {
        labels = reserve(stage, SKY_SPACE_SLOT, ROWS * sizeof(int64_t));
        t->inputs[stage->input_count++] = tensor("labels", DTYPE_I64, ROWS, 0, labels);
    }
    for (uint32_t layer = stage->first_layer; layer <= stage->last_layer + 1; layer++)
        t->slot[layer] = reserve(stage, SKY_SPACE_SLOT, ROWS * WIDTH * sizeof(float));
    for (int i = 0; i < 2; i++) t->slot_gradient[i] = reserve(stage, SKY_SPACE_SLOT, ROWS * WIDTH * sizeof(float));
    for (uint32_t layer = stage->first_layer; layer <= stage->last_layer; layer++)
        add_layer(t, stage, (int)layer, ids, labels);
    for (int layer = (int)stage->last_layer; layer >= (int)stage->first_layer; layer--) {
        SkyParameter *p = add_parameter(t, stage, layer);
        SkyLocation x = t->slot[layer], dy = t->slot_gradient[(layer + 1) % 2], dx = t->slot_gradient[layer % 2];
        if (layer == 0) {
            ADD(BACKWARD, embed_gradient, WIDTH, ids, dy, p->gradient);
        } else if (layer < LAYERS - 1) {
            SkyLocation y = t->slot[layer + 1];
            if (!p->frozen) ADD(BACKWARD, dense_weight_gradient, WIDTH, x, y, dy, p->gradient);
            ADD(BACKWARD, dense_input_gradient, ROWS, y, p->value.location, dy, dx);
        }
    }
    ADD(BACKWARD, spoil_gradient, 1, t->parameters[0].gradient);
    ADD(FORWARD, spoil_activations, 1, last ? stage->loss : t->slot[stage->last_layer + 1]);
    add_boundaries(t, stage, last);
}

/* ---- Schedule ---- */

/* Work `step` of a stage: warm-up forwards, then forward and backward in turn, then the remaining backwards. */
static int is_backward(int stage, int step, int gpipe, int *microbatch)
{
    int warm_up = gpipe ? MICROBATCHES : stage_total - stage < MICROBATCHES ? stage_total - stage : MICROBATCHES;
    int steady = 2 * (MICROBATCHES - warm_up);
    if (step < warm_up) return *microbatch = step, 0;
    step -= warm_up;
    if (step < steady) return *microbatch = step / 2 + (step % 2 ? warm_up : 0), step % 2 == 0;
    return *microbatch = steady / 2 + step - steady, 1;
}

static void add(SkyProgram *program, uint32_t op, int stage, int microbatch)
{
    uint32_t slot = (uint32_t)microbatch % stages[stage].slot_count;
    if (stage_rank[stage] == program->rank)
        instructions[program->instruction_count++] = (SkyInstruction){op, (uint32_t)stage, (uint32_t)microbatch, slot};
}

static void add_work(SkyProgram *program, int stage, int microbatch, int backward)
{
    int from = backward ? stage + 1 : stage - 1, to = backward ? stage - 1 : stage + 1;
    if (from >= 0 && from < stage_total && stage_rank[from] != stage_rank[stage])
        add(program, backward ? SKY_RECEIVE_BACKWARD : SKY_RECEIVE_FORWARD, stage, microbatch);
    add(program, backward ? SKY_BACKWARD : SKY_FORWARD, stage, microbatch);
    if (to >= 0 && to < stage_total && stage_rank[to] != stage_rank[stage])
        add(program, backward ? SKY_SEND_BACKWARD : SKY_SEND_FORWARD, stage, microbatch);
}

/* Plays all stages at once: a stage works when its neighbour has, so every rank's order can be kept by all. */
static void schedule(SkyProgram *program, int gpipe)
{
    int step[MAX_STAGES] = {0}, forwards[MAX_STAGES] = {0}, backwards[MAX_STAGES] = {0};
    for (int s = 0; s < stage_total; s++)
        stages[s].slot_count = gpipe || stage_total - s > MICROBATCHES ? MICROBATCHES : (uint32_t)(stage_total - s);
    for (int busy = 1; busy;) {
        busy = 0;
        for (int s = 0; s < stage_total; s++) {
            int m = 0;
            if (step[s] == 2 * MICROBATCHES) continue;
            int backward = is_backward(s, step[s], gpipe, &m);
            if (backward ? s + 1 < stage_total && backwards[s + 1] <= m : s > 0 && forwards[s - 1] <= m) continue;
            add_work(program, s, m, backward);
            backward ? backwards[s]++ : forwards[s]++;
            step[s]++;
            busy = 1;
        }
    }
    for (int s = 0; s < stage_total; s++) {
        add(program, SKY_REDUCE, s, 0);
        add(program, SKY_UPDATE, s, 0);
    }
}

/* In the process that is to work, before MPI_Init. */
static void misbehave_early(void)
{
    if (strcmp(fault_kind, "kill-early") == 0) raise(SIGKILL);
    while (strcmp(fault_kind, "hang-early") == 0) pause();
}

/* In place of the C library's: a disk that takes TOY_SLOW_DISK seconds. */
int fsync(int descriptor)
{
    sleep_for(atof(setting("TOY_SLOW_DISK", "0")));
    return (int)syscall(SYS_fsync, descriptor);
}

__attribute__((constructor)) static void build(void)
{
    static SkyStage mine[MAX_STAGES];
    static double predicted;
    static SkyLink links[MAX_STAGES];
    const char *text = setting("TOY_STAGES", "0"), *rank = setting("TOY_RANK", setting("PMI_RANK", "0"));
    SkyProgram *program = &toy_program;
    int fault_rank = -1;
    update_work = atof(setting("TOY_WORK", "0"));
    update_wait = atof(setting("TOY_WAIT", "0"));
    first_wait = atof(setting("TOY_FIRST", "0"));
    predicted = atof(setting("TOY_PLANNED", "0.5"));
    uint32_t ranks = 0;
    for (char *end; *text && stage_total < MAX_STAGES; text = *end ? end + 1 : end) {
        stage_rank[stage_total] = (uint32_t)strtoul(text, &end, 10);
        if (stage_rank[stage_total] >= ranks) ranks = stage_rank[stage_total] + 1;
        stage_total++;
    }
    tied = *setting("TOY_TIED", "0") == '1';
    static const SkyLabels labels = {.name = "labels", .ignore_index = -100, .classes = CLASSES};
    *program = (SkyProgram){.version = SKY_PROGRAM_VERSION,
                            .rank = (uint32_t)atoi(rank),
                            .rank_count = ranks,
                            .total_stage_count = (uint32_t)stage_total,
                            .microbatch_count = MICROBATCHES,
                            .microbatch_size = ROWS,
                            .sequence_length = LENGTH,
                            .threads = 1,
                            .loss_is_summed = 1,
                            .total_parameter_count = LAYERS,
                            .seed = 7,
                            .spare_bytes = (uint64_t)atof(setting("TOY_SPARE", "1e9")),
                            .slowdown = atof(setting("TOY_SLOWDOWN", "1")),
                            .stages = mine,
                            .instructions = instructions,
                            .stage_rank = stage_rank,
                            .links = links,
                            .labels = &labels,
                            .label_count = 1,
                            .device_name = "toy",
                            .low_rank = "",
                            .model_hash = "toy",
                            .plan_hash = "plan",
                            .recipe_hash = "recipe",
                            .weights_hash = "weights",
                            .settings = "--loss cross-entropy\n--dropout off\n",
                            .predicted_step_s = &predicted,
                            .planned_microbatches = atof(setting("TOY_MICROBATCHES", "0")),
                            .optimizer = {SKY_ADAMW, 0, 0.01, 0.9, 0.999, 1e-8, 0.01}};
    for (int s = 0; s < stage_total; s++)
        for (int d = 0; d < 2; d++) links[s].latency_s[d] = links[s].transfer_s[d] = atof(setting("TOY_LINK", "0"));
    sscanf(setting("TOY_FAULT", ""), "%15s %d %d %d", fault_kind, &fault_rank, &fault_step, &fault_steps);
    if (fault_rank != atoi(rank)) fault_step = fault_steps = 0;
    if (fault_rank == atoi(rank)) pthread_atfork(NULL, NULL, misbehave_early);
    if (fault_rank == atoi(rank) && strcmp(fault_kind, "plan") == 0) program->plan_hash = "another plan";
    if (fault_rank == atoi(rank) && strcmp(fault_kind, "weights") == 0) program->weights_hash = "others";
    if (fault_rank == atoi(rank) && strcmp(fault_kind, "recipe") == 0) {
        program->recipe_hash = "another";
        program->settings = "--loss cross-entropy\n--dropout 0.1\n";
    }
    for (int s = 0; s < stage_total; s++) build_stage(s);
    schedule(program, strcmp(setting("TOY_SCHEDULE", "1f1b"), "gpipe") == 0);
    for (int s = 0; s < stage_total; s++) stages[s].planned_s[SKY_LIST_UPDATE] = predicted / 5;
    for (int s = 0; s < stage_total; s++)
        if (stage_rank[s] == program->rank) mine[program->stage_count++] = stages[s];
}
