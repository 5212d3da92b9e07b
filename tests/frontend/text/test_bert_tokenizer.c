#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>

#include "base/buffer.h"
#include "frontend/text/bert_tokenizer.h"
#include "tests/common/scratch.h"

#define VOCABULARY SKY_TEST_DATA "/../../models/glue/bert-base-uncased-vocab.txt"

static BertTokenizer *open_vocabulary(bool lowercase)
{
    Diagnostics diagnostics = {0};
    BertTokenizer *tokenizer = bert_tokenizer_open(VOCABULARY, lowercase, &diagnostics);
    assert_non_null(tokenizer);
    return tokenizer;
}

/* The pieces of `text`, joined by spaces; free it. */
static char *pieces_of(BertTokenizer *tokenizer, const char *text, size_t length)
{
    TokenIds ids = {0};
    Buffer pieces = {0};
    assert_true(bert_tokenizer_encode(tokenizer, text, length, &ids));
    for (size_t i = 0; i < ids.count; i++)
        buffer_print(&pieces, "%s%s", i ? " " : "", bert_tokenizer_piece(tokenizer, ids.items[i]));
    free(ids.items);
    buffer_append(&pieces, "", 0);
    return pieces.bytes;
}

static void expect_pieces(BertTokenizer *tokenizer, const char *text, const char *expected)
{
    FREED char *pieces = pieces_of(tokenizer, text, strlen(text));
    assert_string_equal(pieces, expected);
}

/* `expected` is a JSON list of pieces. */
static void expect_list(BertTokenizer *tokenizer, const json_t *text, const json_t *expected)
{
    FREED_WITH(buffer_free) Buffer joined = {0};
    size_t i;
    json_t *piece;
    buffer_append(&joined, "", 0);
    json_array_foreach((json_t *)expected, i, piece)
        buffer_print(&joined, "%s%s", i ? " " : "", json_string_value(piece));
    FREED char *pieces = pieces_of(tokenizer, json_string_value(text), json_string_length(text));
    assert_string_equal(pieces, joined.bytes);
}

/* A tokenizer whose vocabulary is the given JSON list. */
static BertTokenizer *open_list(const json_t *vocabulary, bool lowercase)
{
    FREED_WITH(buffer_free) Buffer lines = {0};
    size_t i;
    json_t *piece;
    json_array_foreach((json_t *)vocabulary, i, piece) buffer_print(&lines, "%s\n", json_string_value(piece));
    Scratch file = scratch_file(lines.bytes, lines.size);
    Diagnostics diagnostics = {0};
    BertTokenizer *tokenizer = bert_tokenizer_open(file.path, lowercase, &diagnostics);
    assert_non_null(tokenizer);
    unlink(file.path);
    return tokenizer;
}

static void the_reference_tokenizers_own_tests_pass(void **state)
{
    (void)state;
    json_t *root = json_load_file(SKY_TEST_DATA "/glue/google-bert-unit-vectors.json", 0, NULL);
    assert_non_null(root);
    BertTokenizer *tokenizer = open_list(json_object_get(root, "vocab"), true);
    size_t i;
    json_t *entry;
    json_array_foreach(json_object_get(root, "full"), i, entry)
    {
        expect_list(tokenizer, json_object_get(entry, "text"), json_object_get(entry, "tokens"));
        TokenIds ids = {0};
        const char *text = json_string_value(json_object_get(entry, "text"));
        assert_true(bert_tokenizer_encode(tokenizer, text, strlen(text), &ids));
        const json_t *expected = json_object_get(entry, "ids");
        assert_int_equal(ids.count, json_array_size(expected));
        for (size_t j = 0; j < ids.count; j++)
            assert_int_equal(ids.items[j], json_integer_value(json_array_get(expected, j)));
        free(ids.items);
    }
    bert_tokenizer_free(tokenizer);
    /* WordPiece alone has no lowercase: capitals stay. */
    tokenizer = open_list(json_object_get(root, "vocab"), false);
    json_array_foreach(json_object_get(root, "wordpiece"), i, entry)
        expect_list(tokenizer, json_object_get(entry, "text"), json_object_get(entry, "tokens"));
    bert_tokenizer_free(tokenizer);
    json_decref(root);
}

