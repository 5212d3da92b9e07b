#include "frontend/text/token_pipeline.h"

#include <stdlib.h>
#include <string.h>

#include "frontend/text/unicode.h"

/* ---- words seen before ---- */

enum { CACHE_SLOTS = 1 << 16, MOST_CACHED = CACHE_SLOTS / 2, LONGEST_CACHED = 64 };

typedef struct CachedWord {
    Hash hash;
    uint32_t text, length; /* in `texts` */
    uint32_t first, count; /* in `ids` */
} CachedWord;

typedef struct WordCache {
    CachedWord slots[CACHE_SLOTS]; /* free where length is 0 */
    size_t used;
    Buffer texts;
    TokenIds ids;
} WordCache;

static CachedWord *find_cached(WordCache *cache, const char *word, size_t length, Hash hash)
{
    for (size_t i = hash.low % CACHE_SLOTS;; i = (i + 1) % CACHE_SLOTS) {
        CachedWord *slot = &cache->slots[i];
        if (!slot->length || (hash_equal(slot->hash, hash) && slot->length == length &&
                              memcmp(buffer_text(&cache->texts) + slot->text, word, length) == 0))
            return slot;
    }
}

static void append_ids(TokenIds *ids, const int32_t *items, size_t count)
{
    for (size_t i = 0; i < count; i++) array_push(ids->items, ids->count, ids->capacity, items[i]);
}

static void encode_word(TokenPipeline *pipeline, const char *word, size_t length, TokenIds *ids)
{
    WordCache *cache = pipeline->cache;
    if (length > LONGEST_CACHED) {
        subwords_encode(&pipeline->model, word, length, ids);
        return;
    }
    Hash hash = hash_bytes(word, length);
    CachedWord *slot = find_cached(cache, word, length, hash);
    if (slot->length) {
        append_ids(ids, cache->ids.items + slot->first, slot->count);
        return;
    }
    size_t first = ids->count;
    subwords_encode(&pipeline->model, word, length, ids);
    if (cache->used == MOST_CACHED) return;
    cache->used++;
    *slot = (CachedWord){hash, (uint32_t)cache->texts.size, (uint32_t)length, (uint32_t)cache->ids.count,
                         (uint32_t)(ids->count - first)};
    buffer_append(&cache->texts, word, length);
    if (ids->count > first) append_ids(&cache->ids, ids->items + first, ids->count - first);
}

/* ---- added tokens ---- */

typedef struct Match {
    const AddedToken *token;
    size_t start, end;
} Match;

static bool is_word_at(const char *text, size_t length)
{
    size_t used;
    return length && unicode_is_word(unicode_read(text, length, &used));
}

/* The longest token that begins at `at`; NULL: none. */
static const AddedToken *token_at(const TokenPipeline *pipeline, const Trie *trie, const char *text, size_t length,
                                  size_t at, size_t *end)
{
    const AddedToken *found = NULL;
    uint32_t node = 0;
    for (size_t i = at; i < length && (node = trie_step(trie, node, (unsigned char)text[i])); i++)
        if (trie->values[node] >= 0) found = &pipeline->added[trie->values[node]], *end = i + 1;
    return found;
}

static bool stands_alone(const char *text, size_t length, size_t start, size_t end)
{
    if (end < length && is_word_at(text + end, length - end)) return false;
    size_t former = start ? unicode_before(text, start) : 0;
    return start == 0 || !is_word_at(text + former, start - former);
}

/* Finds the next token in text from `at` on. White space before `taken` belongs to an earlier token. False: there is
 * none. */
static bool next_token(const TokenPipeline *pipeline, const Trie *trie, const char *text, size_t length, size_t at,
                       size_t taken, Match *match)
{
    for (; trie->nodes && at < length; at++) {
        size_t end, used;
        const AddedToken *token = token_at(pipeline, trie, text, length, at, &end);
        if (!token) continue;
        if (token->single_word && !stands_alone(text, length, at, end)) {
            at = end - 1; /* it is passed as a whole */
            continue;
        }
        *match = (Match){token, at, end};
        while (token->left && match->start > taken) {
            size_t former = unicode_before(text, match->start);
            if (!unicode_is_space(unicode_read(text + former, match->start - former, &used))) break;
            match->start = former;
        }
        while (token->right && match->end < length) {
            if (!unicode_is_space(unicode_read(text + match->end, length - match->end, &used))) break;
            match->end += used;
        }
        return true;
    }
    return false;
}

