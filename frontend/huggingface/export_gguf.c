#include "frontend/huggingface/export_gguf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/string_map.h"
#include "frontend/huggingface/config.h"
#include "frontend/huggingface/gguf_file.h"
#include "frontend/huggingface/gguf_tokenizer.h"
#include "frontend/huggingface/import_folder.h"
#include "frontend/huggingface/rotary.h"
#include "frontend/huggingface/tokenizers.h"

/* What llama.cpp's architectures compute. */
enum {
    PAIRS_TOGETHER = 1 << 0, /* rotary positions turn neighbours, not the halves of a head */
    OUTPUT_BIASES = 1 << 1,  /* of attention's output and the feed-forward part */
    PARTIAL = 1 << 2,        /* a part of a head may be turned */
    FREQUENCIES = 1 << 3,    /* each pair has a factor, as Llama 3 needs */
    TWO_LENGTHS = 1 << 4,    /* LongRoPE */
    SQUARE = 1 << 5,         /* heads are hidden / heads wide */
    CAPS = 1 << 6,           /* scores are capped */
    TIED = 1 << 7,           /* the head must be the table of embeddings ... */
    UNTIED = 1 << 8,         /* ... or apart */
    BIASED_ALWAYS = 1 << 9
};

typedef struct Architecture {
    const DecoderForm *form;
    const char *name;
    int64_t window_period; /* every so many layers see everything; 0: all do */
    int64_t largest;       /* so many layers have the largest model, which scales scores by hidden / heads */
    unsigned traits;
} Architecture;

static const Architecture architectures[] = {
    {&decoder_llama, "llama", 0, 0, PAIRS_TOGETHER | OUTPUT_BIASES | FREQUENCIES},
    {&decoder_mistral, "llama", 0, 0, PAIRS_TOGETHER | OUTPUT_BIASES | FREQUENCIES},
    {&decoder_smollm3, "smollm3", 0, 0, PAIRS_TOGETHER},
    {&decoder_qwen2, "qwen2", 0, 0, SQUARE},
    {&decoder_qwen3, "qwen3", 0, 0, 0},
    {&decoder_gemma2, "gemma2", 2, 46, CAPS | TIED},
    {&decoder_gemma3, "gemma3", 6, 62, 0},
    {&decoder_phi3, "phi3", 0, 0, PARTIAL | TWO_LENGTHS | SQUARE},
    {&decoder_gpt2, "gpt2", 0, 0, OUTPUT_BIASES | SQUARE | BIASED_ALWAYS},
    {&decoder_gpt_neox, "gptneox", 0, 0, OUTPUT_BIASES | PARTIAL | SQUARE | BIASED_ALWAYS | UNTIED},
};

/* ---- Tensors ---- */

typedef enum Order { ORDER_SAME, ORDER_PAIRS, ORDER_PARTS } Order;

/* A tensor of the model, and where its elements go. */
typedef struct Source {
    DType dtype;
    const void *data;
    int64_t rows, width; /* of the file's tensor; a vector has `rows` elements, and width 1 */
    bool vector, transposed;
    Order order; /* of rows: pairs of a head together, or parts (queries, keys, values) instead of heads together */
    int64_t heads;
    double add;
} Source;

typedef struct Job {
    const GgufExport *wanted;
    const OnnxModel *model;
    HuggingFaceConfig config;
    const Architecture *architecture;
    GgufFile file;
    StringMap names; /* of initializers */
    bool *used;
    Arena arena;
    Diagnostics *diagnostics;
} Job;

static bool has(const Job *job, unsigned trait) { return job->architecture->traits & trait; }

static int64_t source_row(const Source *source, int64_t row)
{
    int64_t head_rows = source->heads ? source->rows / source->heads : 0, head, rest;
    switch (source->order) {
    case ORDER_PAIRS:
        head = row / head_rows, rest = row % head_rows;
        return head * head_rows + rest % 2 * (head_rows / 2) + rest / 2;
    case ORDER_PARTS:
        head_rows /= 3;
        head = row / head_rows % source->heads;
        return (head * 3 + row / (source->heads * head_rows)) * head_rows + row % head_rows;
    default: return row;
    }
}

