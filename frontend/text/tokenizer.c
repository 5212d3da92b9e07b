#include "frontend/text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/parts.h"
#include "frontend/text/bert_tokenizer.h"
#include "frontend/text/token_pipeline.h"
#include "frontend/text/unicode.h"

struct Tokenizer {
    BertTokenizer *bert; /* one of the two; the other is NULL */
    TokenPipeline *pipeline;
    FramePiece pieces[5]; /* of BERT's frame */
    TokenFrame frames[2]; /* of one text, of a pair */
    TokenizerSpecials specials;
    bool cased;       /* BERT's */
    bool takes_masks; /* of BERT's: a pipeline knows how its mask is written */
};

Tokenizer *tokenizer_open(const char *path, bool lowercase, Diagnostics *diagnostics)
{
    BertTokenizer *bert = bert_tokenizer_open(path, lowercase, diagnostics);
    if (!bert) return NULL;
    Tokenizer *tokenizer = memory_allocate(sizeof *tokenizer);
    const BertSpecials *ids = bert_tokenizer_specials(bert);
    const FramePiece pieces[] = {
        {-1, ids->classify, 0}, {0, 0, 0}, {-1, ids->separate, 0}, {1, 0, 1}, {-1, ids->separate, 1}};
    memcpy(tokenizer->pieces, pieces, sizeof pieces);
    tokenizer->bert = bert;
    tokenizer->cased = !lowercase;
    tokenizer->frames[0] = (TokenFrame){tokenizer->pieces, 3};
    tokenizer->frames[1] = (TokenFrame){tokenizer->pieces, 5};
    tokenizer->specials = (TokenizerSpecials){ids->unknown, ids->pad, ids->mask};
    return tokenizer;
}

Tokenizer *tokenizer_open_json(const char *path, Diagnostics *diagnostics)
{
    TokenPipeline *pipeline = token_pipeline_open(path, diagnostics);
    if (!pipeline) return NULL;
    Tokenizer *tokenizer = memory_allocate(sizeof *tokenizer);
    tokenizer->pipeline = pipeline;
    memcpy(tokenizer->frames, pipeline->frames, sizeof tokenizer->frames);
    tokenizer->specials =
        (TokenizerSpecials){pipeline->model.unknown, pipeline->pad < 0 ? 0 : pipeline->pad, pipeline->mask};
    return tokenizer;
}

Tokenizer *tokenizer_open_named(const char *path, bool lowercase, Diagnostics *diagnostics)
{
    return text_ends_with(path, ".json") ? tokenizer_open_json(path, diagnostics)
                                         : tokenizer_open(path, lowercase, diagnostics);
}

void tokenizer_free(Tokenizer *tokenizer)
{
    if (!tokenizer) return;
    bert_tokenizer_free(tokenizer->bert);
    token_pipeline_free(tokenizer->pipeline);
    free(tokenizer);
}

const char *tokenizer_encode(Tokenizer *tokenizer, const char *text, size_t length, TokenIds *ids)
{
    static const char mask[] = "[MASK]", not_text[] = "is not UTF-8";
    if (tokenizer->pipeline) return token_pipeline_encode(tokenizer->pipeline, text, length, ids);
    const char *end = text + length, *found;
    while (tokenizer->takes_masks && (found = memmem(text, (size_t)(end - text), mask, sizeof mask - 1))) {
        if (!bert_tokenizer_encode(tokenizer->bert, text, (size_t)(found - text), ids)) return not_text;
        array_push(ids->items, ids->count, ids->capacity, tokenizer->specials.mask);
        text = found + sizeof mask - 1;
    }
    return bert_tokenizer_encode(tokenizer->bert, text, (size_t)(end - text), ids) ? NULL : not_text;
}

bool tokenizer_parts_at(Tokenizer *tokenizer, const char *text, size_t length, size_t at, const TokenIds *ids,
                        size_t *count)
{
    TokenIds before = {0};
    size_t end = at;
    while (end && strchr(" \t\r\n", text[end - 1])) end--;
    bool parts = !tokenizer_encode(tokenizer, text, end, &before) && before.count <= ids->count;
    for (size_t i = 0; parts && i < before.count; i++) parts = before.items[i] == ids->items[i];
    *count = before.count;
    /* A part of an unknown word is as unknown as all of it. */
    size_t former = at ? unicode_before(text, at) : 0, used;
    bool inside = at && at < length && unicode_is_word(unicode_read(text + former, length - former, &used)) &&
                  unicode_is_word(unicode_read(text + at, length - at, &used));
    if (parts && inside && before.count && before.items[before.count - 1] == tokenizer->specials.unknown) parts = false;
    free(before.items);
    return parts;
}

