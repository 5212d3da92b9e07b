/* Tokenizers of tokenizer.json: the ids are those that Hugging Face's library gave (make_tokenizers.py). */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>

#include "base/buffer.h"
#include "frontend/text/table.h"
#include "frontend/text/tokenizer.h"
#include "tests/common/command.h"
#include "tests/common/scratch.h"

#define DATA SKY_TEST_DATA "/tokenizers"
#define ROWS SKY_TEST_DATA "/../../models/glue/mnli-dev-matched-num.tsv.xz"

enum { LONGEST = 4096 };

static int32_t ids[LONGEST], mask[LONGEST], types[LONGEST];

/* An unpacked file. */
static Scratch unpack(const char *path)
{
    Scratch file = scratch_text("");
    must_run("xz -dc '%s' > '%s'", path, file.path);
    return file;
}

static Tokenizer *open_family(const char *family)
{
    char path[512];
    snprintf(path, sizeof path, DATA "/%s.json.xz", family);
    Scratch file = unpack(path);
    Diagnostics diagnostics = {0};
    Tokenizer *tokenizer = tokenizer_open_json(file.path, &diagnostics);
    if (!tokenizer) {
        char *messages = diagnostics_text(&diagnostics);
        fail_msg("%s: %s", family, messages);
    }
    diagnostics_free(&diagnostics);
    unlink(file.path);
    return tokenizer;
}

static size_t encode(Tokenizer *tokenizer, const char *texts[2], const size_t lengths[2], size_t most)
{
    TokenIds encoded[2] = {{0}, {0}};
    for (int i = 0; i < 2 && texts[i]; i++) assert_null(tokenizer_encode(tokenizer, texts[i], lengths[i], &encoded[i]));
    const TokenRow row = {.ids = ids, .mask = mask, .types = types, .length = most};
    bool cut;
    size_t count = tokenizer_frame(tokenizer, encoded, texts[1] != NULL, &row, &cut);
    free(encoded[0].items), free(encoded[1].items);
    return count;
}

static bool same(const json_t *list, const int32_t *items, size_t count)
{
    if (json_array_size(list) != count) return false;
    for (size_t i = 0; i < count; i++)
        if (json_integer_value(json_array_get(list, i)) != items[i]) return false;
    return true;
}

/* One text, or a pair that is cut. */
static bool check_case(Tokenizer *tokenizer, const char *family, const json_t *entry)
{
    const json_t *text = json_object_get(entry, "text"), *pair = json_object_get(entry, "pair");
    const char *texts[2] = {json_string_value(text), pair ? json_string_value(pair) : NULL};
    const size_t lengths[2] = {json_string_length(text), pair ? json_string_length(pair) : 0};
    size_t most = pair ? (size_t)json_integer_value(json_object_get(entry, "most")) : LONGEST;
    size_t count = encode(tokenizer, texts, lengths, most);
    const json_t *wanted = json_object_get(entry, "types");
    if (same(json_object_get(entry, "ids"), ids, count) && (!wanted || same(wanted, types, count))) return true;
    FREED char *shown = json_dumps(entry, JSON_ENSURE_ASCII);
    FREED_WITH(buffer_free) Buffer given = {0};
    for (size_t i = 0; i < count; i++) buffer_print(&given, " %d", ids[i]);
    print_error("%s: %s\n    given:%s\n", family, shown, buffer_text(&given));
    return false;
}

static uint64_t hash_row(uint64_t hash, size_t count)
{
    for (size_t i = 0; i <= count; i++) {
        uint32_t value = i ? (uint32_t)ids[i - 1] : (uint32_t)count;
        for (int shift = 0; shift < 32; shift += 8) hash = (hash ^ (value >> shift & 255)) * 0x100000001b3u;
    }
    return hash;
}

/* All sample pairs, by the hashes of every hundred. Returns how many hundreds differ. */
static int check_rows(Tokenizer *tokenizer, const char *family, const json_t *entry)
{
    static const uint64_t start = 0xcbf29ce484222325u;
    Scratch table = unpack(ROWS);
    TableReader reader;
    Diagnostics diagnostics = {0};
    assert_true(table_open(&reader, table.path, TABLE_TSV, &diagnostics));
    assert_true(table_next(&reader));
    size_t rows = 0, hundred = 0;
    int wrong = 0;
    uint64_t hash = start;
    for (bool more = table_next(&reader); more;) {
        const char *texts[2] = {reader.fields[1].text, reader.fields[2].text};
        const size_t lengths[2] = {reader.fields[1].length, reader.fields[2].length};
        hash = hash_row(hash, encode(tokenizer, texts, lengths, LONGEST));
        more = table_next(&reader);
        if (++rows % 100 && more) continue;
        char text[17];
        snprintf(text, sizeof text, "%016llx", (unsigned long long)hash);
        const char *wanted = json_string_value(json_array_get(json_object_get(entry, "hashes"), hundred++));
        wrong += !wanted || strcmp(text, wanted) != 0;
        hash = start;
    }
    assert_int_equal(rows, json_integer_value(json_object_get(entry, "rows")));
    if (wrong) print_error("%s: of %zu hundreds of sample rows %d differ\n", family, hundred, wrong);
    table_close(&reader);
    unlink(table.path);
    return wrong;
}

