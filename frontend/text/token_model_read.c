#include <string.h>

#include "frontend/text/token_reader.h"

enum { MOST_MERGES = 1 << 24 };

static bool add_piece(TokenReader *r, const char *place, const char *piece, size_t length, int32_t id)
{
    Subwords *model = &r->pipeline->model;
    if (length > TOKEN_LONGEST_PIECE) return reader_malformed(r, place, "a piece is longer than 1024 bytes");
    if (length && !trie_insert(&model->vocabulary, piece, length, id))
        return reader_malformed(r, place, "is too large");
    if (id >= model->size) model->size = id + 1;
    return true;
}

static bool read_vocabulary(TokenReader *r, json_t *model)
{
    static const char place[] = "model.vocab";
    json_t *vocabulary = json_object_get(model, "vocab"), *value;
    const char *piece;
    if (!json_is_object(vocabulary)) return reader_malformed(r, place, "is not an object");
    json_object_foreach(vocabulary, piece, value)
    {
        if (!reader_is_id(value))
            return reader_malformed(r, arena_format(&r->arena, "%s['%.40s']", place, piece), "is not an id");
        if (!add_piece(r, place, piece, strlen(piece), (int32_t)json_integer_value(value))) return false;
    }
    return true;
}

/* The id of a piece that a member names; -1 where the member is absent or null. */
static bool read_piece(TokenReader *r, json_t *model, const char *key, int32_t *id)
{
    json_t *value = json_object_get(model, key);
    *id = -1;
    if (!value || json_is_null(value)) return true;
    const char *piece = json_string_value(value), *place = reader_place(r, "model", key);
    if (!piece) return reader_malformed(r, place, "is not a text");
    *id = trie_find(&r->pipeline->model.vocabulary, piece, strlen(piece));
    return *id >= 0 || reader_malformed(r, place, "is not in the vocabulary");
}

static bool read_wordpiece(TokenReader *r, json_t *object)
{
    Subwords *model = &r->pipeline->model;
    json_t *prefix = json_object_get(object, "continuing_subword_prefix"),
           *most = json_object_get(object, "max_input_chars_per_word");
    const char *text = prefix ? json_string_value(prefix) : "##";
    model->kind = SUBWORDS_WORDPIECE;
    if (!reader_check_members(r, object, "model",
                              "type unk_token continuing_subword_prefix max_input_chars_per_word vocab") ||
        !read_vocabulary(r, object) || !read_piece(r, object, "unk_token", &model->unknown))
        return false;
    if (model->unknown < 0) return reader_malformed(r, "model.unk_token", "is missing");
    if (!text) return reader_malformed(r, "model.continuing_subword_prefix", "is not a text");
    if (most && (!json_is_integer(most) || json_integer_value(most) < 0))
        return reader_malformed(r, "model.max_input_chars_per_word", "is not a number");
    model->most_characters = most ? (size_t)json_integer_value(most) : 100;
    subwords_set_continuation(model, text);
    return true;
}

static void find_bytes(Subwords *model)
{
    for (int byte = 0; byte < 256; byte++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)byte);
        model->bytes[byte] = trie_find(&model->vocabulary, name, 6);
        if (model->bytes[byte] < 0) {
            model->bytes[0] = -1;
            return;
        }
    }
}

static bool read_merge(TokenReader *r, json_t *value, int32_t rank)
{
    Subwords *model = &r->pipeline->model;
    const char *left = json_string_value(value), *right;
    size_t left_length;
    if (left) {
        const char *blank = strchr(left, ' ');
        left_length = blank ? (size_t)(blank - left) : 0;
        right = blank ? blank + 1 : NULL;
    } else {
        left = json_string_value(json_array_get(value, 0));
        right = json_array_size(value) == 2 ? json_string_value(json_array_get(value, 1)) : NULL;
        left_length = left ? strlen(left) : 0;
    }
    size_t right_length = right ? strlen(right) : 0;
    if (!left || !right || left_length > TOKEN_LONGEST_PIECE || right_length > TOKEN_LONGEST_PIECE)
        return reader_malformed(r, arena_format(&r->arena, "model.merges[%d]", (int)rank), "is not a pair of pieces");
    char both[2 * TOKEN_LONGEST_PIECE + 1];
    memcpy(both, left, left_length);
    memcpy(both + left_length, right, right_length);
    int32_t first = trie_find(&model->vocabulary, left, left_length),
            second = trie_find(&model->vocabulary, right, right_length),
            joined = trie_find(&model->vocabulary, both, left_length + right_length);
    if (first < 0 || second < 0 || joined < 0)
        return reader_malformed(r, arena_format(&r->arena, "model.merges[%d]", (int)rank),
                                "has a piece that is not in the vocabulary");
    *subwords_merge(model, first, second) = (Merge){(uint64_t)(uint32_t)first << 32 | (uint32_t)second, rank, joined};
    return true;
}