/* Where the first word has no blank before it, byte-level tokenizers read it as the end of a word. */
static bool needs_blank(const Tokenizer *tokenizer)
{
    if (!tokenizer->pipeline) return false;
    const Pretokenizer *cut = &tokenizer->pipeline->pretokenizer;
    for (size_t i = 0; i < cut->count; i++)
        if (cut->steps[i].kind == PRETOKENIZER_BYTE_LEVEL) return !cut->steps[i].prefix;
    return false;
}

char *tokenizer_spell_word(const Tokenizer *tokenizer, const char *word, size_t length)
{
    size_t blank = needs_blank(tokenizer);
    char *spelled = memory_allocate(length + blank + 1);
    memset(spelled, ' ', blank);
    memcpy(spelled + blank, word, length);
    return spelled;
}

void tokenizer_take_masks(Tokenizer *tokenizer) { tokenizer->takes_masks = tokenizer->specials.mask >= 0; }

bool tokenizer_piece(const Tokenizer *tokenizer, int32_t id, Buffer *piece)
{
    if (id < 0 || id >= tokenizer_size(tokenizer)) return false;
    if (tokenizer->pipeline) return token_pipeline_piece(tokenizer->pipeline, id, piece);
    buffer_print(piece, "%s", bert_tokenizer_piece(tokenizer->bert, id));
    return true;
}

bool tokenizer_is_special(const Tokenizer *tokenizer, int32_t id)
{
    if (tokenizer->pipeline) return token_pipeline_is_special(tokenizer->pipeline, id);
    const BertSpecials *ids = bert_tokenizer_specials(tokenizer->bert);
    return id == ids->unknown || id == ids->classify || id == ids->separate || id == ids->mask;
}

void tokenizer_find_texts(const Tokenizer *tokenizer, const TokenIds texts[2], bool pair, const int32_t *row,
                          size_t length, size_t begin[2], size_t count[2])
{
    const TokenFrame *frame = &tokenizer->frames[pair];
    size_t at = 0;
    for (int t = 0; t < 2; t++) begin[t] = count[t] = 0;
    for (size_t p = 0; p < frame->count; p++) {
        int text = frame->pieces[p].text;
        if (text < 0) {
            at++;
            continue;
        }
        begin[text] = at;
        while (count[text] < texts[text].count && at < length && row[at] == texts[text].items[count[text]])
            count[text]++, at++;
    }
}

const TokenFrame *tokenizer_text_frame(const Tokenizer *tokenizer) { return &tokenizer->frames[0]; }

size_t tokenizer_frame(const Tokenizer *tokenizer, const TokenIds texts[2], bool pair, const TokenRow *row, bool *cut)
{
    FrameCut way = tokenizer->pipeline ? tokenizer->pipeline->cut : FRAME_CUT_BERT;
    return token_frame_write(&tokenizer->frames[pair], way, texts, tokenizer->specials.pad, row, cut);
}

size_t tokenizer_least_length(const Tokenizer *tokenizer, bool pair)
{
    return token_frame_specials(&tokenizer->frames[pair]) + 1 + pair;
}

const TokenizerSpecials *tokenizer_specials(const Tokenizer *tokenizer) { return &tokenizer->specials; }

int32_t tokenizer_size(const Tokenizer *tokenizer)
{
    return tokenizer->pipeline ? tokenizer->pipeline->model.size : bert_tokenizer_size(tokenizer->bert);
}

Hash tokenizer_hash(const Tokenizer *tokenizer)
{
    if (tokenizer->pipeline) return tokenizer->pipeline->hash;
    Hash hash = hash_bytes("cased", tokenizer->cased ? strlen("cased") : 0);
    for (int32_t id = 0; id < tokenizer_size(tokenizer); id++) {
        const char *piece = bert_tokenizer_piece(tokenizer->bert, id);
        hash = hash_extend(hash, piece, strlen(piece) + 1);
    }
    return hash;
}
