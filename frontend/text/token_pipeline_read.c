/* Reading tokenizer.json. */
#include <string.h>

#include "base/parts.h"
#include "frontend/text/token_reader.h"

enum { MOST_STEPS = 64, MOST_NESTED = 8 };

/* ---- the normalizer ---- */

/* {"String": text} or {"Regex": expression}. */
static bool read_pattern(TokenReader *r, json_t *object, const char *place, Pattern **pattern)
{
    json_t *value = json_object_get(object, "pattern");
    const char *text = json_string_value(json_object_get(value, "String")),
               *regex = json_string_value(json_object_get(value, "Regex")), *there = reader_place(r, place, "pattern");
    char problem[PATTERN_PROBLEM];
    if (!text && !regex) return reader_malformed(r, there, "is neither a String nor a Regex");
    if (text && !*text) return reader_unsupported(r, there, "an empty text");
    *pattern = pattern_compile(text ? text : regex, text != NULL, problem);
    return *pattern ||
           reader_unsupported(
               r, there, arena_format(&r->arena, "the regular expression '%.80s' (%s)", text ? text : regex, problem));
}

static bool read_replace(TokenReader *r, json_t *object, const char *place, NormalizerStep *step)
{
    if (!reader_check_members(r, object, place, "type pattern content") ||
        !reader_text(r, object, place, "content", &step->content))
        return false;
    step->content_length = strlen(step->content);
    return read_pattern(r, object, place, &step->pattern);
}

static bool read_charsmap(TokenReader *r, json_t *object, const char *place, NormalizerStep *step)
{
    const char *text = json_string_value(json_object_get(object, "precompiled_charsmap"));
    if (!reader_check_members(r, object, place, "type precompiled_charsmap")) return false;
    step->map = text ? charsmap_read(text) : NULL;
    return step->map ||
           reader_malformed(r, reader_place(r, place, "precompiled_charsmap"), "is not a compiled table of characters");
}

static bool read_bert_normalizer(TokenReader *r, json_t *object, const char *place, NormalizerStep *step)
{
    return reader_check_members(r, object, place, "type clean_text handle_chinese_chars strip_accents lowercase") &&
           reader_bool(r, object, place, "clean_text", true, &step->clean) &&
           reader_bool(r, object, place, "handle_chinese_chars", true, &step->ideographs) &&
           reader_bool(r, object, place, "lowercase", true, &step->lowercase) &&
           reader_bool(r, object, place, "strip_accents", step->lowercase, &step->strip_accents);
}

static bool read_normalizer_step(TokenReader *r, json_t *object, const char *place, NormalizerStep *step)
{
    static const struct {
        const char *type;
        NormalizerKind kind;
    } kinds[] = {{"BertNormalizer", NORMALIZER_BERT}, {"NFD", NORMALIZER_NFD},
                 {"NFKD", NORMALIZER_NFKD},           {"NFC", NORMALIZER_NFC},
                 {"NFKC", NORMALIZER_NFKC},           {"Lowercase", NORMALIZER_LOWERCASE},
                 {"Strip", NORMALIZER_STRIP},         {"StripAccents", NORMALIZER_STRIP_ACCENTS},
                 {"Replace", NORMALIZER_REPLACE},     {"Prepend", NORMALIZER_PREPEND},
                 {"Precompiled", NORMALIZER_CHARSMAP}};
    const char *type = reader_type(object);
    size_t i = 0, count = sizeof kinds / sizeof *kinds;
    while (i < count && strcmp(kinds[i].type, type) != 0) i++;
    if (i == count) return reader_unsupported(r, place, arena_format(&r->arena, "the normalizer '%.40s'", type));
    step->kind = kinds[i].kind;
    switch (step->kind) {
    case NORMALIZER_BERT: return read_bert_normalizer(r, object, place, step);
    case NORMALIZER_REPLACE: return read_replace(r, object, place, step);
    case NORMALIZER_CHARSMAP: return read_charsmap(r, object, place, step);
    case NORMALIZER_STRIP:
        return reader_check_members(r, object, place, "type strip_left strip_right") &&
               reader_bool(r, object, place, "strip_left", true, &step->left) &&
               reader_bool(r, object, place, "strip_right", true, &step->right);
    case NORMALIZER_PREPEND:
        if (!reader_check_members(r, object, place, "type prepend") ||
            !reader_text(r, object, place, "prepend", &step->content))
            return false;
        step->content_length = strlen(step->content);
        return true;
    default: return reader_check_members(r, object, place, "type");
    }
}