static void check_family(const char *family)
{
    char path[512];
    snprintf(path, sizeof path, DATA "/%s.golden.xz", family);
    Scratch golden = unpack(path);
    Tokenizer *tokenizer = open_family(family);
    FILE *file = fopen(golden.path, "r");
    int cases = 0, wrong = 0, sets = 0;
    for (json_t *entry; (entry = json_loadf(file, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, NULL)); json_decref(entry)) {
        bool rows = json_object_get(entry, "rows") != NULL;
        wrong += rows ? check_rows(tokenizer, family, entry) : !check_case(tokenizer, family, entry);
        cases += !rows, sets += rows;
    }
    fclose(file);
    assert_true(cases > 600);
    assert_int_equal(sets, 1);
    if (wrong) fail_msg("%s: %d of %d cases differ", family, wrong, cases);
    tokenizer_free(tokenizer);
    unlink(golden.path);
}

static void family_has_the_librarys_ids(void **state) { check_family(*state); }

static void refuses(const char *text, int exit_code, const char *expected)
{
    Scratch file = scratch_text(text);
    Diagnostics diagnostics = {0};
    assert_null(tokenizer_open_json(file.path, &diagnostics));
    expect_complaint(&diagnostics, exit_code, expected);
    unlink(file.path);
}

#define MODEL "\"model\": {\"type\": \"WordPiece\", \"unk_token\": \"u\", \"vocab\": {\"u\": 0, \"a\": 1}}"

static void what_is_not_there_is_named(void **state)
{
    (void)state;
    refuses("{", EXIT_BAD_INPUT, "not valid JSON");
    refuses("[]", EXIT_BAD_INPUT, "the document: is not an object");
    refuses("{}", EXIT_BAD_INPUT, "model: is missing");
    refuses("{\"model\": {\"type\": \"WordLevel\"}}", EXIT_UNSUPPORTED_OPERATOR,
            "model.type: the model 'WordLevel' is not");
    refuses("{\"more\": 1, " MODEL "}", EXIT_UNSUPPORTED_OPERATOR, "more: this member is not supported");
    refuses(
        "{\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}, {\"type\": \"Nmt\"}]}, " MODEL
        "}",
        EXIT_UNSUPPORTED_OPERATOR, "normalizer.normalizers[1]: the normalizer 'Nmt' is not supported");
    refuses("{\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"Regex\": \"a|(b\"}, \"content\": \"\"}, " MODEL
            "}",
            EXIT_UNSUPPORTED_OPERATOR,
            "normalizer.pattern: the regular expression 'a|(b' (missing closing parenthesis) is");
    refuses("{\"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"AAA\"}, " MODEL "}",
            EXIT_BAD_INPUT, "normalizer.precompiled_charsmap: is not a compiled table");
    refuses("{\"pre_tokenizer\": {\"type\": \"FixedLength\"}, " MODEL "}", EXIT_UNSUPPORTED_OPERATOR,
            "pre_tokenizer: the pre-tokenizer 'FixedLength' is not supported");
    refuses("{\"pre_tokenizer\": {\"type\": \"Split\", \"behavior\": \"Mixed\"}, " MODEL "}", EXIT_UNSUPPORTED_OPERATOR,
            "pre_tokenizer.behavior: 'Mixed' is not supported");
    refuses("{\"pre_tokenizer\": {\"type\": \"Split\", \"behavior\": \"Removed\"}, " MODEL "}", EXIT_BAD_INPUT,
            "pre_tokenizer.pattern: is neither a String nor a Regex");
    refuses(
        "{\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"middle\"}, " MODEL
        "}",
        EXIT_UNSUPPORTED_OPERATOR, "pre_tokenizer.prepend_scheme: 'middle' is not supported");
    refuses("{\"post_processor\": {\"type\": \"X\"}, " MODEL "}", EXIT_UNSUPPORTED_OPERATOR,
            "post_processor: the post-");
    refuses("{\"truncation\": {\"strategy\": \"DoNotTruncate\"}, " MODEL "}", EXIT_UNSUPPORTED_OPERATOR,
            "truncation.strategy: 'DoNotTruncate'");
    refuses("{\"truncation\": {\"direction\": \"Left\"}, " MODEL "}", EXIT_UNSUPPORTED_OPERATOR,
            "truncation.direction: 'Left'");
    refuses("{\"model\": {\"type\": \"BPE\", \"dropout\": 0.1, \"vocab\": {}, \"merges\": []}}",
            EXIT_UNSUPPORTED_OPERATOR, "model.dropout: this is not supported");
    refuses("{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"a a\"]}}", EXIT_BAD_INPUT,
            "model.merges[0]: has a piece that is not in the vocabulary");
    refuses("{\"model\": {\"type\": \"Unigram\", \"unk_id\": 1, \"vocab\": [[\"a\", -1]]}}", EXIT_BAD_INPUT,
            "model.unk_id");
    refuses("{\"added_tokens\": [{\"id\": 0, \"content\": \"a\"}], " MODEL "}", EXIT_BAD_INPUT,
            "added_tokens[0]: has a different id in the vocabulary");
}

