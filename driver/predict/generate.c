#include "driver/predict/generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/random.h"
#include "base/text.h"
#include "driver/predict/token_text.h"
#include "frontend/huggingface/step_model.h"

/* ---- Choosing a token ---- */

static void append_token(Buffer *text, const Tokenizer *tokenizer, Spelling spelling, int32_t id)
{
    FREED_WITH(buffer_free) Buffer piece = {0};
    if (!tokenizer_is_special(tokenizer, id) && tokenizer_piece(tokenizer, id, &piece))
        token_text_append(text, spelling, buffer_text(&piece), piece.size);
}

typedef struct Candidate {
    double score;
    int32_t id;
} Candidate;

static int by_score(const void *a, const void *b)
{
    const Candidate *x = a, *y = b;
    return x->score > y->score ? -1 : x->score < y->score ? 1 : x->id - y->id;
}

/* `candidates` of descending scores; of equal ones the first is the most likely. */
static int32_t draw(Candidate *candidates, int64_t count, const GenerateOptions *options, uint64_t number)
{
    double sum = 0, kept = 0, largest = candidates[0].score;
    for (int64_t i = 0; i < count; i++) {
        candidates[i].score = exp((candidates[i].score - largest) / options->temperature);
        sum += candidates[i].score;
    }
    int64_t nucleus = 0;
    while (nucleus < count && (nucleus == 0 || kept < options->top_p * sum)) kept += candidates[nucleus++].score;
    double at = (double)random_uniform(random_stream(options->seed, "generate"), number) * kept;
    int64_t chosen = 0;
    for (; chosen + 1 < nucleus && at >= candidates[chosen].score; chosen++) at -= candidates[chosen].score;
    return candidates[chosen].id;
}

/* A token by the logits at `position`, drawn with the random number `number`; -1 after reporting. */
static int32_t choose(Predictor *predictor, const SkyTensor *logits, const GenerateOptions *options, int64_t position,
                      int64_t number, Diagnostics *diagnostics)
{
    int64_t classes = logits->dim[2];
    const void *values = execution_address(&predictor->execution, 0, 0, logits->location);
    Candidate *candidates = memory_allocate((size_t)classes * sizeof *candidates), best = {-INFINITY, -1};
    bool finite = true;
    for (int64_t i = 0; i < classes; i++) {
        double score = element_as_double((DType)logits->dtype, values, position * classes + i);
        finite &= isfinite(score);
        candidates[i] = (Candidate){score, (int32_t)i};
        if (score > best.score) best = candidates[i];
    }
    if (!finite)
        input_error(diagnostics, predictor->called, "check whether its training diverged", "gives no finite logits");
    if (finite && options->temperature > 0) {
        qsort(candidates, (size_t)classes, sizeof *candidates, by_score);
        best.id = draw(candidates, classes, options, (uint64_t)number);
    }
    free(candidates);
    return finite ? best.id : -1;
}

/* ---- The row ---- */

/* One row with room for all tokens, with `length` tokens of the prompt from `first` on; inputs that the prompt has no
 * values for stay absent. */
static void make_row(TextRows *row, const TextRows *prompt, int64_t first, int64_t length, int64_t width)
{
    *row = (TextRows){.count = 1, .width = width, .longest = width};
    for (int i = 0; i < ROW_TENSORS; i++) {
        const RowTensor *given = &prompt->tensors[i];
        if (!given->data) continue;
        int32_t *values = arena_new_array(&row->arena, int32_t, (size_t)width);
        for (int64_t c = 0; c < length; c++)
            values[c] = (int32_t)element_as_integer(given->dtype, given->data, first + c);
        row->tensors[i] = (RowTensor){given->name, DTYPE_I32, values};
    }
}

static void set(TextRows *row, const char *name, int64_t position, int32_t value)
{
    const RowTensor *tensor = text_rows_find(row, name);
    if (tensor) ((int32_t *)tensor->data)[position] = value;
}

static int32_t token_at(const TextRows *row, int64_t position)
{
    const RowTensor *ids = text_rows_find(row, "input_ids");
    return ids ? (int32_t)element_as_integer(ids->dtype, ids->data, position) : 0;
}

static bool is_end(int32_t id, const int64_t *ends, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (ends[i] == id) return true;
    return false;
}

typedef struct Generation {
    Predictor *predictor;
    TextRows row;  /* the text: one row with room for all tokens */
    TextRows step; /* the token that a graph with kept keys and values takes */
    int32_t token, position, length;
    int64_t fed;      /* so many tokens have been taken */
    int64_t original; /* a longer text has other keys from its first token on */
    bool steps;       /* the graph takes one token at a time */
    const SkyTensor *logits;
} Generation;