static void read_row(const void *context, int64_t row, float *values)
{
    const Source *source = context;
    if (source->vector) {
        for (int64_t i = 0; i < source->rows; i++)
            values[i] = (float)(element_as_double(source->dtype, source->data, source_row(source, i)) + source->add);
        return;
    }
    int64_t from = source_row(source, row);
    for (int64_t i = 0; i < source->width; i++)
        values[i] = (float)element_as_double(source->dtype, source->data,
                                             source->transposed ? i * source->rows + from : from * source->width + i);
}

static void add_source(Job *job, const char *name, const Source *source, bool whole)
{
    GgufTensor tensor = {name, GGUF_F32, {2, {source->rows, source->width}}, read_row, NULL};
    tensor.context = arena_copy(&job->arena, source, sizeof *source);
    if (source->vector) tensor.shape = (Shape){1, {source->rows}};
    bool blocks = job->wanted->q8 && source->width % 32 == 0;
    if (!source->vector && !whole) tensor.type = blocks ? GGUF_Q8_0 : GGUF_F16;
    gguf_add(&job->file, &tensor);
}

/* The initializer of that name as NAME; nothing if there is none. */
static void add_parameter(Job *job, const char *from, const char *name, Source source, bool whole)
{
    const uint32_t *index = string_map_find(&job->names, from);
    if (!index) return;
    const Onnx__TensorProto *tensor = job->model->proto->graph->initializer[*index];
    job->used[*index] = true;
    source.dtype = onnx_dtype(tensor->data_type);
    source.data = tensor->raw_data.data;
    source.vector = tensor->n_dims == 1;
    source.rows = tensor->dims[0];
    source.width = source.vector ? 1 : tensor->dims[1];
    source.transposed &= !source.vector;
    if (source.transposed) {
        source.rows = tensor->dims[1];
        source.width = tensor->dims[0];
    }
    add_source(job, name, &source, whole);
}

/* Weight and bias of a module. */
static void add_module(Job *job, const char *module, const char *name, Source source, bool whole)
{
    static const char *const parts[] = {"weight", "bias"};
    for (int i = 0; i < 2; i++) {
        add_parameter(job, arena_format(&job->arena, "%s.%s", module, parts[i]),
                      arena_format(&job->arena, "%s.%s", name, parts[i]), source, whole);
        source.add = 0;
    }
}

static void add_layer(Job *job, int64_t layer)
{
    const DecoderForm *form = job->config.type->form;
    const int64_t heads = job->config.heads;
    bool parts = form->traits & FUSED_PARTS, by_head = form->traits & FUSED_HEADS;
    const Order turned = has(job, PAIRS_TOGETHER) ? ORDER_PAIRS : ORDER_SAME;
    const double above = form->traits & GAINS_ABOVE_ONE ? 1 : 0;
    const bool transposed = form->traits & TRANSPOSED;
    const struct {
        const char *part, *module, *name;
        Source source;
    } modules[] = {
        {NULL, form->input_norm, "attn_norm", {.add = above}},
        {form->attention,
         form->query,
         parts || by_head ? "attn_qkv" : "attn_q",
         {.order = by_head ? ORDER_PARTS : turned, .heads = heads, .transposed = transposed}},
        {form->attention, form->key, "attn_k", {.order = turned, .heads = job->config.decoder.key_heads}},
        {form->attention, form->value, "attn_v", {.add = 0}},
        {form->attention, form->output, "attn_output", {.transposed = transposed}},
        {form->attention, form->query_norm, "attn_q_norm", {.add = above}},
        {form->attention, form->key_norm, "attn_k_norm", {.add = above}},
        {NULL, form->attended_norm, "post_attention_norm", {.add = above}},
        {NULL, form->mlp_norm, "ffn_norm", {.add = above}},
        {form->mlp, form->gate, "ffn_gate", {.add = 0}},
        {form->mlp, form->up, "ffn_up", {.transposed = transposed}},
        {form->mlp, form->down, "ffn_down", {.transposed = transposed}},
        {NULL, form->mlp_after_norm, "post_ffw_norm", {.add = above}},
    };
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
        if (!modules[i].module) continue;
        const char *part = modules[i].part ? arena_format(&job->arena, "%s.", modules[i].part) : "";
        add_module(job,
                   arena_format(&job->arena, "%s.%s.%lld.%s%s", job->config.type->base, form->layer, (long long)layer,
                                part, modules[i].module),
                   arena_format(&job->arena, "blk.%lld.%s", (long long)layer, modules[i].name), modules[i].source,
                   false);
    }
}