static void encode_plain(TokenPipeline *pipeline, const char *text, size_t length, TokenIds *ids)
{
    if (length == 0 || pipeline->problem) return;
    pipeline->problem =
        pipeline->room ? pretokenizer_apply(&pipeline->pretokenizer, text, length, pipeline->room) : TEXT_GREW;
    if (pipeline->problem) return;
    pipeline->room -= pipeline->pretokenizer.words.text.size;
    const Words *words = &pipeline->pretokenizer.words;
    for (size_t i = 0; i < words->count; i++)
        encode_word(pipeline, buffer_text(&words->text) + words->spans[i].start, words->spans[i].length, ids);
}

static void encode_normalized(TokenPipeline *pipeline, const char *text, size_t length, bool begins, TokenIds *ids)
{
    Match match;
    size_t taken = 0;
    while (next_token(pipeline, &pipeline->normalized, text, length, taken, taken, &match)) {
        pipeline->pretokenizer.begins = begins && taken == 0;
        encode_plain(pipeline, text + taken, match.start - taken, ids);
        append_ids(ids, &match.token->id, 1);
        taken = match.end;
    }
    pipeline->pretokenizer.begins = begins && taken == 0;
    encode_plain(pipeline, text + taken, length - taken, ids);
}

static void encode_written(TokenPipeline *pipeline, const char *text, size_t length, bool begins, TokenIds *ids)
{
    if (length == 0 || pipeline->problem) return;
    Buffer *normal = &pipeline->text;
    *normal = (Buffer){.bytes = normal->bytes, .capacity = normal->capacity};
    buffer_append(normal, text, length);
    pipeline->problem = normalizer_apply(&pipeline->normalizer, normal);
    if (!pipeline->problem) encode_normalized(pipeline, buffer_text(normal), normal->size, begins, ids);
}

const char *token_pipeline_encode(TokenPipeline *pipeline, const char *text, size_t length, TokenIds *ids)
{
    if (!unicode_is_valid(text, length)) return "is not UTF-8";
    pipeline->room = NORMALIZER_LIMIT(length);
    pipeline->problem = NULL;
    Match match;
    size_t taken = 0;
    while (next_token(pipeline, &pipeline->written, text, length, taken, taken, &match)) {
        encode_written(pipeline, text + taken, match.start - taken, taken == 0, ids);
        append_ids(ids, &match.token->id, 1);
        taken = match.end;
    }
    encode_written(pipeline, text + taken, length - taken, taken == 0, ids);
    return pipeline->problem;
}

bool token_pipeline_piece(const TokenPipeline *pipeline, int32_t id, Buffer *piece)
{
    for (size_t i = 0; i < pipeline->added_count; i++) {
        if (pipeline->added[i].id != id) continue;
        buffer_append(piece, pipeline->added[i].content, pipeline->added[i].length);
        return true;
    }
    return trie_string(&pipeline->model.vocabulary, id, piece);
}

bool token_pipeline_is_special(const TokenPipeline *pipeline, int32_t id)
{
    for (size_t i = 0; i < pipeline->added_count; i++)
        if (pipeline->added[i].special && pipeline->added[i].id == id) return true;
    return false;
}

/* ---- opening ---- */

TokenPipeline *token_pipeline_open(const char *path, Diagnostics *diagnostics)
{
    TokenPipeline *pipeline = memory_allocate(sizeof *pipeline);
    pipeline->cache = memory_allocate(sizeof *pipeline->cache);
    if (token_pipeline_read(pipeline, path, diagnostics)) return pipeline;
    token_pipeline_free(pipeline);
    return NULL;
}

void token_pipeline_free(TokenPipeline *pipeline)
{
    if (!pipeline) return;
    for (size_t i = 0; i < pipeline->normalizer.count; i++) {
        charsmap_free(pipeline->normalizer.steps[i].map);
        pattern_free(pipeline->normalizer.steps[i].pattern);
    }
    for (size_t i = 0; i < pipeline->pretokenizer.count; i++) pattern_free(pipeline->pretokenizer.steps[i].pattern);
    free(pipeline->normalizer.steps);
    buffer_free(&pipeline->normalizer.spare);
    Words *words[] = {&pipeline->pretokenizer.words, &pipeline->pretokenizer.spare};
    for (int i = 0; i < 2; i++) {
        buffer_free(&words[i]->text);
        free(words[i]->spans);
    }
    free(pipeline->pretokenizer.steps);
    subwords_free(&pipeline->model);
    trie_free(&pipeline->written);
    trie_free(&pipeline->normalized);
    buffer_free(&pipeline->cache->texts);
    free(pipeline->cache->ids.items);
    free(pipeline->cache);
    buffer_free(&pipeline->text);
    for (int i = 0; i < 2; i++) free(pipeline->frames[i].pieces);
    arena_free(&pipeline->arena);
    free(pipeline);
}
