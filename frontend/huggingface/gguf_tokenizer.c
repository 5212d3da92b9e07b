#include "frontend/huggingface/gguf_tokenizer.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/string_map.h"
#include "frontend/text/tokenizer.h"

/* Types of tokens in GGUF. */
enum { TOKEN_NORMAL = 1, TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_USER, TOKEN_UNUSED, TOKEN_BYTE };

typedef struct Job {
    GgufFile *file;
    const char *path; /* of tokenizer.json */
    const HuggingFaceConfig *config;
    json_t *root, *settings; /* the file, and tokenizer_config.json or NULL */
    const char **tokens;
    int32_t *types;
    size_t count;
    Arena arena;
    Diagnostics *diagnostics;
} Job;

static bool refuse(const Job *job, const char *problem)
{
    return diagnostics_error(job->diagnostics, EXIT_UNSUPPORTED_OPERATOR, PLACE_FILE(job->path),
                             "write a folder with --folder, or give another tokenizer with --source",
                             "cannot become a tokenizer of llama.cpp: %s", problem);
}

static bool is_true(const json_t *object, const char *key) { return json_is_true(json_object_get(object, key)); }

static void warn(const Job *job, const char *difference)
{
    diagnostics_warning(job->diagnostics, PLACE_FILE(job->path), NULL, "llama.cpp reads some texts differently: %s",
                        difference);
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* ---- Tokens ---- */

static bool set_token(Job *job, const char *token, json_int_t id, int32_t type)
{
    if (id < 0 || (size_t)id >= job->count)
        return refuse(job, arena_format(&job->arena, "token %lld, '%.100s', is beyond the model's vocabulary of %zu",
                                        (long long)id, token, job->count));
    job->tokens[id] = token;
    job->types[id] = type;
    return true;
}

static bool read_tokens(Job *job)
{
    const json_t *model = json_object_get(job->root, "model"), *one;
    const char *piece, *unknown = text_of(model, "unk_token");
    json_t *vocabulary = json_object_get(model, "vocab"), *id;
    bool bytes = is_true(model, "byte_fallback");
    size_t i;
    job->count = (size_t)job->config->vocabulary;
    job->tokens = arena_new_array(&job->arena, const char *, job->count);
    job->types = arena_new_array(&job->arena, int32_t, job->count);
    for (i = 0; i < job->count; i++)
        set_token(job, arena_format(&job->arena, "[PAD%zu]", i), (json_int_t)i, TOKEN_UNUSED);
    json_object_foreach(vocabulary, piece, id)
    {
        unsigned byte;
        bool is_byte = bytes && strlen(piece) == 6 && sscanf(piece, "<0x%2X>", &byte) == 1;
        int32_t type = is_byte ? TOKEN_BYTE : bytes && strcmp(piece, unknown) == 0 ? TOKEN_UNKNOWN : TOKEN_NORMAL;
        if (!set_token(job, piece, json_integer_value(id), type)) return false;
    }
    json_array_foreach(json_object_get(job->root, "added_tokens"), i, one)
    {
        json_int_t number = json_integer_value(json_object_get(one, "id"));
        bool keeps = number >= 0 && (size_t)number < job->count && job->types[number] == TOKEN_UNKNOWN;
        int32_t type = keeps ? TOKEN_UNKNOWN : is_true(one, "special") ? TOKEN_CONTROL : TOKEN_USER;
        if (!set_token(job, text_of(one, "content"), number, type)) return false;
    }
    gguf_texts(job->file, "tokenizer.ggml.tokens", job->tokens, job->count);
    gguf_integers(job->file, "tokenizer.ggml.token_type", job->types, job->count);
    return true;
}

static json_int_t find_token(const Job *job, const char *token)
{
    for (size_t i = 0; token && i < job->count; i++)
        if (strcmp(job->tokens[i], token) == 0) return (json_int_t)i;
    return -1;
}

/* ---- Byte-level byte pairs ---- */

/* The regular expressions of llama.cpp's pre-tokenizers, as tokenizer.json has them. */
#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define REST "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define WORD_START "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define WORD_END "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define ENDINGS "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
#define SLASHES "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const struct {
    const char *steps;             /* as pretokenizer_steps spells them */
    const char *name, *whole_name; /* where pieces are merged, and where words that are pieces stay whole */
} pretokenizers[] = {
    {"words", "gpt-2", NULL},
    {"digits words", "smollm", NULL},
    {CONTRACTIONS "\\p{N}{1,3}" REST " bytes", "smaug-bpe", "llama-bpe"},
    {CONTRACTIONS "\\p{N}" REST " bytes", "qwen2", NULL},
    {WORD_START "*" WORD_END "+" ENDINGS "|" WORD_START "+" WORD_END "*" ENDINGS "|\\p{N}{1,3}" SLASHES " bytes",
     "gpt-4o", NULL},
    {WORD_START "*" WORD_END "+|" WORD_START "+" WORD_END "*|\\p{N}" SLASHES " bytes", NULL, "tekken"},
};

