/* Key files, site.json and audits: what is written is read again, what is not as it should be is refused with its
 * reason. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "runtime/wire/audit.h"
#include "runtime/wire/site_file.h"
#include "tests/common/scratch.h"

static void test_keys(void **state)
{
    (void)state;
    Diagnostics diagnostics = {0};
    WireKeys made, other, read;
    struct stat status;
    assert_true(wire_keys_write(&made, "paris", &diagnostics));
    assert_true(wire_keys_write(&other, "oslo", &diagnostics));
    assert_string_not_equal(made.public_key, other.public_key);
    assert_int_equal(stat("paris.key", &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    assert_true(wire_keys_read(&read, "paris.key", &diagnostics));
    assert_string_equal(read.secret_key, made.secret_key);
    assert_string_equal(read.public_key, made.public_key);
    char *text = read_text("paris.pub");
    assert_memory_equal(text, made.public_key, WIRE_KEY_TEXT);
    assert_string_equal(text + WIRE_KEY_TEXT, "\n");
    free(text);
    wire_keys_forget(&read);
    assert_string_equal(read.secret_key, "");
}

static void test_keys_are_never_overwritten(void **state)
{
    (void)state;
    Diagnostics diagnostics = {0};
    WireKeys keys;
    assert_true(wire_keys_write(&keys, "paris", &diagnostics));
    char *before = read_text("paris.key");
    assert_false(wire_keys_write(&keys, "paris", &diagnostics));
    expect_complaint(&diagnostics, EXIT_BAD_INPUT, "never overwritten");
    assert_holds("paris.key", before);
    free(before);
    write_text("oslo.pub", "taken");
    assert_false(wire_keys_write(&keys, "oslo", &diagnostics));
    expect_complaint(&diagnostics, EXIT_BAD_INPUT, "oslo.pub");
    assert_int_equal(access("oslo.key", F_OK), -1);
    assert_false(wire_keys_write(&keys, "nowhere/oslo", &diagnostics));
    expect_complaint(&diagnostics, EXIT_BAD_INPUT, "cannot create");
}

static void test_bad_keys(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "\n",
                                      "short\n",
                                      "0123456789012345678901234567890123456789x\n",
                                      "0123456789012345678901234567890123456789\n\n",
                                      "~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~\n"};
    Diagnostics diagnostics = {0};
    WireKeys keys;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_text("bad.key", bad[i]);
        chmod("bad.key", 0600);
        assert_false(wire_keys_read(&keys, "bad.key", &diagnostics));
        expect_complaint(&diagnostics, EXIT_BAD_INPUT, "is not a secret key");
    }
    assert_true(wire_keys_write(&keys, "open", &diagnostics));
    chmod("open.key", 0640);
    assert_false(wire_keys_read(&keys, "open.key", &diagnostics));
    expect_complaint(&diagnostics, EXIT_BAD_INPUT, "chmod 600");
    assert_false(wire_keys_read(&keys, "none.key", &diagnostics));
    expect_complaint(&diagnostics, EXIT_BAD_INPUT, "none.key");
}

#define KEY_A "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
#define KEY_B "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"

#define FILE_OF(run, site, address_a, address_b, key_b, ranks, largest)                                                \
    "{\"format\":\"skycc.site/1\",\"run\":" run ",\"site\":" site ",\"sites\":[{\"name\":\"a\",\"address\":" address_a \
    ",\"key\":\"" KEY_A "\"},{\"name\":\"b\",\"address\":" address_b ",\"key\":\"" key_b "\"}],\"rank_sites\":" ranks  \
    ",\"largest_message_bytes\":" largest "}"

static void test_site_file(void **state)
{
    (void)state;
    Diagnostics diagnostics = {0};
    WireSiteFile file;
    write_text("site.json", FILE_OF("\"r\"", "\"b\"", "\"host:5000\"", "null", KEY_B, "[0,1,1]", "8388608"));
    assert_true(wire_site_file_read(&file, "site.json", &diagnostics));
    assert_int_equal(file.site, 1);
    assert_int_equal(file.site_count, 2);
    assert_int_equal(file.rank_count, 3);
    assert_string_equal(file.sites[0].address, "host:5000");
    assert_null(file.sites[1].address);
    assert_string_equal(file.sites[1].key, KEY_B);
    assert_int_equal(file.rank_sites[2], 1);
    assert_int_equal(file.largest_message_bytes, 8388608);
    assert_true(wire_listens(&file, 0, 1));
    assert_false(wire_listens(&file, 1, 0));
    assert_false(wire_is_connected_to(&file, 1));
    wire_site_file_free(&file);
    write_text("site.json", FILE_OF("\"r\"", "\"a\"", "\"[::1]:1\"", "\"127.0.0.1:65535\"", KEY_B, "[0,1]", "1"));
    assert_true(wire_site_file_read(&file, "site.json", &diagnostics));
    assert_int_equal(file.largest_message_bytes, WIRE_LEAST_LIMIT);
    assert_true(wire_listens(&file, 0, 1));
    assert_false(wire_listens(&file, 1, 0));
    wire_site_file_free(&file);
}

static void test_bad_site_files(void **state)
{
    (void)state;
#define GOOD_RANKS "[0,1]"
    static const char *const bad[][2] = {
        {"{}", "format"},
        {"[]", "is not an object"},
        {FILE_OF("1", "\"a\"", "\"h:1\"", "null", KEY_B, GOOD_RANKS, "1"), "run"},
        {FILE_OF("\"\"", "\"a\"", "\"h:1\"", "null", KEY_B, GOOD_RANKS, "1"), "is empty"},
        {FILE_OF("\"r\"", "\"c\"", "\"h:1\"", "null", KEY_B, GOOD_RANKS, "1"), "none of the sites"},
        {FILE_OF("\"r\"", "\"a\"", "null", "null", KEY_B, GOOD_RANKS, "1"), "has no address"},
        {FILE_OF("\"r\"", "\"a\"", "\"h\"", "null", KEY_B, GOOD_RANKS, "1"), "HOST:PORT"},
        {FILE_OF("\"r\"", "\"a\"", "\"h:0\"", "null", KEY_B, GOOD_RANKS, "1"), "HOST:PORT"},
        {FILE_OF("\"r\"", "\"a\"", "\"h:65536\"", "null", KEY_B, GOOD_RANKS, "1"), "HOST:PORT"},
        {FILE_OF("\"r\"", "\"a\"", "\"::1:5\"", "null", KEY_B, GOOD_RANKS, "1"), "HOST:PORT"},
        {FILE_OF("\"r\"", "\"a\"", "\"x;y:5\"", "null", KEY_B, GOOD_RANKS, "1"), "HOST:PORT"},
        {FILE_OF("\"r\"", "\"a\"", "\"h:1\"", "null", KEY_A, GOOD_RANKS, "1"), "the key of an earlier one"},
        {FILE_OF("\"r\"", "\"a\"", "\"h:1\"", "null", "short", GOOD_RANKS, "1"), "public key"},
        {FILE_OF("\"r\"", "\"a\"", "\"h:1\"", "null", KEY_B, "[0,2]", "1"), "numbers of sites"},
        {FILE_OF("\"r\"", "\"a\"", "\"h:1\"", "null", KEY_B, "[0,-1]", "1"), "numbers of sites"},
        {FILE_OF("\"r\"", "\"a\"", "\"h:1\"", "null", KEY_B, "[]", "1"), "rank_sites"},
        {FILE_OF("\"r\"", "\"a\"", "\"h:1\"", "null", KEY_B, GOOD_RANKS, "-1"), "largest_message_bytes"},
        {FILE_OF("\"r\"", "\"a\"", "\"h:1\"", "null", KEY_B, GOOD_RANKS, "99999999999"), "largest_message_bytes"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        Diagnostics diagnostics = {0};
        WireSiteFile file;
        write_text("site.json", bad[i][0]);
        assert_false(wire_site_file_read(&file, "site.json", &diagnostics));
        expect_complaint(&diagnostics, EXIT_BAD_INPUT, bad[i][1]);
    }
}

/* A site.json of two sites, with these members added at the end. */
#define WITH(members)                                                                                                  \
    "{\"format\":\"skycc.site/"                                                                                        \
    "1\",\"run\":\"r\",\"site\":\"a\",\"sites\":[{\"name\":\"a\",\"address\":\"h:1\",\"key\":\"" KEY_A                 \
    "\"},{\"name\":\"b\",\"key\":\"" KEY_B "\"}],\"rank_sites\":[0,1,1],\"largest_message_bytes\":1," members "}"