typedef bool ReadStep(TokenReader *r, json_t *object, const char *place);

static bool add_normalizer(TokenReader *r, json_t *object, const char *place)
{
    Normalizer *normalizer = &r->pipeline->normalizer;
    if (normalizer->count == MOST_STEPS) return reader_unsupported(r, place, "a list so long");
    NormalizerStep *step = &normalizer->steps[normalizer->count++];
    return read_normalizer_step(r, object, place, step);
}

/* A step, or a Sequence of them, in the member `list`. */
static bool read_steps(TokenReader *r, json_t *object, const char *place, const char *list, ReadStep *read, int depth)
{
    if (!object || json_is_null(object)) return true;
    if (!json_is_object(object)) return reader_malformed(r, place, "is not an object");
    if (strcmp(reader_type(object), "Sequence") != 0) return read(r, object, place);
    json_t *steps = json_object_get(object, list), *step;
    const char *there = reader_place(r, place, list);
    if (!json_is_array(steps)) return reader_malformed(r, there, "is not a list");
    if (depth == MOST_NESTED) return reader_unsupported(r, there, "a list nested so deep");
    size_t i;
    json_array_foreach(steps, i, step)
    {
        if (!read_steps(r, step, arena_format(&r->arena, "%s[%zu]", there, i), list, read, depth + 1)) return false;
    }
    return reader_check_members(r, object, place, arena_format(&r->arena, "type %s", list));
}

/* ---- the pre-tokenizer ---- */

static bool read_metaspace(TokenReader *r, json_t *object, const char *place, PretokenizerStep *step)
{
    const char *scheme = json_string_value(json_object_get(object, "prepend_scheme"));
    bool prefix;
    if (!reader_check_members(r, object, place, "type replacement str_rep add_prefix_space prepend_scheme split") ||
        !reader_text(r, object, place, "replacement", &step->mark) ||
        !reader_bool(r, object, place, "add_prefix_space", true, &prefix) ||
        !reader_bool(r, object, place, "split", true, &step->split))
        return false;
    step->mark_length = strlen(step->mark);
    step->first = scheme && strcmp(scheme, "first") == 0;
    step->prefix = scheme ? step->first || strcmp(scheme, "always") == 0 : prefix;
    if (!step->mark_length) return reader_malformed(r, reader_place(r, place, "replacement"), "is empty");
    if (scheme && !step->prefix && strcmp(scheme, "never") != 0)
        return reader_unsupported(r, reader_place(r, place, "prepend_scheme"),
                                  arena_format(&r->arena, "'%.40s'", scheme));
    return true;
}