static bool add_step(Job *job, const json_t *step, Buffer *steps)
{
    const char *type = text_of(step, "type"), *separator = steps->size ? " " : "";
    if (strcmp(type, "ByteLevel") == 0) {
        const json_t *prefix = json_object_get(step, "add_prefix_space"), *split = json_object_get(step, "use_regex");
        if (!prefix || json_is_true(prefix)) return refuse(job, "it adds a blank before texts");
        buffer_print(steps, "%s%s", separator, !split || json_is_true(split) ? "words" : "bytes");
        return true;
    }
    if (strcmp(type, "Digits") == 0 && is_true(step, "individual_digits"))
        return buffer_print(steps, "%sdigits", separator), true;
    const char *pattern = text_of(json_object_get(step, "pattern"), "Regex");
    if (strcmp(type, "Split") == 0 && *pattern && !is_true(step, "invert") &&
        strcmp(text_of(step, "behavior"), "Isolated") == 0)
        return buffer_print(steps, "%s%s", separator, pattern), true;
    return refuse(job, arena_format(&job->arena, "its pre-tokenizer has the step '%.40s'", type));
}

static bool add_pretokenizer(Job *job)
{
    const json_t *given = json_object_get(job->root, "pre_tokenizer"), *step,
                 *list = json_object_get(given, "pretokenizers");
    FREED_WITH(buffer_free) Buffer steps = {0};
    size_t i;
    const char *name = NULL;
    bool ok = true, whole = is_true(json_object_get(job->root, "model"), "ignore_merges");
    if (!list) ok = add_step(job, given, &steps);
    json_array_foreach(list, i, step) ok = ok && add_step(job, step, &steps);
    for (i = 0; ok && i < sizeof pretokenizers / sizeof *pretokenizers; i++)
        if (strcmp(pretokenizers[i].steps, buffer_text(&steps)) == 0)
            name = whole ? pretokenizers[i].whole_name : pretokenizers[i].name;
    if (ok && !name) ok = refuse(job, "it cuts texts into words in a way of its own");
    if (ok) gguf_text(job->file, "tokenizer.ggml.pre", name);
    return ok;
}

/* The pieces of a merge, which is "left right" or a list of both. */
static bool read_merge(const json_t *merge, const char **left, size_t *length, const char **right)
{
    const char *text = json_string_value(merge), *blank = text ? strchr(text, ' ') : NULL;
    *left = text ? text : json_string_value(json_array_get(merge, 0));
    *right = text ? (blank ? blank + 1 : NULL) : json_string_value(json_array_get(merge, 1));
    *length = blank ? (size_t)(blank - text) : *left ? strlen(*left) : 0;
    return *left && *right;
}

static bool add_byte_pairs(Job *job)
{
    const json_t *merges = json_object_get(json_object_get(job->root, "model"), "merges"), *merge;
    const char *normalizer = text_of(json_object_get(job->root, "normalizer"), "type"), *left, *right;
    size_t count = json_array_size(merges), i, length;
    const char **texts = arena_new_array(&job->arena, const char *, count + 1);
    if (*normalizer && strcmp(normalizer, "NFC") != 0)
        return refuse(job, arena_format(&job->arena, "it normalises texts ('%.40s')", normalizer));
    if (*normalizer) warn(job, "it does not join decomposed characters (NFC)");
    json_array_foreach(merges, i, merge)
    {
        bool whole = read_merge(merge, &left, &length, &right);
        texts[i] = whole ? arena_format(&job->arena, "%.*s %s", (int)length, left, right) : "";
    }
    gguf_text(job->file, "tokenizer.ggml.model", "gpt2");
    if (!add_pretokenizer(job)) return false;
    gguf_texts(job->file, "tokenizer.ggml.merges", texts, count);
    return true;
}