#define TENSOR(from, to, tags)                                                                                         \
    "\"plan\":\"p\",\"tensors\":[{\"tensor\":\"x\",\"kind\":\"activation\",\"from_stage\":0,\"to_stage\":1,"           \
    "\"from\":" from ",\"to\":" to ",\"tag\":3,\"tags\":" tags "}]"

static void test_tensors_of_site_files(void **state)
{
    (void)state;
    Diagnostics diagnostics = {0};
    WireSiteFile file;
    write_text("site.json", WITH(TENSOR("0", "2", "4")));
    assert_true(wire_site_file_read(&file, "site.json", &diagnostics));
    assert_string_equal(file.plan, "p");
    assert_int_equal(file.tensor_count, 1);
    const WireTensor *tensor = file.tensors;
    assert_string_equal(tensor->name, "x");
    assert_string_equal(tensor->kind, "activation");
    assert_true(tensor->from == 0 && tensor->to == 2 && tensor->first_tag == 3 && tensor->tag_count == 4);
    assert_true(tensor->from_stage == 0 && tensor->to_stage == 1);
    wire_site_file_free(&file);
    static const char *const bad[][2] = {
        {WITH(TENSOR("0", "3", "4")), "'to'"},
        {WITH(TENSOR("-1", "1", "4")), "'from'"},
        {WITH(TENSOR("0", "1", "0")), "'tags'"},
        {WITH(TENSOR("0", "1", "2147483645")), "'tags'"},
        {WITH(TENSOR("1", "2", "4")), "does not cross between sites"},
        {WITH("\"tensors\":[]"), "plan"},
        {WITH("\"plan\":\"p\",\"tensors\":[1]"), "is not an object"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_text("site.json", bad[i][0]);
        assert_false(wire_site_file_read(&file, "site.json", &diagnostics));
        expect_complaint(&diagnostics, EXIT_BAD_INPUT, bad[i][1]);
    }
}

static void test_audit(void **state)
{
    (void)state;
    Diagnostics diagnostics = {0};
    WireAudit made = {.run = "r", .plan = "p", .site = "a", .starts = 2, .steps = 5, .running = true}, read;
    const WireCrossing tensor = {.what = WIRE_CLASS_TENSOR,
                                 .tensor = "x",
                                 .kind = "gradient",
                                 .from_stage = 1,
                                 .to_stage = 0,
                                 .from_site = "b",
                                 .to_site = "a"};
    WireCrossing stray = {.what = WIRE_CLASS_UNKNOWN, .tag = -7, .from_site = "a", .to_site = "b"};
    for (size_t size = 10; size < 13; size++) wire_crossing_count(wire_audit_crossing(&made, &tensor), size);
    wire_crossing_count(wire_audit_crossing(&made, &stray), 1);
    stray.tag = 8; /* the first one's is kept */
    wire_crossing_count(wire_audit_crossing(&made, &stray), 2);
    assert_true(wire_audit_write(&made, "audit", &diagnostics));
    assert_true(wire_audit_read(&read, "audit", &diagnostics));
    assert_true(read.starts == 2 && read.steps == 5 && read.running && read.cut_short == 0);
    assert_int_equal(read.crossing_count, 2);
    const WireCrossing *first = &read.crossings[0], *second = &read.crossings[1];
    assert_true(first->messages == 3 && first->bytes == 33 && first->least == 10 && first->most == 12);
    assert_true(first->from_stage == 1 && first->to_stage == 0);
    assert_string_equal(first->tensor, "x");
    assert_true(second->messages == 2 && second->bytes == 3 && second->tag == -7 && second->from_stage == -1);
    FREED char *text = read_text("audit");
    assert_true(wire_audit_write(&read, "audit", &diagnostics));
    assert_holds("audit", text);
    wire_audit_free(&made);
    wire_audit_free(&read);
    static const char *const changes[][3] = {
        {"skycc.audit/1", "skycc.audit/2", "is not skycc.audit/1"},
        {"\"steps\": 5", "\"steps\": -5", "out of range"},
        {"\"steps\": 5", "\"steps\": 9999999999999999", "out of range"},
        {"\"steps\": 5", "\"steps\": null", "steps"},
        {"\"class\": \"tensor\"", "\"class\": \"rumour\"", "unknown class"},
        {"\"tensor\": \"x\"", "\"tensor\": 1", "tensor"},
        {"\"tag\": -7", "\"tag\": 99999999999", "a tag that cannot exist"},
        {"\"from_stage\": 1", "\"from_stage\": -2", "a stage that cannot exist"},
    };
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        const char *place = strstr(text, changes[i][0]);
        assert_non_null(place);
        Buffer changed = {0};
        buffer_append(&changed, text, (size_t)(place - text));
        buffer_print(&changed, "%s%s", changes[i][1], place + strlen(changes[i][0]));
        write_text("bad", buffer_text(&changed));
        buffer_free(&changed);
        assert_false(wire_audit_read(&read, "bad", &diagnostics));
        expect_complaint(&diagnostics, EXIT_BAD_INPUT, changes[i][2]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_keys, scratch_folder_enter, scratch_folder_leave),
        cmocka_unit_test_setup_teardown(test_keys_are_never_overwritten, scratch_folder_enter, scratch_folder_leave),
        cmocka_unit_test_setup_teardown(test_bad_keys, scratch_folder_enter, scratch_folder_leave),
        cmocka_unit_test_setup_teardown(test_site_file, scratch_folder_enter, scratch_folder_leave),
        cmocka_unit_test_setup_teardown(test_bad_site_files, scratch_folder_enter, scratch_folder_leave),
        cmocka_unit_test_setup_teardown(test_tensors_of_site_files, scratch_folder_enter, scratch_folder_leave),
        cmocka_unit_test_setup_teardown(test_audit, scratch_folder_enter, scratch_folder_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