/* Opens the graph that takes a token at a time, where the model can be written so, or else the model. */
static bool open_model(Generation *generation, const char *path, const char *called, int64_t width, const char *scratch,
                       int threads, Diagnostics *diagnostics)
{
    Predictor *predictor = generation->predictor;
    TextRows *row = &generation->row, *step = &generation->step;
    const char *steps = width ? NULL : step_model_write(path, scratch, row->width, &generation->original, &row->arena);
    generation->steps = steps != NULL;
    *step = (TextRows){.count = 1, .width = 1, .longest = 1};
    step->tensors[0] = (RowTensor){"input_ids", DTYPE_I32, &generation->token};
    step->tensors[1] = (RowTensor){"position", DTYPE_I32, &generation->position};
    step->tensors[2] = (RowTensor){"length", DTYPE_I32, &generation->length};
    if (!predictor_open(predictor, steps ? steps : path, called, steps ? step : row, 1, steps ? 1 : row->width, threads,
                        diagnostics))
        return false;
    if (steps) predictor_keep(predictor);
    generation->logits = predictor_output(predictor, "logits", 3);
    return (generation->logits && generation->logits->dim[1] == predictor->width) ||
           input_error(diagnostics, called, "skycc import FOLDER --head lm makes one",
                       "has no output 'logits' with a score of every token at every position, as decoders have");
}

/* The token after the first `length`; -1 after reporting. As in the library, a token's rotary positions are those of
 * the text's length when it was taken, and LongRoPE takes all again where it changes. */
static int32_t next_token(Generation *generation, const GenerateOptions *options, int64_t length,
                          Diagnostics *diagnostics)
{
    bool ok = generation->steps || predictor_run(generation->predictor, 0, diagnostics);
    if (generation->fed <= generation->original && length > generation->original) generation->fed = 0;
    generation->length = (int32_t)length;
    for (; ok && generation->steps && generation->fed < length; generation->fed++) {
        generation->token = token_at(&generation->row, generation->fed);
        generation->position = (int32_t)generation->fed;
        ok = predictor_run(generation->predictor, 0, diagnostics);
    }
    return ok ? choose(generation->predictor, generation->logits, options, generation->steps ? 0 : length - 1,
                       length - 1, diagnostics)
              : -1;
}

/* Of `count` tokens since `start`. */
static void tell_speed(const Generation *generation, int64_t count, double start)
{
    double seconds = monotonic_seconds() - start;
    text_print(stderr, "%lld tokens, %.1f tokens/s; each token runs %s\n", (long long)count, (double)count / seconds,
               generation->steps ? "alone, after kept keys and values" : "the whole text again");
}

bool generate(Predictor *predictor, const GenerateOptions *options, Tokenizer *tokenizer, const char *path,
              const char *called, int64_t width, const int64_t *ends, size_t end_count, const char *scratch,
              int threads, Buffer *text, Diagnostics *diagnostics)
{
    const char *const texts[2] = {options->prompt, NULL};
    FREED_WITH(text_rows_free) TextRows prompt = {.count = 0};
    Generation generation = {.predictor = predictor};
    bool ok = text_rows_encode(&prompt, tokenizer, texts, false, 0, INT32_MAX, diagnostics);
    const TokenFrame *frame = tokenizer_text_frame(tokenizer);
    int64_t first = 0, length = prompt.longest;
    while (options->whole && (size_t)first < frame->count && frame->pieces[first].text < 0) first++;
    length -= first;
    while (ok && length > 0 && is_end(token_at(&prompt, first + length - 1), ends, end_count))
        length--; /* of the frame */
    int64_t end = length + options->tokens, most = width && width < options->positions ? width : options->positions;
    const bool cut = end > most;
    if (ok && !length)
        ok = usage_error(diagnostics, "give some words to go on with", "the text of --prompt has no tokens");
    if (cut) end = most;
    if (ok && length >= most)
        ok = input_error(diagnostics, called,
                         width ? "give a shorter prompt, or export the model with symbolic dimensions"
                               : "give a shorter prompt",
                         "takes %lld tokens, and the prompt has %lld", (long long)most, (long long)length);
    if (ok) make_row(&generation.row, &prompt, first, length, width ? width : end);
    ok = ok && open_model(&generation, path, called, width, scratch, threads, diagnostics);
    Spelling spelling = token_spelling(tokenizer);
    if (!options->question) buffer_print(text, "%s", options->prompt);
    const double start = monotonic_seconds();
    const int64_t given = length;
    for (; ok && length < end; length++) {
        int32_t id = next_token(&generation, options, length, diagnostics);
        ok = id >= 0;
        if (!ok || is_end(id, ends, end_count)) break;
        append_token(text, tokenizer, spelling, id);
        set(&generation.row, "input_ids", length, id);
        set(&generation.row, "attention_mask", length, 1);
    }
    buffer_print(text, "\n");
    if (ok && cut && length == end)
        diagnostics_warning(diagnostics, PLACE_FILE(called), NULL, "takes %lld tokens: the text ends there",
                            (long long)most);
    if (ok && options->verbose) tell_speed(&generation, length - given, start);
    predictor->rows = NULL;
    text_rows_free(&generation.row);
    return ok;
}