/* ---- SentencePiece's byte pairs ---- */

/* How the tokenizer writes blanks: 1 with one before a text, 0 without, -1 in another way. */
static int blanks_before(const Job *job)
{
    const json_t *normalizer = json_object_get(job->root, "normalizer"), *step, *list,
                 *words = json_object_get(job->root, "pre_tokenizer");
    int prefix = 0, replaced = 0;
    size_t i;
    if (strcmp(text_of(words, "type"), "Metaspace") == 0) {
        const char *scheme = text_of(words, "prepend_scheme");
        if (!json_is_null(normalizer) && normalizer) return -1;
        if (strcmp(scheme, "never") == 0) return 0;
        warn(job, "it puts a blank before texts that begin with one, and after special tokens");
        return 1;
    }
    json_auto_t *single = json_pack("[O]", normalizer);
    list = json_object_get(normalizer, "normalizers");
    json_array_foreach(list ? list : single, i, step)
    {
        const char *type = text_of(step, "type");
        if (strcmp(type, "Prepend") == 0)
            prefix++;
        else if (strcmp(type, "Replace") == 0 && strcmp(text_of(step, "content"), "\xe2\x96\x81") == 0)
            replaced++;
        else
            replaced = INT_MIN / 2;
    }
    return replaced == 1 ? prefix : -1;
}

/* Scores fall with the place of a piece's first merge. llama.cpp merges by scores of pieces, the file by ranks of
 * pairs: the same where all merges that make a piece follow each other. */
static bool add_scores(Job *job)
{
    const json_t *merges = json_object_get(json_object_get(job->root, "model"), "merges"), *merge;
    float *scores = arena_new_array(&job->arena, float, job->count);
    const char *left, *right;
    size_t length, i;
    json_int_t last = -1;
    FREED_WITH(string_map_free) StringMap ids = {0};
    FREED_WITH(buffer_free) Buffer piece = {0};
    bool ok = true;
    for (i = 0; i < job->count; i++) string_map_add(&ids, job->tokens[i], (uint32_t)i);
    json_array_foreach(merges, i, merge)
    {
        piece.size = 0;
        if (!read_merge(merge, &left, &length, &right)) continue;
        buffer_print(&piece, "%.*s%s", (int)length, left, right);
        const uint32_t *id = string_map_find(&ids, buffer_text(&piece));
        if (!id || *id == last) continue;
        if (scores[*id] < 0) ok = false;
        scores[*id] = -(float)(i + 1);
        last = *id;
    }
    if (!ok) return refuse(job, "its merges are not ordered by the pieces that they make");
    gguf_reals(job->file, "tokenizer.ggml.scores", scores, job->count);
    return true;
}

static bool add_sentence_pieces(Job *job)
{
    int blanks = blanks_before(job);
    if (blanks < 0) return refuse(job, "it normalises texts in a way of its own");
    gguf_text(job->file, "tokenizer.ggml.model", "llama");
    gguf_text(job->file, "tokenizer.ggml.pre", "default");
    gguf_flag(job->file, "tokenizer.ggml.add_space_prefix", blanks);
    return add_scores(job);
}

/* ---- Special tokens ---- */

/* By tokenizer_config.json, where a token is a text or an object with one, or by an id of config.json; -1: none. */
static json_int_t find_special(const Job *job, const char *name, const char *member)
{
    const json_t *given = json_object_get(job->settings, name), *id = json_object_get(job->config->json, member);
    json_int_t found = find_token(job, json_is_object(given) ? text_of(given, "content") : json_string_value(given));
    if (found >= 0) return found;
    if (json_is_array(id)) id = json_array_get(id, 0);
    return json_is_integer(id) && json_integer_value(id) < (json_int_t)job->count ? json_integer_value(id) : -1;
}