static bool read_behavior(TokenReader *r, json_t *object, const char *place, SplitBehavior *behavior)
{
    static const char *const behaviors[] = {[SPLIT_REMOVED] = "Removed",
                                            [SPLIT_ISOLATED] = "Isolated",
                                            [SPLIT_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
                                            [SPLIT_MERGED_WITH_NEXT] = "MergedWithNext",
                                            [SPLIT_CONTIGUOUS] = "Contiguous"};
    const char *name;
    if (!reader_text(r, object, place, "behavior", &name)) return false;
    int i = word_index(name, behaviors, sizeof behaviors / sizeof *behaviors);
    *behavior = (SplitBehavior)(i < 0 ? 0 : i);
    return i >= 0 ||
           reader_unsupported(r, reader_place(r, place, "behavior"), arena_format(&r->arena, "'%.40s'", name));
}

static bool read_split(TokenReader *r, json_t *object, const char *place, PretokenizerStep *step)
{
    return reader_check_members(r, object, place, "type pattern behavior invert") &&
           reader_bool(r, object, place, "invert", false, &step->invert) &&
           read_behavior(r, object, place, &step->behavior) && read_pattern(r, object, place, &step->pattern);
}

static bool read_byte_level(TokenReader *r, json_t *object, const char *place, PretokenizerStep *step)
{
    static const char words[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
    char problem[PATTERN_PROBLEM];
    bool offsets;
    if (!reader_check_members(r, object, place, "type add_prefix_space trim_offsets use_regex") ||
        !reader_bool(r, object, place, "trim_offsets", true, &offsets) ||
        !reader_bool(r, object, place, "add_prefix_space", true, &step->prefix) ||
        !reader_bool(r, object, place, "use_regex", true, &step->split))
        return false;
    if (step->split) step->pattern = pattern_compile(words, false, problem);
    return !step->split || step->pattern || reader_unsupported(r, place, problem);
}

static bool read_pretokenizer_step(TokenReader *r, json_t *object, const char *place, PretokenizerStep *step)
{
    const char *type = reader_type(object);
    if (strcmp(type, "Metaspace") == 0)
        return step->kind = PRETOKENIZER_METASPACE, read_metaspace(r, object, place, step);
    if (strcmp(type, "ByteLevel") == 0)
        return step->kind = PRETOKENIZER_BYTE_LEVEL, read_byte_level(r, object, place, step);
    if (strcmp(type, "Split") == 0) return step->kind = PRETOKENIZER_SPLIT, read_split(r, object, place, step);
    if (strcmp(type, "Digits") == 0) {
        step->kind = PRETOKENIZER_DIGITS;
        return reader_check_members(r, object, place, "type individual_digits") &&
               reader_bool(r, object, place, "individual_digits", false, &step->single);
    }
    if (strcmp(type, "Punctuation") == 0) {
        step->kind = PRETOKENIZER_PUNCTUATION;
        step->behavior = SPLIT_ISOLATED;
        return reader_check_members(r, object, place, "type behavior") &&
               (!json_object_get(object, "behavior") || read_behavior(r, object, place, &step->behavior)) &&
               ((step->behavior != SPLIT_MERGED_WITH_PREVIOUS && step->behavior != SPLIT_MERGED_WITH_NEXT) ||
                reader_unsupported(r, reader_place(r, place, "behavior"), "merging punctuation with words"));
    }
    if (strcmp(type, "BertPreTokenizer") == 0)
        step->kind = PRETOKENIZER_BERT;
    else if (strcmp(type, "WhitespaceSplit") == 0)
        step->kind = PRETOKENIZER_WHITESPACE_SPLIT;
    else if (strcmp(type, "Whitespace") == 0)
        step->kind = PRETOKENIZER_WHITESPACE;
    else
        return reader_unsupported(r, place, arena_format(&r->arena, "the pre-tokenizer '%.40s'", type));
    return reader_check_members(r, object, place, "type");
}

static bool add_pretokenizer(TokenReader *r, json_t *object, const char *place)
{
    Pretokenizer *pretokenizer = &r->pipeline->pretokenizer;
    if (pretokenizer->count == MOST_STEPS) return reader_unsupported(r, place, "a list so long");
    return read_pretokenizer_step(r, object, place, &pretokenizer->steps[pretokenizer->count++]);
}

/* ---- added tokens ---- */

static bool enter_added(TokenReader *r, const char *place, size_t number)
{
    TokenPipeline *pipeline = r->pipeline;
    const AddedToken *token = &pipeline->added[number];
    FREED_WITH(buffer_free) Buffer content = {0};
    buffer_append(&content, token->content, token->length);
    bool fits = !token->normalized || !normalizer_apply(&pipeline->normalizer, &content);
    Trie *trie = token->normalized ? &pipeline->normalized : &pipeline->written;
    bool ok = !fits || content.size == 0 || content.size > TOKEN_LONGEST_PIECE ||
              trie_find(trie, buffer_text(&content), content.size) >= 0 ||
              trie_insert(trie, buffer_text(&content), content.size, (int32_t)number);
    if (!fits || content.size > TOKEN_LONGEST_PIECE) ok = reader_malformed(r, place, "is longer than 1024 bytes");
    return ok;
}

static bool read_added(TokenReader *r, json_t *root)
{
    TokenPipeline *pipeline = r->pipeline;
    json_t *list = json_object_get(root, "added_tokens"), *object;
    size_t count = json_array_size(list), i;
    if (list && !json_is_array(list)) return reader_malformed(r, "added_tokens", "is not a list");
    pipeline->added = arena_new_array(&pipeline->arena, AddedToken, count + 1);
    json_array_foreach(list, i, object)
    {
        AddedToken *token = &pipeline->added[pipeline->added_count++];
        const char *place = arena_format(&r->arena, "added_tokens[%zu]", i);
        if (!json_is_object(object) || !reader_is_id(json_object_get(object, "id")))
            return reader_malformed(r, place, "has no id");
        if (!reader_check_members(r, object, place, "id content single_word lstrip rstrip normalized special") ||
            !reader_text(r, object, place, "content", &token->content) ||
            !reader_bool(r, object, place, "special", false, &token->special) ||
            !reader_bool(r, object, place, "single_word", false, &token->single_word) ||
            !reader_bool(r, object, place, "lstrip", false, &token->left) ||
            !reader_bool(r, object, place, "rstrip", false, &token->right) ||
            !reader_bool(r, object, place, "normalized", !token->special, &token->normalized))
            return false;
        token->id = (int32_t)json_integer_value(json_object_get(object, "id"));
        token->length = strlen(token->content);
        int32_t known = trie_find(&pipeline->model.vocabulary, token->content, token->length);
        if (token->length && known >= 0 && known != token->id)
            return reader_malformed(r, place, "has a different id in the vocabulary");
        if (token->id >= pipeline->model.size) pipeline->model.size = token->id + 1;
        if (!enter_added(r, place, i)) return false;
    }
    return true;
}

/* ---- frames ---- */

static void add_frame_piece(TokenFrame *frame, int text, int32_t id, int type)
{
    frame->pieces = memory_resize(frame->pieces, frame->count + 1, sizeof *frame->pieces);
    frame->pieces[frame->count++] = (FramePiece){text, id, type};
}

static int64_t type_id(json_t *object)
{
    json_t *value = json_object_get(object, "type_id");
    return reader_is_id(value) ? json_integer_value(value) : 0;
}

static bool read_template(TokenReader *r, json_t *object, const char *place, const char *key, TokenFrame *frame)
{
    json_t *list = json_object_get(object, key), *names = json_object_get(object, "special_tokens"), *piece;
    const char *there = reader_place(r, place, key);
    size_t i, j;
    int texts[2] = {0, 0};
    if (!json_is_array(list) || json_array_size(list) > MOST_STEPS)
        return reader_malformed(r, there, "is not a template");
    frame->count = 0;
    json_array_foreach(list, i, piece)
    {
        json_t *special = json_object_get(piece, "SpecialToken"), *text = json_object_get(piece, "Sequence");
        const char *name = json_string_value(json_object_get(special ? special : text, "id"));
        const char *here = arena_format(&r->arena, "%s[%zu]", there, i);
        if (!name) return reader_malformed(r, here, "is neither a text nor a token");
        if (text) {
            int which = strcmp(name, "B") == 0;
            if ((!which && strcmp(name, "A") != 0) || texts[which]++)
                return reader_malformed(r, here, "must be A or B, each at most once");
            add_frame_piece(frame, which, 0, (int)type_id(text));
            continue;
        }
        json_t *ids = json_object_get(json_object_get(names, name), "ids");
        if (!json_array_size(ids)) return reader_malformed(r, here, "names a token without ids");
        for (j = 0; j < json_array_size(ids); j++) {
            if (!reader_is_id(json_array_get(ids, j))) return reader_malformed(r, here, "names a token without ids");
            add_frame_piece(frame, -1, (int32_t)json_integer_value(json_array_get(ids, j)), (int)type_id(special));
        }
    }
    bool pair = strcmp(key, "pair") == 0;
    return (texts[0] && texts[1] == pair) || reader_malformed(r, there, "must contain each text exactly once");
}

/* [token, id], as BertProcessing and RobertaProcessing have it. */
static bool read_named_id(TokenReader *r, json_t *object, const char *place, const char *key, int32_t *id)
{
    json_t *value = json_array_get(json_object_get(object, key), 1);
    if (!reader_is_id(value)) return reader_malformed(r, reader_place(r, place, key), "is not a token with an id");
    *id = (int32_t)json_integer_value(value);
    return true;
}

static bool read_processing(TokenReader *r, json_t *object, const char *place, bool roberta)
{
    TokenFrame *frames = r->pipeline->frames;
    int32_t start = 0, end = 0;
    if (!reader_check_members(r, object, place, "type sep cls trim_offsets add_prefix_space") ||
        !read_named_id(r, object, place, "cls", &start) || !read_named_id(r, object, place, "sep", &end))
        return false;
    for (int pair = 0; pair < 2; pair++) {
        TokenFrame *frame = &frames[pair];
        frame->count = 0;
        add_frame_piece(frame, -1, start, 0);
        add_frame_piece(frame, 0, 0, 0);
        add_frame_piece(frame, -1, end, 0);
        if (!pair) continue;
        if (roberta) add_frame_piece(frame, -1, end, 0);
        add_frame_piece(frame, 1, 0, !roberta);
        add_frame_piece(frame, -1, end, !roberta);
    }
    return true;
}

static bool add_processor(TokenReader *r, json_t *object, const char *place)
{
    const char *type = reader_type(object);
    if (strcmp(type, "ByteLevel") == 0) return true; /* is about offsets */
    if (strcmp(type, "BertProcessing") == 0) return read_processing(r, object, place, false);
    if (strcmp(type, "RobertaProcessing") == 0) return read_processing(r, object, place, true);
    if (strcmp(type, "TemplateProcessing") == 0)
        return reader_check_members(r, object, place, "type single pair special_tokens") &&
               read_template(r, object, place, "single", &r->pipeline->frames[0]) &&
               read_template(r, object, place, "pair", &r->pipeline->frames[1]);
    return reader_unsupported(r, place, arena_format(&r->arena, "the post-processor '%.40s'", type));
}

static bool read_frames(TokenReader *r, json_t *root)
{
    TokenFrame *frames = r->pipeline->frames;
    for (int pair = 0; pair < 2; pair++) { /* without a processor: the texts alone */
        add_frame_piece(&frames[pair], 0, 0, 0);
        if (pair) add_frame_piece(&frames[pair], 1, 0, 1);
    }
    return read_steps(r, json_object_get(root, "post_processor"), "post_processor", "processors", add_processor, 0);
}

/* ---- the whole ---- */

static int32_t find_token(const TokenPipeline *pipeline, const char *const *names)
{
    for (; *names; names++) {
        for (size_t i = 0; i < pipeline->added_count; i++)
            if (strcmp(pipeline->added[i].content, *names) == 0) return pipeline->added[i].id;
        int32_t id = trie_find(&pipeline->model.vocabulary, *names, strlen(*names));
        if (id >= 0) return id;
    }
    return -1;
}

static bool check_direction(TokenReader *r, json_t *root, const char *key)
{
    const char *direction = json_string_value(json_object_get(json_object_get(root, key), "direction"));
    return !direction || strcmp(direction, "Right") == 0 ||
           reader_unsupported(r, reader_place(r, key, "direction"), arena_format(&r->arena, "'%.40s'", direction));
}

/* Which of a pair is cut: the library's default is LongestFirst. */
static bool read_strategy(TokenReader *r, json_t *root)
{
    static const struct {
        const char *name;
        FrameCut cut;
    } strategies[] = {
        {"LongestFirst", FRAME_CUT_HUGGING_FACE}, {"OnlyFirst", FRAME_CUT_FIRST}, {"OnlySecond", FRAME_CUT_SECOND}};
    const char *strategy = json_string_value(json_object_get(json_object_get(root, "truncation"), "strategy"));
    r->pipeline->cut = FRAME_CUT_HUGGING_FACE;
    if (!strategy) return true;
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        if (strcmp(strategy, strategies[i].name) != 0) continue;
        r->pipeline->cut = strategies[i].cut;
        return true;
    }
    return reader_unsupported(r, reader_place(r, "truncation", "strategy"),
                              arena_format(&r->arena, "'%.40s'", strategy));
}

static bool read_specials(TokenReader *r, json_t *root)
{
    static const char *const pads[] = {"[PAD]", "<pad>", NULL}, *const masks[] = {"[MASK]", "<mask>", NULL},
                             *const ends[] = {"<|end_of_text|>", "<|endoftext|>", "</s>", "<eos>", NULL};
    TokenPipeline *pipeline = r->pipeline;
    json_t *pad = json_object_get(json_object_get(root, "padding"), "pad_id");
    pipeline->mask = find_token(pipeline, masks);
    pipeline->pad = reader_is_id(pad) ? (int32_t)json_integer_value(pad) : find_token(pipeline, pads);
    if (pipeline->pad < 0) pipeline->pad = find_token(pipeline, ends); /* as for decoders, which have no padding */
    if (pipeline->pad < 0)
        diagnostics_warning(r->diagnostics, PLACE_FILE(r->path), NULL,
                            "has neither padding nor a token [PAD] or <pad>: rows are padded with 0");
    return check_direction(r, root, "padding") && check_direction(r, root, "truncation") && read_strategy(r, root);
}

static int hash_piece(const char *text, size_t size, void *hash)
{
    *(Hash *)hash = hash_extend(*(Hash *)hash, text, size);
    return 0;
}

/* Lengths, and how the file is written, change no id. */
static void hash_steps(TokenPipeline *pipeline, json_t *root)
{
    static const char *const aside[] = {"version", "truncation", "padding", "decoder"};
    for (size_t i = 0; i < sizeof aside / sizeof *aside; i++) json_object_del(root, aside[i]);
    pipeline->hash = hash_bytes("", 0);
    json_dump_callback(root, hash_piece, &pipeline->hash, JSON_COMPACT);
}

bool token_pipeline_read(TokenPipeline *pipeline, const char *path, Diagnostics *diagnostics)
{
    TokenReader r = {.pipeline = pipeline, .path = path, .diagnostics = diagnostics};
    json_t *root = json_read(path, diagnostics);
    if (!root) return false;
    pipeline->normalizer.steps = memory_allocate(MOST_STEPS * sizeof *pipeline->normalizer.steps);
    pipeline->pretokenizer.steps = memory_allocate(MOST_STEPS * sizeof *pipeline->pretokenizer.steps);
    bool ok = json_is_object(root) || reader_malformed(&r, "the document", "is not an object");
    ok =
        ok &&
        reader_check_members(&r, root, "",
                             "version truncation padding added_tokens normalizer pre_tokenizer post_processor decoder "
                             "model") &&
        read_steps(&r, json_object_get(root, "normalizer"), "normalizer", "normalizers", add_normalizer, 0) &&
        read_steps(&r, json_object_get(root, "pre_tokenizer"), "pre_tokenizer", "pretokenizers", add_pretokenizer, 0) &&
        token_model_read(&r, root) && read_added(&r, root) && read_frames(&r, root) && read_specials(&r, root);
    if (ok) hash_steps(pipeline, root);
    json_decref(root);
    arena_free(&r.arena);
    return ok;
}