/* Factors by which frequencies of pairs are divided. */
static void add_factors(Job *job, const char *name, const double *given)
{
    const RotaryConfig *rotary = &job->config.decoder.rotary[0];
    float *factors = arena_new_array(&job->arena, float, (size_t)rotary->width / 2);
    RotaryConfig usual = *rotary;
    usual.kind = ROTARY_DEFAULT;
    for (int64_t i = 0; i < rotary->width / 2; i++)
        factors[i] = given ? (float)given[i] : rotary_frequency(&usual, i) / rotary_frequency(rotary, i);
    add_source(job, name, &(Source){.dtype = DTYPE_F32, .data = factors, .rows = rotary->width / 2, .vector = true},
               true);
}

static bool add_tensors(Job *job)
{
    const Onnx__GraphProto *graph = job->model->proto->graph;
    const DecoderForm *form = job->config.type->form;
    const RotaryConfig *rotary = &job->config.decoder.rotary[0];
    const char *base = job->config.type->base;
    job->used = arena_new_array(&job->arena, bool, graph->n_initializer);
    for (size_t i = 0; i < graph->n_initializer; i++)
        string_map_add(&job->names, graph->initializer[i]->name, (uint32_t)i);
    const char *embeddings = arena_format(&job->arena, "%s.%s", base, form->embeddings);
    add_module(job, embeddings, "token_embd", (Source){.add = 0}, false);
    if (form->position_table)
        add_module(job, arena_format(&job->arena, "%s.%s", base, form->position_table), "position_embd",
                   (Source){.add = 0}, true);
    add_module(job, arena_format(&job->arena, "%s.%s", base, form->last_norm), "output_norm",
               (Source){.add = form->traits & GAINS_ABOVE_ONE ? 1 : 0}, false);
    bool copied = job->config.ties_decoder && has(job, UNTIED);
    add_module(job, copied ? embeddings : form->lm_head, "output", (Source){.add = 0}, false);
    for (int64_t i = 0; i < job->config.layers; i++) add_layer(job, i);
    if (rotary->kind == ROTARY_LLAMA3) add_factors(job, "rope_freqs.weight", NULL);
    if (rotary->kind == ROTARY_LONGROPE) {
        add_factors(job, "rope_factors_long.weight", rotary->long_factors);
        add_factors(job, "rope_factors_short.weight", rotary->short_factors);
    }
    for (size_t i = 0; i < graph->n_initializer; i++)
        if (!job->used[i])
            return input_error(job->diagnostics, job->model->path, "write a folder with --folder",
                               "cannot become GGUF: tensor '%.200s' has no place in it", graph->initializer[i]->name);
    return true;
}

/* ---- What the architecture computes ---- */

static bool refuse(const Job *job, const char *problem)
{
    return diagnostics_error(job->diagnostics, EXIT_UNSUPPORTED_OPERATOR, PLACE_FILE(job->model->path),
                             "write a folder with --folder, or ONNX with -o",
                             "cannot become GGUF: llama.cpp's architecture '%s' %s", job->architecture->name, problem);
}

static bool is_near(double a, double b) { return fabs(a - b) <= 1e-5 * fabs(b); }

static bool check_rotary(const Job *job, const RotaryConfig *rotary)
{
    double magnitude = 0.1 * log(rotary->factor) + 1;
    if (rotary->width != job->config.decoder.head_width && !has(job, PARTIAL)) return refuse(job, "turns whole heads");
    switch (rotary->kind) {
    case ROTARY_LLAMA3: return has(job, FREQUENCIES) || refuse(job, "has no rope_scaling of Llama 3");
    case ROTARY_LONGROPE: return has(job, TWO_LENGTHS) || refuse(job, "has no LongRoPE");
    case ROTARY_YARN:
        return (rotary->truncate && is_near(rotary->attention_factor, magnitude)) ||
               refuse(job, "scales YaRN by 0.1 ln(factor) + 1 and rounds its ramp");
    default: return true;
    }
}

