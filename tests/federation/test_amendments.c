/* Amendments: what is signed is read, what is not is refused; sums among those that are left; keys that change. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "federation/amendment.h"
#include "tests/federation/round_world.h"

#define KEY_A "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
#define KEY_B "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"
#define KEY_C "JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6"

static char secret[OWNER_SECRET_TEXT + 1], owner[OWNER_PUBLIC_TEXT + 1];

static FederationSite sites[] = {{.name = "paris", .key = "p"},
                                 {.name = "oslo", .key = "o"},
                                 {.name = "lima", .key = "l"},
                                 {.name = "kyoto", .key = "k", .left = 2},
                                 {.name = "quito", .key = "q", .former_key = KEY_C}};

static Federation made(bool secure)
{
    return (Federation){.sites = sites,
                        .site_count = 5,
                        .key = KEY_B,
                        .secure = secure,
                        .least = 3,
                        .sample = 3,
                        .compiled = {.identity = {3, 4}, .owner = owner, .amended = 1}};
}

/* The signed text of a change that is written like this; `number` 0: the next. */
static Buffer sign(const Federation *federation, const char *written, int64_t number)
{
    Amendment amendment;
    Diagnostics diagnostics = {0};
    Buffer text = {0};
    Scratch file = scratch_text(written);
    if (!amendment_read(&amendment, file.path, &diagnostics)) diagnostics_print(&diagnostics, stderr);
    assert_int_equal(diagnostics.errors, 0);
    amendment.number = number ? number : federation->compiled.amended + 1;
    amendment.federation = federation->compiled.identity;
    if (!amendment.from_round) amendment.from_round = 2;
    amendment_print(&amendment, secret, &text);
    amendment_free(&amendment);
    return text;
}

/* What is wrong with a signed text, in scratch memory; "": nothing. */
static const char *problem_of(Federation *federation, const char *text, size_t size)
{
    static char said[400];
    Amendment amendment;
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    said[0] = '\0';
    if (!amendment_open(&amendment, federation, "told", text, size, &diagnostics) ||
        !federation_amend(federation, &amendment, "told", &diagnostics))
        snprintf(said, sizeof said, "%s", diagnostics.first->message);
    amendment_free(&amendment);
    return said;
}

static void expect(Federation federation, const char *written, const char *problem)
{
    FREED_WITH(buffer_free) Buffer text = sign(&federation, written, 0);
    int before = federation.site_count;
    const char *said = problem_of(&federation, text.bytes, text.size);
    if (!strstr(said, problem)) fail_msg("%s: '%s', not '%s'", written, said, problem);
    assert_int_equal(federation.compiled.amended, *problem ? 1 : 2);
    if (*problem) assert_int_equal(federation.site_count, before);
    arena_free(&federation.arena);
}

static void each_change_is_taken_or_refused_by_name(void **state)
{
    (void)state;
    expect(made(true), "add: [{name: accra, cluster: c.yaml, key: \"" KEY_A "\", rows_per_step: 4}]",
           "makes 5 sites, of which a secure sum needs 4: more than sample: 3");
    expect(made(false), "add: [{name: accra, cluster: c.yaml, key: \"" KEY_A "\", rows_per_step: 4}]\nremove: [oslo]",
           "");
    expect(made(true), "keys: [{name: oslo, key: \"" KEY_A "\"}]\nfrom_round: 7", "");
    expect(made(true), "remove: [oslo]", "");
    expect(made(true), "remove: [oslo, paris]", "leaves 2 sites, and a round needs 3 (min_sites)");
    expect(made(true), "remove: [accra]", "site 'accra' is not in the federation");
    expect(made(true), "remove: [oslo, oslo]", "site 'oslo' is not in the federation any more");
    expect(made(true), "keys: [{name: kyoto, key: \"" KEY_A "\"}]", "site 'kyoto' is not in the federation any more");
    expect(made(true), "keys: [{name: oslo, key: \"" KEY_B "\"}]", "the new key of site 'oslo' is the coordinator's");
    expect(made(true), "keys: [{name: oslo, key: \"" KEY_C "\"}]",
           "the new key of site 'oslo' is or was that of site 'quito'");
    expect(made(false), "add: [{name: kyoto, cluster: c, key: \"" KEY_A "\", rows_per_step: 4}]",
           "site 'kyoto' is or was in the federation");
    Federation two = made(true);
    two.least = 1;
    expect(two, "remove: [oslo, paris]", "leaves 2 sites, and secure sums need 3");
}

static void expect_text(const char *text, size_t size, const char *problem)
{
    Federation federation = made(true);
    const char *said = problem_of(&federation, text, size);
    if (!strstr(said, problem) || !*said) fail_msg("'%s', not '%s'", said, problem);
    assert_int_equal(federation.compiled.amended, 1);
    arena_free(&federation.arena);
}

