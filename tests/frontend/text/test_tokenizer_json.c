/* Tokenizers of tokenizer.json: the ids are those that Hugging Face's library gave (make_tokenizers.py). */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>

#include "base/buffer.h"
#include "base/file.h"
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
    for (int i = 0; i < 2 && texts[i]; i++) assert_true(tokenizer_encode(tokenizer, texts[i], lengths[i], &encoded[i]));
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
    char *shown = json_dumps(entry, JSON_ENSURE_ASCII);
    Buffer given = {0};
    for (size_t i = 0; i < count; i++) buffer_print(&given, " %d", ids[i]);
    print_error("%s: %s\n    given:%s\n", family, shown, buffer_text(&given));
    free(shown);
    buffer_free(&given);
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
    refuses("[]", EXIT_BAD_INPUT, "the document: is no object");
    refuses("{}", EXIT_BAD_INPUT, "model: is missing");
    refuses("{\"model\": {\"type\": \"WordLevel\"}}", EXIT_UNSUPPORTED_OPERATOR,
            "model.type: the model 'WordLevel' is not");
    refuses("{\"more\": 1, " MODEL "}", EXIT_UNSUPPORTED_OPERATOR, "more: this member is not supported");
    refuses(
        "{\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}, {\"type\": \"Nmt\"}]}, " MODEL
        "}",
        EXIT_UNSUPPORTED_OPERATOR, "normalizer.normalizers[1]: the normalizer 'Nmt' is not supported");
    refuses("{\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"Regex\": \"a|b\"}, \"content\": \"\"}, " MODEL
            "}",
            EXIT_UNSUPPORTED_OPERATOR, "normalizer.pattern: the regular expression 'a|b' is not supported");
    refuses("{\"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"AAA\"}, " MODEL "}",
            EXIT_BAD_INPUT, "normalizer.precompiled_charsmap: is no compiled table");
    refuses("{\"pre_tokenizer\": {\"type\": \"Split\"}, " MODEL "}", EXIT_UNSUPPORTED_OPERATOR,
            "pre_tokenizer: the pre-tokenizer 'Split' is not supported");
    refuses(
        "{\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"first\"}, " MODEL
        "}",
        EXIT_UNSUPPORTED_OPERATOR, "pre_tokenizer.prepend_scheme: 'first' is not supported");
    refuses("{\"post_processor\": {\"type\": \"X\"}, " MODEL "}", EXIT_UNSUPPORTED_OPERATOR,
            "post_processor: the post-");
    refuses("{\"truncation\": {\"direction\": \"Left\"}, " MODEL "}", EXIT_UNSUPPORTED_OPERATOR,
            "truncation.direction: 'Left'");
    refuses("{\"model\": {\"type\": \"BPE\", \"dropout\": 0.1, \"vocab\": {}, \"merges\": []}}",
            EXIT_UNSUPPORTED_OPERATOR, "model.dropout: this is not supported");
    refuses("{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"a a\"]}}", EXIT_BAD_INPUT,
            "model.merges[0]: has a piece that is not in the vocabulary");
    refuses("{\"model\": {\"type\": \"Unigram\", \"unk_id\": 1, \"vocab\": [[\"a\", -1]]}}", EXIT_BAD_INPUT,
            "model.unk_id");
    refuses("{\"added_tokens\": [{\"id\": 0, \"content\": \"a\"}], " MODEL "}", EXIT_BAD_INPUT,
            "added_tokens[0]: has another id than the piece");
}

int main(void)
{
#define FAMILY(name)                                                                                                   \
    {                                                                                                                  \
        "the ids of " name, family_has_the_librarys_ids, NULL, NULL, (void *)(name)                                    \
    }
    const struct CMUnitTest tests[] = {
        FAMILY("bert"),       FAMILY("bert-cased"),
        FAMILY("mpnet"),      FAMILY("roberta"),
        FAMILY("modernbert"), FAMILY("xlm-r"),
        FAMILY("camembert"),  FAMILY("albert"),
        FAMILY("deberta-v3"), cmocka_unit_test(what_is_not_there_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