static bool check_attention(const Job *job)
{
    const HuggingFaceConfig *config = &job->config;
    const DecoderConfig *own = &config->decoder;
    bool smollm = config->type->form == &decoder_smollm3;
    int64_t width = own->head_width;
    if (job->architecture->largest && job->architecture->largest == config->layers)
        width = config->hidden / config->heads;
    if (!is_near(own->scale, 1 / sqrt((double)width)) || own->scale_by_layer)
        return refuse(job, "scales scores by the root of a head's width");
    if (has(job, SQUARE) && own->head_width * config->heads != config->hidden)
        return refuse(job, "has heads of hidden size / number of heads");
    if ((own->score_cap > 0) != has(job, CAPS) || (has(job, CAPS) && own->logit_cap <= 0))
        return refuse(job, has(job, CAPS) ? "caps scores and logits" : "does not cap scores");
    if ((own->output_bias || own->mlp_bias) && !has(job, OUTPUT_BIASES))
        return refuse(job, "has no biases of attention's output and of the feed-forward part");
    if (!own->output_bias && has(job, BIASED_ALWAYS)) return refuse(job, "has biases in attention");
    for (int64_t i = 0; i < config->layers; i++)
        if (own->rotates[i] != (!smollm || (i + 1) % 4 != 0))
            return refuse(job, smollm ? "leaves out the positions of every fourth layer" : "turns all layers");
    if (config->type->form->position_table) return true;
    return check_rotary(job, &own->rotary[0]) &&
           (own->rotary[1].kind == ROTARY_DEFAULT || !own->window || check_rotary(job, &own->rotary[1]));
}

static bool check_model(Job *job)
{
    const HuggingFaceConfig *config = &job->config;
    if (config->type->family != FAMILY_DECODER || config->head.kind != HEAD_NEXT)
        return input_error(job->diagnostics, job->model->path, "write a folder with --folder",
                           "cannot become GGUF: it is no language model (skycc import FOLDER --head lm)");
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++)
        if (architectures[i].form == config->type->form) job->architecture = &architectures[i];
    if (!job->architecture)
        return input_error(job->diagnostics, job->model->path, "write a folder with --folder",
                           "cannot become GGUF: models of type '%s' have no architecture there", config->type->name);
    bool gelu = config->type->form->traits & (WITHOUT_GATE | NORMS_AROUND);
    if (gelu && config->activation == ACTIVATION_GELU)
        diagnostics_warning(job->diagnostics, PLACE_FILE(job->wanted->output), NULL,
                            "llama.cpp approximates GELU by tanh, and this model does not: logits differ slightly");
    else if (config->activation != (gelu ? ACTIVATION_GELU_TANH : ACTIVATION_SILU))
        return refuse(job, gelu ? "has GELU as activation" : "has SiLU as activation");
    if (has(job, TIED) && !config->ties_decoder) return refuse(job, "has the embeddings as its head");
    return check_attention(job);
}

/* ---- Metadata ---- */

static const char *key(Job *job, const char *name)
{
    return arena_format(&job->arena, "%s.%s", job->architecture->name, name);
}

/* Every so many layers see everything, and the others a window; 0: no such number. */
static int64_t window_period(const HuggingFaceConfig *config)
{
    for (int64_t period = 1; period <= config->layers + 1; period++) {
        bool fits = true;
        for (int64_t i = 0; i < config->layers; i++) fits &= config->decoder.local[i] == ((i + 1) % period != 0);
        if (fits) return period;
    }
    return 0;
}

/* The longest context that the architecture computes as the model does. */
static int64_t add_windows(Job *job)
{
    const HuggingFaceConfig *config = &job->config;
    const DecoderConfig *own = &config->decoder;
    int64_t longest = config->positions, period = own->window ? window_period(config) : 1;
    if (job->architecture->window_period && period) {
        bool some = period > 1;
        if (some || config->type->form == &decoder_gemma2)
            gguf_integer(&job->file, key(job, "attention.sliding_window"), some ? own->window : longest);
        if (some) gguf_integer(&job->file, key(job, "attention.sliding_window_pattern"), period);
        return longest;
    }
    if (period == 1 || own->window >= longest) return longest;
    diagnostics_warning(job->diagnostics, PLACE_FILE(job->wanted->output), NULL,
                        "llama.cpp's architecture '%s' has no windows of %lld tokens: the longest context is set to "
                        "that, instead of %lld",
                        job->architecture->name, (long long)own->window, (long long)longest);
    return own->window;
}