static void only_the_owner_amends_and_only_once(void **state)
{
    (void)state;
    static const char unsigned_text[] = "is not signed by the federation's owner";
    char other_secret[OWNER_SECRET_TEXT + 1], other_owner[OWNER_PUBLIC_TEXT + 1];
    Federation federation = made(true);
    Buffer text = sign(&federation, "remove: [oslo]", 0);
    for (size_t i = 0; i < text.size; i += 3) {
        text.bytes[i] ^= 1;
        expect_text(text.bytes, text.size, unsigned_text);
        text.bytes[i] ^= 1;
    }
    for (size_t size = 0; size < text.size; size += 7) expect_text(text.bytes, size, unsigned_text);
    assert_string_equal(problem_of(&federation, text.bytes, text.size), "");
    assert_int_equal(federation.sites[1].left, 2);
    assert_string_equal(problem_of(&federation, text.bytes, text.size), "is amendment 2, and was taken before: 2 were");
    buffer_free(&text);
    arena_free(&federation.arena);

    federation = made(true);
    text = sign(&federation, "remove: [oslo]", 3);
    expect_text(text.bytes, text.size, "is amendment 3, and amendment 2 comes first");
    buffer_free(&text);
    federation.compiled.identity.low++;
    text = sign(&federation, "remove: [oslo]", 0);
    expect_text(text.bytes, text.size, "is an amendment of another federation");
    buffer_free(&text);
    owner_key_draw(other_secret, other_owner);
    federation = made(true);
    federation.compiled.owner = other_owner;
    text = sign(&federation, "remove: [oslo]", 0);
    assert_string_equal(problem_of(&federation, text.bytes, text.size), unsigned_text);
    federation.compiled.owner = NULL;
    assert_string_equal(problem_of(&federation, text.bytes, text.size), unsigned_text);
    buffer_free(&text);
}

static void a_change_that_is_written_wrong_is_refused_with_its_place(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        {"from_round: 3", "the amendment changes nothing"},
        {"remove: oslo", "1:9: error: remove"},
        {"remove: [[oslo]]", "a site's name"},
        {"keys: [{name: oslo, key: \"short\"}]", "key must be a public key"},
        {"keys: [{name: oslo, key: \"" KEY_A "\", rows_per_step: 4}]", "rows_per_step"},
        {"add: [{name: accra, key: \"" KEY_A "\"}]", "cluster"},
        {"remove: [oslo]\nfrom_round: 0", "from_round"},
        {"remove: [oslo]\nsignature: x", "signature"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        Amendment amendment;
        FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
        Scratch file = scratch_text(wrong[i][0]);
        assert_false(amendment_read(&amendment, file.path, &diagnostics));
        FREED char *said = diagnostics_text(&diagnostics);
        if (!strstr(said, wrong[i][1])) fail_msg("%s: %s", wrong[i][0], said);
        amendment_free(&amendment);
    }
}

/* Puts a signed change where the coordinator takes it from. */
static void put(World *world, const char *written, int64_t number)
{
    Buffer text = sign(&world->federation, written, number), path = {0};
    Diagnostics diagnostics = {0};
    mkdir("amendments", 0777);
    buffer_print(&path, "amendments/%06d.yaml", (int)number);
    assert_true(file_write_all(path.bytes, text.bytes, text.size, &diagnostics));
    buffer_free(&text);
    buffer_free(&path);
}

static void start_owned(World *world, int count, bool secure, int rounds)
{
    start(world, count, secure, OUTER_AVERAGE, rounds, 1);
    world->federation.compiled.owner = owner;
    world->federation.compiled.model_hash = world->federation.compiled.low_rank = "";
    world->federation.address = world->federation.key = "";
    for (int s = 0; s < count; s++) world->sites[s].federation.compiled.owner = owner;
}

/* The masks of a round are among those that are in the federation then, whoever was killed meanwhile. */
static void sums_are_among_those_that_are_left(void **state)
{
    (void)state;
    enum { SITES = 5, ROUNDS = 4 };
    for (int secure = 0; secure < 2; secure++)
        for (int kill_at = -1; kill_at < 160; kill_at += secure ? 23 : 40) {
            World world;
            bool in[ROUNDS][MOST];
            start_owned(&world, SITES, secure, ROUNDS);
            world.federation.least = 3;
            for (int s = 0; s < SITES; s++) world.sites[s].federation.least = 3;
            world.kill_at = kill_at;
            put(&world, "remove: [lima]\nfrom_round: 2", 1);
            put(&world, "remove: [oslo]\nfrom_round: 4", 2);
            run(&world, (uint64_t)kill_at + 7);
            all_in(in, ROUNDS);
            for (int r = 1; r < ROUNDS; r++) in[r][2] = false;
            in[3][1] = false;
            expect_model(&world, in);
            assert_int_equal(world.federation.compiled.amended, 2);
            assert_true(world.coordinator.model.counted[2] == 1 && world.coordinator.model.counted[1] == 3);
            fflush(world.console);
            assert_non_null(strstr(world.said, "amendment 1 from round 2 on: removes 'lima'"));
            stop(&world);
        }
}