/* Basic tokenization shows through a vocabulary that holds every expected word whole. */
static void basic_tokenization_is_the_references(void **state)
{
    (void)state;
    json_t *root = json_load_file(SKY_TEST_DATA "/glue/google-bert-unit-vectors.json", 0, NULL);
    static const char *const keys[] = {"basic_no_lower", "basic_lower"};
    for (int lowercase = 0; lowercase < 2; lowercase++) {
        size_t i;
        json_t *entry;
        json_array_foreach(json_object_get(root, keys[lowercase]), i, entry)
        {
            json_t *vocabulary = json_pack("[sss]", "[UNK]", "[CLS]", "[SEP]");
            json_array_extend(vocabulary, json_object_get(entry, "tokens"));
            BertTokenizer *tokenizer = open_list(vocabulary, lowercase);
            expect_list(tokenizer, json_object_get(entry, "text"), json_object_get(entry, "tokens"));
            bert_tokenizer_free(tokenizer);
            json_decref(vocabulary);
        }
    }
    json_decref(root);
}

static void odd_texts_give_the_references_ids(void **state)
{
    (void)state;
    BertTokenizer *tokenizer = open_vocabulary(true);
    FILE *file = fopen(SKY_TEST_DATA "/glue/tokenizer-nasty.jsonl", "r");
    assert_non_null(file);
    int lines = 0;
    for (json_t *entry; (entry = json_loadf(file, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, NULL)); lines++) {
        const json_t *text = json_object_get(entry, "text"), *expected = json_object_get(entry, "google_ids");
        TokenIds ids = {0};
        assert_true(bert_tokenizer_encode(tokenizer, json_string_value(text), json_string_length(text), &ids));
        assert_int_equal(ids.count, json_array_size(expected));
        for (size_t i = 0; i < ids.count; i++)
            assert_int_equal(ids.items[i], json_integer_value(json_array_get(expected, i)));
        free(ids.items);
        json_decref(entry);
    }
    assert_int_equal(lines, 13);
    fclose(file);
    bert_tokenizer_free(tokenizer);
}

static void unicode_is_treated_as_the_reference_does(void **state)
{
    (void)state;
    BertTokenizer *tokenizer = open_vocabulary(true);
    /* A capital sigma is final only at the end of a word: after a letter, before none, without counting marks. */
    expect_pieces(tokenizer, "\u03a3", "\u03c3");
    char *final = pieces_of(tokenizer, "\u039f\u03a3", 4), *written = pieces_of(tokenizer, "\u03bf\u03c2", 4);
    assert_string_equal(final, written);
    free(final), free(written);
    final = pieces_of(tokenizer, "\u039f\u03a3\u0391", 6), written = pieces_of(tokenizer, "\u03bf\u03c3\u03b1", 6);
    assert_string_equal(final, written);
    free(final), free(written);
    final = pieces_of(tokenizer, "\u039f\u03a3'", 5), written = pieces_of(tokenizer, "\u03bf\u03c2'", 5);
    assert_string_equal(final, written);
    free(final), free(written);
    expect_pieces(tokenizer, "a\u2028b\u00a0c\u3000d", "a b c d"); /* separators */
    expect_pieces(tokenizer, "a\u200bb\u00ad", "ab");              /* format characters vanish */
    expect_pieces(tokenizer, "\u0301", "");                        /* a mark alone leaves no word */
    expect_pieces(tokenizer, "a\u3002b\u2014c", "a \u3002 b \u2014 c");
    expect_pieces(tokenizer, "\xf0\x9f\x98\x80", "[UNK]");
    expect_pieces(tokenizer, "[MASK]", "[ mask ]");
    bert_tokenizer_free(tokenizer);
    tokenizer = open_vocabulary(false);
    expect_pieces(tokenizer, "Hello", "[UNK]"); /* no capitals in this vocabulary */
    bert_tokenizer_free(tokenizer);
}