static void add_rotary(Job *job)
{
    const RotaryConfig *rotary = job->config.decoder.rotary;
    GgufFile *file = &job->file;
    gguf_integer(file, key(job, "rope.dimension_count"), rotary->width);
    gguf_real(file, key(job, "rope.freq_base"), rotary->theta);
    if (rotary[1].theta != rotary->theta) gguf_real(file, key(job, "rope.freq_base_swa"), rotary[1].theta);
    if (rotary->kind == ROTARY_LINEAR || rotary->kind == ROTARY_YARN) {
        gguf_text(file, key(job, "rope.scaling.type"), rotary->kind == ROTARY_YARN ? "yarn" : "linear");
        gguf_real(file, key(job, "rope.scaling.factor"), rotary->factor);
    }
    if (rotary->kind == ROTARY_YARN || rotary->kind == ROTARY_LONGROPE)
        gguf_integer(file, key(job, "rope.scaling.original_context_length"), rotary->original);
    if (rotary->kind == ROTARY_YARN) {
        gguf_real(file, key(job, "rope.scaling.yarn_beta_fast"), rotary->high);
        gguf_real(file, key(job, "rope.scaling.yarn_beta_slow"), rotary->low);
    }
    if (rotary->kind == ROTARY_LONGROPE)
        gguf_real(file, key(job, "rope.scaling.attn_factor"), rotary->attention_factor);
}

static void add_metadata(Job *job)
{
    const HuggingFaceConfig *config = &job->config;
    const DecoderConfig *own = &config->decoder;
    const DecoderForm *form = config->type->form;
    GgufFile *file = &job->file;
    gguf_text(file, "general.architecture", job->architecture->name);
    gguf_text(file, "general.type", "model");
    gguf_integer(file, "general.file_type", job->wanted->q8 ? 7 : 1);
    gguf_integer(file, "general.quantization_version", 2);
    gguf_integer(file, key(job, "vocab_size"), config->vocabulary);
    gguf_integer(file, key(job, "embedding_length"), config->hidden);
    gguf_integer(file, key(job, "block_count"), config->layers);
    gguf_integer(file, key(job, "feed_forward_length"), config->intermediate);
    gguf_integer(file, key(job, "attention.head_count"), config->heads);
    gguf_integer(file, key(job, "attention.head_count_kv"), own->key_heads);
    gguf_integer(file, key(job, "attention.key_length"), own->head_width);
    gguf_integer(file, key(job, "attention.value_length"), own->head_width);
    gguf_real(
        file,
        key(job, form->traits & LAYER_NORMS ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon"),
        config->norm_epsilon);
    gguf_integer(file, key(job, "context_length"), add_windows(job));
    if (!form->position_table) add_rotary(job);
    if (form->traits & PARALLEL) gguf_flag(file, key(job, "use_parallel_residual"), own->parallel);
    if (own->score_cap > 0) gguf_real(file, key(job, "attn_logit_softcapping"), own->score_cap);
    if (own->logit_cap > 0) gguf_real(file, key(job, "final_logit_softcapping"), own->logit_cap);
}

/* ---- The whole ---- */

static bool write_gguf(void *context, OnnxModel *model, Diagnostics *diagnostics)
{
    Job job = {.wanted = context, .model = model, .diagnostics = diagnostics};
    const char *text = onnx_model_property(model, PROPERTY_CONFIG);
    if (!text || !onnx_model_is_distinct(model))
        return input_error(diagnostics, model->path,
                           "only models from skycc import can; write this one as ONNX with -o",
                           "cannot become GGUF: skycc did not import it from a Hugging Face folder");
    bool ok =
        config_parse(&job.config, text, model->path, &job.arena, diagnostics) && check_model(&job) && add_tensors(&job);
    const char *source = job.wanted->source
                             ? job.wanted->source
                             : tokenizer_folder(model->path, onnx_model_property(model, PROPERTY_FOLDER), &job.arena);
    if (ok) add_metadata(&job);
    ok = ok && gguf_add_tokenizer(&job.file, source, model->path, &job.config, diagnostics) &&
         gguf_write(&job.file, job.wanted->output, diagnostics);
    gguf_free(&job.file);
    string_map_free(&job.names);
    config_free(&job.config);
    arena_free(&job.arena);
    return ok;
}

bool gguf_export(const char *model, const GgufExport *wanted, FindTrained *find, void *context,
                 Diagnostics *diagnostics)
{
    return export_model(model, find, context, write_gguf, (void *)wanted, diagnostics);
}