/* A coordinator says once why it does not take what lies in its directory, and goes on. */
static void a_forged_amendment_changes_nothing(void **state)
{
    (void)state;
    World world;
    bool in[3][MOST];
    start_owned(&world, 4, true, 3);
    char true_secret[sizeof secret], other_owner[sizeof owner];
    memcpy(true_secret, secret, sizeof secret);
    owner_key_draw(secret, other_owner);
    put(&world, "remove: [lima]\nfrom_round: 1", 3);
    coordinator_tick(&world.coordinator, world.now += 5);
    fflush(world.console);
    assert_non_null(
        strstr(world.said, "000001.yaml: error: is missing: amendment 3 is there and waits for amendment 1"));
    put(&world, "remove: [lima]\nfrom_round: 1", 1);
    memcpy(secret, true_secret, sizeof secret);
    run(&world, 5);
    all_in(in, 3);
    expect_model(&world, in);
    fflush(world.console);
    const char *said = strstr(world.said, "000001.yaml: error: is not signed by the federation's owner");
    assert_non_null(said);
    assert_null(strstr(said + 1, "000001.yaml")); /* once */
    assert_int_equal(world.federation.compiled.amended, 0);
    stop(&world);
}

/* A site's request with its number of amendments; the kind of the reply, whose text is `said`. */
static ReplyKind ask(World *world, int site, uint64_t amended, char said[static 400])
{
    Buffer message = {0}, answer = {0};
    Reply reply;
    request_put(&message, &(Request){.kind = REQUEST_ASK,
                                     .federation = world->federation.compiled.identity,
                                     .round = (uint64_t)world->coordinator.model.round,
                                     .amended = amended,
                                     .payload = &(const unsigned char){ASK_WITHHOLDS},
                                     .size = 1});
    coordinator_handle(&world->coordinator, site, (const unsigned char *)message.bytes, message.size, world->now,
                       &answer);
    assert_true(reply_get(&reply, (const unsigned char *)answer.bytes, answer.size));
    snprintf(said, 400, "%.*s", (int)reply.size, (const char *)reply.payload);
    buffer_free(&message);
    buffer_free(&answer);
    return reply.kind;
}

static void who_may_not_speak_is_told_why(void **state)
{
    (void)state;
    World world;
    char said[400];
    start_owned(&world, 4, true, 3);
    put(&world, "keys: [{name: oslo, key: \"" KEY_A "\"}]\nremove: [lima]\nfrom_round: 1", 1);
    coordinator_tick(&world.coordinator, world.now += 5);
    assert_int_equal(world.federation.compiled.amended, 1);
    assert_int_equal(ask(&world, 0, 0, said), REPLY_AMEND);
    assert_non_null(strstr(said, "amendment: 1\n"));
    assert_true(world.coordinator.sites[0].withholds);
    assert_int_equal(presence_awaited(&world.coordinator), 2); /* oslo and kyoto: paris withholds, lima has left */
    assert_int_equal(ask(&world, 0, 1, said), REPLY_TELL);
    assert_false(world.coordinator.sites[0].withholds);
    assert_int_equal(ask(&world, 0, 2, said), REPLY_REFUSED);
    assert_non_null(strstr(said, "has taken an amendment that the coordinator has not"));
    assert_int_equal(ask(&world, 2, 1, said), REPLY_REFUSED);
    assert_non_null(strstr(said, "was removed from the federation by an amendment"));
    world.coordinator.sites[1].uses_former = true; /* in the round of the change it counts, not after it */
    assert_int_equal(ask(&world, 1, 1, said), REPLY_TELL);
    world.coordinator.model.round = 1;
    assert_int_equal(ask(&world, 1, 1, said), REPLY_REFUSED);
    assert_non_null(strstr(said, "uses a key that an amendment has replaced"));
    stop(&world);
}

int main(void)
{
    owner_key_draw(secret, owner);
    const struct CMUnitTest tests[] = {TEST(each_change_is_taken_or_refused_by_name),
                                       TEST(only_the_owner_amends_and_only_once),
                                       TEST(a_change_that_is_written_wrong_is_refused_with_its_place),
                                       TEST(sums_are_among_those_that_are_left),
                                       TEST(a_forged_amendment_changes_nothing),
                                       TEST(who_may_not_speak_is_told_why)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