static Tokenizer *open_text(const char *text)
{
    Scratch file = scratch_text(text);
    Diagnostics diagnostics = {0};
    Tokenizer *tokenizer = tokenizer_open_json(file.path, &diagnostics);
    assert_non_null(tokenizer);
    diagnostics_free(&diagnostics);
    unlink(file.path);
    return tokenizer;
}

static void expect_ids(Tokenizer *tokenizer, const char *text, size_t count, const int32_t *wanted)
{
    TokenIds encoded = {0};
    assert_null(tokenizer_encode(tokenizer, text, strlen(text), &encoded));
    assert_int_equal(encoded.count, count);
    assert_memory_equal(encoded.items, wanted, count * sizeof *wanted);
    free(encoded.items);
}

/* `count` times the same step, in a Sequence. */
static char *sequence_of(const char *stage, const char *list, const char *step, int count, const char *further)
{
    Buffer text = {0};
    buffer_print(&text, "{\"%s\": {\"type\": \"Sequence\", \"%s\": [", stage, list);
    for (int i = 0; i < count; i++) buffer_print(&text, "%s%s", i ? ", " : "", step);
    buffer_print(&text, "]}, %s%s}", further, MODEL);
    return text.bytes;
}

/* Rules that each multiply what the one before made take no more memory than 64 times the text. */
static void growth_is_bounded(void **state)
{
    (void)state;
    static const struct {
        const char *stage, *list, *step;
    } cases[] = {{"normalizer", "normalizers",
                  "{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, \"content\": \"aaaaaaaaaaaaaaaa\"}"},
                 {"normalizer", "normalizers",
                  "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"\\\\s{1,}\"}, \"content\": \" a a a a a \"}"},
                 {"pre_tokenizer", "pretokenizers",
                  "{\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"use_regex\": false}"}};
    static const char words[] = "a a \xc3\xa4 \xf0\x9f\x98\x80 a a";
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int few = 0; few < 2; few++) {
            FREED char *text = sequence_of(cases[c].stage, cases[c].list, cases[c].step, few ? 1 : 40, "");
            Tokenizer *tokenizer = open_text(text);
            TokenIds encoded = {0};
            const char *problem = tokenizer_encode(tokenizer, words, strlen(words), &encoded);
            if (few)
                assert_null(problem);
            else
                assert_string_equal(problem, "becomes more than 64 times as long by the rules of the tokenizer");
            free(encoded.items);
            tokenizer_free(tokenizer);
        }
    /* Prepended anew between any two added tokens; and an added token that is itself normalised. */
    char prepend[2200] = "{\"type\": \"Prepend\", \"prepend\": \"", a[6000] = "";
    memset(prepend + strlen(prepend), 'x', 2000);
    strcat(prepend, "\"}");
    for (int i = 0; i < 1000; i++) strcat(a, "a<s>");
    char *text = sequence_of("normalizer", "normalizers", prepend, 1,
                             "\"added_tokens\": [{\"id\": 9, \"content\": \"<s>\", \"special\": true}], ");
    Tokenizer *tokenizer = open_text(text);
    TokenIds encoded = {0};
    assert_non_null(tokenizer_encode(tokenizer, a, strlen(a), &encoded));
    free(encoded.items);
    tokenizer_free(tokenizer);
    free(text);
    text = sequence_of("normalizer", "normalizers", cases[0].step, 40,
                       "\"added_tokens\": [{\"id\": 9, \"content\": \"ab\", \"normalized\": true}], ");
    refuses(text, EXIT_BAD_INPUT, "added_tokens[0]: is longer than 1024 bytes");
    free(text);
}

/* An unknown character costs 10 more than the least likely piece, here -3: as the end of "ab" it is worth 10 and no
 * more. The library's ids. */