static bool read_merges(TokenReader *r, json_t *object)
{
    Subwords *model = &r->pipeline->model;
    json_t *merges = json_object_get(object, "merges"), *merge;
    size_t count = json_array_size(merges), slots = 16, i;
    if (!json_is_array(merges) || count > MOST_MERGES)
        return reader_malformed(r, "model.merges", "is not a list of merges");
    while (slots < 2 * count) slots *= 2;
    model->merges = memory_resize(NULL, slots, sizeof *model->merges);
    model->merge_mask = slots - 1;
    for (i = 0; i < slots; i++) model->merges[i].pair = UINT64_MAX;
    json_array_foreach(merges, i, merge)
    {
        if (!read_merge(r, merge, (int32_t)i)) return false;
    }
    return true;
}

/* Refuses a member unless it is absent, null, empty or 0. */
static bool check_empty(TokenReader *r, json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    const char *text = json_string_value(value);
    bool nothing =
        !value || json_is_null(value) || (text && !*text) || (json_is_number(value) && json_number_value(value) == 0);
    return nothing || reader_unsupported(r, reader_place(r, "model", key), "this");
}

static bool read_bpe(TokenReader *r, json_t *object)
{
    Subwords *model = &r->pipeline->model;
    bool bytes;
    model->kind = SUBWORDS_BPE;
    if (!reader_check_members(
            r, object, "model",
            "type dropout unk_token continuing_subword_prefix end_of_word_suffix fuse_unk byte_fallback "
            "ignore_merges vocab merges") ||
        !check_empty(r, object, "dropout") || !check_empty(r, object, "continuing_subword_prefix") ||
        !check_empty(r, object, "end_of_word_suffix") ||
        !reader_bool(r, object, "model", "fuse_unk", false, &model->fuse_unknown) ||
        !reader_bool(r, object, "model", "byte_fallback", false, &bytes) ||
        !reader_bool(r, object, "model", "ignore_merges", false, &model->whole_first) || !read_vocabulary(r, object) ||
        !read_piece(r, object, "unk_token", &model->unknown))
        return false;
    if (bytes) find_bytes(model);
    return read_merges(r, object);
}

static bool read_unigram(TokenReader *r, json_t *object)
{
    Subwords *model = &r->pipeline->model;
    json_t *vocabulary = json_object_get(object, "vocab"), *entry, *unknown = json_object_get(object, "unk_id");
    size_t count = json_array_size(vocabulary), i;
    bool bytes;
    model->kind = SUBWORDS_UNIGRAM;
    if (!reader_check_members(r, object, "model", "type unk_id vocab byte_fallback") ||
        !reader_bool(r, object, "model", "byte_fallback", false, &bytes))
        return false;
    if (count == 0 || count > TOKEN_MOST_IDS) return reader_malformed(r, "model.vocab", "is not a list of pieces");
    model->scores = memory_resize(NULL, count, sizeof *model->scores);
    json_array_foreach(vocabulary, i, entry)
    {
        json_t *piece = json_array_get(entry, 0), *score = json_array_get(entry, 1);
        if (!json_is_string(piece) || !json_is_number(score))
            return reader_malformed(r, arena_format(&r->arena, "model.vocab[%zu]", i), "is not a piece with a score");
        model->scores[i] = json_number_value(score);
        if (i == 0 || model->scores[i] < model->least_score) model->least_score = model->scores[i];
        if (!add_piece(r, "model.vocab", json_string_value(piece), json_string_length(piece), (int32_t)i)) return false;
    }
    if (!reader_is_id(unknown) || (size_t)json_integer_value(unknown) >= count)
        return reader_malformed(r, "model.unk_id", "is not in the vocabulary");
    model->unknown = (int32_t)json_integer_value(unknown);
    if (bytes) find_bytes(model);
    return true;
}

bool token_model_read(TokenReader *r, json_t *root)
{
    json_t *object = json_object_get(root, "model");
    const char *type = reader_type(object);
    memset(r->pipeline->model.bytes, 0xff, sizeof r->pipeline->model.bytes);
    if (!json_is_object(object)) return reader_malformed(r, "model", "is missing");
    if (strcmp(type, "WordPiece") == 0) return read_wordpiece(r, object);
    if (strcmp(type, "BPE") == 0 || (!*type && json_object_get(object, "merges"))) return read_bpe(r, object);
    if (strcmp(type, "Unigram") == 0) return read_unigram(r, object);
    return reader_unsupported(r, "model.type", arena_format(&r->arena, "the model '%.40s'", type));
}