static void words_of_more_than_200_characters_are_unknown(void **state)
{
    (void)state;
    BertTokenizer *tokenizer = open_vocabulary(true);
    char word[402];
    memset(word, 'a', 201);
    word[200] = '\0';
    char *pieces = pieces_of(tokenizer, word, 200);
    assert_null(strstr(pieces, "[UNK]"));
    free(pieces);
    word[200] = 'a', word[201] = '\0';
    expect_pieces(tokenizer, word, "[UNK]");
    /* It is characters that count, after accents are gone. */
    for (int i = 0; i < 200; i++) memcpy(word + 2 * i, "\u00e9", 2);
    pieces = pieces_of(tokenizer, word, 400);
    assert_null(strstr(pieces, "[UNK]"));
    free(pieces);
    bert_tokenizer_free(tokenizer);
}

static void text_that_is_not_utf8_is_refused(void **state)
{
    (void)state;
    BertTokenizer *tokenizer = open_vocabulary(true);
    static const char *const bad[] = {"\xff", "a\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        TokenIds ids = {0};
        assert_false(bert_tokenizer_encode(tokenizer, bad[i], strlen(bad[i]), &ids));
        free(ids.items);
    }
    bert_tokenizer_free(tokenizer);
}

static void refuses_vocabulary(const char *bytes, size_t size, const char *expected)
{
    Scratch file = scratch_file(bytes, size);
    Diagnostics diagnostics = {0};
    assert_null(bert_tokenizer_open(file.path, true, &diagnostics));
    expect_complaint(&diagnostics, EXIT_BAD_INPUT, expected);
    unlink(file.path);
}

static void bad_vocabularies_are_refused(void **state)
{
    (void)state;
    refuses_vocabulary("", 0, "has no piece [UNK]");
    refuses_vocabulary("[UNK]\n[CLS]\n", 12, "has no piece [SEP]");
    refuses_vocabulary("[UNK]\n\xff\n", 8, ":2: error: is not UTF-8");
    refuses_vocabulary("[UNK]\n[CLS]\n[S\0P]\n", 18, ":3: error: contains a zero byte");
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    assert_null(bert_tokenizer_open(scratch_absent().path, true, &diagnostics));
    assert_int_equal(diagnostics.exit_code, EXIT_BAD_INPUT);
}

static void vocabularies_may_be_untidy(void **state)
{
    (void)state;
    /* CRLF, spaces, an empty line that takes an id, a repeated piece, no newline at the end, no [PAD] or [MASK] */
    Scratch file = scratch_text("[UNK]\r\n [CLS]\n\n[SEP]\na\na");
    Diagnostics diagnostics = {0};
    BertTokenizer *tokenizer = bert_tokenizer_open(file.path, true, &diagnostics);
    assert_int_equal(bert_tokenizer_size(tokenizer), 6);
    assert_int_equal(bert_tokenizer_specials(tokenizer)->classify, 1);
    assert_int_equal(bert_tokenizer_specials(tokenizer)->separate, 3);
    assert_int_equal(bert_tokenizer_specials(tokenizer)->pad, 0);
    assert_int_equal(bert_tokenizer_specials(tokenizer)->mask, -1);
    TokenIds ids = {0};
    assert_true(bert_tokenizer_encode(tokenizer, "a", 1, &ids));
    assert_int_equal(ids.items[0], 5);
    free(ids.items);
    bert_tokenizer_free(tokenizer);
    unlink(file.path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_reference_tokenizers_own_tests_pass),
        cmocka_unit_test(basic_tokenization_is_the_references),
        cmocka_unit_test(odd_texts_give_the_references_ids),
        cmocka_unit_test(unicode_is_treated_as_the_reference_does),
        cmocka_unit_test(words_of_more_than_200_characters_are_unknown),
        cmocka_unit_test(text_that_is_not_utf8_is_refused),
        cmocka_unit_test(bad_vocabularies_are_refused),
        cmocka_unit_test(vocabularies_may_be_untidy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