static void unknown_characters_cost_ten_more_than_the_least_piece(void **state)
{
    (void)state;
    static const char *const worth[] = {"9.9", "10.1"};
    static const int32_t whole[] = {1}, parts[] = {0, 2};
    for (int i = 0; i < 2; i++) {
        char text[256];
        snprintf(
            text, sizeof text,
            "{\"model\": {\"type\": \"Unigram\", \"unk_id\": 0, \"vocab\": [[\"u\", 0], [\"ab\", -3], [\"b\", %s]]}}",
            worth[i]);
        Tokenizer *tokenizer = open_text(text);
        expect_ids(tokenizer, "ab", i ? 2 : 1, i ? parts : whole);
        tokenizer_free(tokenizer);
    }
}

/* The library's tables are older than the decomposition of U+32FF (U+4EE4 U+548C). U+32FE has always had one. */
static void younger_decompositions_are_the_librarys(void **state)
{
    (void)state;
    static const char *const forms[] = {"NFKC", "NFKD"};
    static const int32_t itself[] = {1}, decomposed[] = {3};
    for (int i = 0; i < 2; i++) {
        char text[320];
        snprintf(text, sizeof text,
                 "{\"normalizer\": {\"type\": \"%s\"}, \"model\": {\"type\": \"WordPiece\", \"unk_token\": \"u\", "
                 "\"vocab\": {\"u\": 0, \"\u32ff\": 1, \"\u4ee4\u548c\": 2, \"\u30f2\": 3}}}",
                 forms[i]);
        Tokenizer *tokenizer = open_text(text);
        expect_ids(tokenizer, "\u32ff", 1, itself);
        expect_ids(tokenizer, "\u32fe", 1, decomposed);
        tokenizer_free(tokenizer);
    }
}

/* As the library cuts them, which refuses the last case. */
static void pairs_are_cut_as_the_file_says(void **state)
{
    (void)state;
    static const struct {
        const char *strategy;
        size_t lengths[2], room, wanted[2];
    } cases[] = {
        {"LongestFirst", {6, 3}, 7, {4, 3}}, {"OnlyFirst", {6, 3}, 7, {4, 3}}, {"OnlySecond", {6, 3}, 7, {6, 1}},
        {"LongestFirst", {3, 6}, 7, {3, 4}}, {"OnlyFirst", {3, 6}, 7, {1, 6}}, {"OnlySecond", {3, 6}, 7, {3, 4}},
        {"OnlyFirst", {3, 6}, 6, {3, 3}}, /* the first alone is not enough */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        snprintf(
            text, sizeof text,
            "{\"truncation\": {\"strategy\": \"%s\"}, \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1}, "
            "\"merges\": []}}",
            cases[i].strategy);
        Tokenizer *tokenizer = open_text(text);
        const char *texts[2] = {"aaaaaa", "bbbbbb"};
        size_t count = encode(tokenizer, texts, cases[i].lengths, cases[i].room), seen[2] = {0, 0};
        for (size_t k = 0; k < count; k++) seen[ids[k]]++;
        assert_int_equal(seen[0], cases[i].wanted[0]);
        assert_int_equal(seen[1], cases[i].wanted[1]);
        tokenizer_free(tokenizer);
    }
}

static void pieces_have_their_names(void **state)
{
    (void)state;
    Tokenizer *tokenizer =
        open_text("{\"added_tokens\": [{\"id\": 3, \"content\": \"<mask>\"}], \"model\": {\"type\": \"BPE\", "
                  "\"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [\"a b\"]}}");
    static const char *const names[] = {"a", "b", "ab", "<mask>", NULL};
    for (int32_t id = -1; id < 5; id++) {
        FREED_WITH(buffer_free) Buffer name = {0};
        const char *wanted = id < 0 ? NULL : names[id];
        assert_int_equal(tokenizer_piece(tokenizer, id, &name), wanted != NULL);
        if (wanted) assert_string_equal(buffer_text(&name), wanted);
    }
    tokenizer_free(tokenizer);
}

int main(void)
{
#define FAMILY(name)                                                                                                   \
    {                                                                                                                  \
        "the ids of " name, family_has_the_librarys_ids, NULL, NULL, (void *)(name)                                    \
    }
    const struct CMUnitTest tests[] = {
        FAMILY("bert"),
        FAMILY("bert-cased"),
        FAMILY("mpnet"),
        FAMILY("roberta"),
        FAMILY("modernbert"),
        FAMILY("xlm-r"),
        FAMILY("camembert"),
        FAMILY("albert"),
        FAMILY("deberta-v3"),
        cmocka_unit_test(growth_is_bounded),
        cmocka_unit_test(what_is_not_there_is_named),
        cmocka_unit_test(unknown_characters_cost_ten_more_than_the_least_piece),
        cmocka_unit_test(younger_decompositions_are_the_librarys),
        cmocka_unit_test(pairs_are_cut_as_the_file_says),
        cmocka_unit_test(pieces_have_their_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