static void add_special(Job *job, const char *name, json_int_t id)
{
    if (id >= 0) gguf_integer(job->file, arena_format(&job->arena, "tokenizer.ggml.%s_token_id", name), id);
}

/* The frame of a text: at most one token before and one after it. */
static bool add_frame(Job *job)
{
    Tokenizer *tokenizer = tokenizer_open_json(job->path, job->diagnostics);
    if (!tokenizer) return false;
    const TokenFrame *frame = tokenizer_text_frame(tokenizer);
    json_int_t ends[2] = {find_special(job, "bos_token", "bos_token_id"),
                          find_special(job, "eos_token", "eos_token_id")};
    int count[2] = {0}, after = 0;
    for (size_t i = 0; i < frame->count; i++) {
        if (frame->pieces[i].text >= 0) {
            after = 1;
            continue;
        }
        ends[after] = frame->pieces[i].id;
        count[after]++;
    }
    tokenizer_free(tokenizer);
    if (count[0] > 1 || count[1] > 1) return refuse(job, "it adds several tokens before or after a text");
    add_special(job, "bos", ends[0]);
    add_special(job, "eos", ends[1]);
    gguf_flag(job->file, "tokenizer.ggml.add_bos_token", count[0]);
    gguf_flag(job->file, "tokenizer.ggml.add_eos_token", count[1]);
    add_special(job, "padding", find_special(job, "pad_token", "pad_token_id"));
    add_special(job, "unknown", find_special(job, "unk_token", "unk_token_id"));
    const json_t *all = json_object_get(job->config->json, "eos_token_id"), *id;
    size_t i;
    json_array_foreach(all, i, id) if (json_integer_value(id) != ends[1])
    {
        add_special(job, "eot", json_integer_value(id)); /* llama.cpp has two ends */
        break;
    }
    return true;
}

static bool add_chat_template(Job *job, const char *folder)
{
    const char *path = arena_format(&job->arena, "%s/chat_template.jinja", folder);
    json_t *given = json_object_get(job->settings, "chat_template");
    FREED_WITH(file_unmap) MappedFile file = {0};
    if (json_is_string(given)) gguf_text(job->file, "tokenizer.chat_template", json_string_value(given));
    if (json_is_string(given) || access(path, F_OK) != 0) return true;
    if (!file_map(&file, path, job->diagnostics)) return false;
    gguf_text(job->file, "tokenizer.chat_template",
              arena_format(&job->arena, "%.*s", (int)file.size, (const char *)file.bytes));
    return true;
}

/* ---- The whole ---- */

static bool add_all(Job *job, const char *folder)
{
    const json_t *model = json_object_get(job->root, "model");
    if (!json_object_get(model, "merges"))
        return refuse(job, arena_format(&job->arena, "it is of type '%.40s', not byte pairs", text_of(model, "type")));
    bool pieces = is_true(model, "byte_fallback");
    return read_tokens(job) && (pieces ? add_sentence_pieces(job) : add_byte_pairs(job)) && add_frame(job) &&
           add_chat_template(job, folder);
}

bool gguf_add_tokenizer(GgufFile *file, const char *folder, const char *model, const HuggingFaceConfig *config,
                        Diagnostics *diagnostics)
{
    Job job = {.file = file, .config = config, .diagnostics = diagnostics};
    job.path = arena_format(&job.arena, "%s/tokenizer.json", folder ? folder : "");
    const char *settings = arena_format(&job.arena, "%s/tokenizer_config.json", folder ? folder : "");
    bool there = folder && access(job.path, F_OK) == 0, ok = true;
    if (!there) {
        gguf_text(file, "tokenizer.ggml.model", "no_vocab");
        diagnostics_warning(diagnostics, PLACE_FILE(model), "give the folder that holds it with --source",
                            "has no tokenizer.json: llama.cpp will compute with token ids, and read no text");
    } else {
        job.root = json_read(job.path, diagnostics);
        ok = job.root != NULL;
        if (ok && access(settings, F_OK) == 0) ok = (job.settings = json_read_reals(settings, diagnostics)) != NULL;
        ok = ok && add_all(&job, folder);
    }
    json_decref(job.root);
    json_decref(job.settings);
    arena_free(&job.arena);
    return ok;
}
