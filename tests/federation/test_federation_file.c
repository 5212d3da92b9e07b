/* federation.yaml: what is read, what is refused and where, and that what is printed is read again. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "federation/federation.h"
#include "tests/common/scratch.h"

#define KEY_A "\"Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID\""
#define KEY_B "\"D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs\""
#define KEY_C "\"rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7\""
#define KEY_D "\"JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6\""
#define SITES                                                                                                          \
    "sites:\n"                                                                                                         \
    "  - {name: paris, cluster: paris.yaml, key: " KEY_A ", rows_per_step: 32}\n"                                      \
    "  - {name: oslo, cluster: oslo.yaml, key: " KEY_B "}\n"                                                           \
    "  - {name: lima, cluster: lima.yaml, key: " KEY_C "}\n"
#define COORDINATOR "coordinator: {address: \"example.org:4711\", key: " KEY_D "}\n"
#define STEPS "rounds: 10\nlocal_steps: 50\n"

static void all_that_may_be_said_is_read(void **state)
{
    (void)state;
    Federation federation;
    Diagnostics diagnostics = {0};
    Scratch file =
        scratch_text(SITES COORDINATOR STEPS
                     "outer: {optimizer: nesterov, lr: 0.4, momentum: 0.8}\naggregate: secure\n"
                     "threshold: 3\nmin_sites: 3\nround_timeout: 90s\ndrop_after: 3\nfragments: 4\ncodec: none\n"
                     "model_codec: q6\nleast_change: 0.01\nclip_update: 1.5\ndp: {clip: 1, noise: 1.1, delta: "
                     "1e-6}\nhide_metrics: true\n");
    assert_true(federation_read(&federation, file.path, NULL, &diagnostics));
    assert_int_equal(federation.site_count, 3);
    assert_string_equal(federation.sites[0].cluster, "paris.yaml");
    assert_int_equal(federation.sites[0].rows_per_step, 32);
    assert_int_equal(federation.sites[1].rows_per_step, 0);
    assert_string_equal(federation.address, "example.org:4711");
    assert_true(federation.outer.kind == OUTER_NESTEROV && federation.outer.rate == 0.4);
    assert_true(federation.secure && federation.hide_metrics && federation.round_timeout_s == 90 &&
                federation.drop_after == 3);
    assert_true(federation.model_codec == CODEC_Q6 && federation.least_change == 0.01);
    assert_int_equal(federation.least, 3);
    assert_true(federation.privacy.noise == 1.1 && federation.privacy.delta == 1e-6);
    assert_int_equal(federation_find_site(&federation, "lima"), 2);
    unlink(file.path);

    federation.compiled = (FederationCompiled){
        {5, 6}, 1, "abc", 3, 2, "r=8,alpha=16,targets=*query*", "00ab 01cd", "7: \"why\"", "0a", 2, {7, 8}};
    for (int s = 0; s < 3; s++) federation.sites[s].rows_per_step = 8 + s;
    federation.sites[0].former_key = federation.key;
    federation.sites[0].rekeyed = 4;
    federation.sites[2].joined = 3;
    Buffer text = {0}, again = {0};
    federation_print(&federation, &text);
    file = scratch_text(buffer_text(&text));
    Federation read;
    if (!federation_read_compiled(&read, file.path, &diagnostics)) diagnostics_print(&diagnostics, stderr);
    assert_int_equal(diagnostics.errors, 0);
    federation_print(&read, &again);
    assert_string_equal(buffer_text(&text), buffer_text(&again));
    assert_int_equal(read.compiled.site, 1);
    assert_string_equal(read.compiled.why_steps, "7: \"why\"");
    assert_true(hash_equal(read.compiled.follows, (Hash){7, 8}));
    assert_string_equal(read.sites[0].key, federation.sites[0].key);
    assert_int_equal(read.sites[0].rekeyed, 4);
    assert_string_equal(read.compiled.owner, "0a");
    assert_true(hash_equal(federation_hash(&federation, (Hash){1, 2}), federation_hash(&read, (Hash){1, 2})));
    assert_false(hash_equal(federation_hash(&federation, (Hash){1, 2}), federation_hash(&read, (Hash){1, 3})));
    read.outer.rate = 0.5;
    assert_false(hash_equal(federation_hash(&federation, (Hash){1, 2}), federation_hash(&read, (Hash){1, 2})));
    unlink(file.path);
    buffer_free(&text);
    buffer_free(&again);
    federation_free(&read);
    federation_free(&federation);
}

static void what_is_not_said_has_its_default(void **state)
{
    (void)state;
    Federation federation;
    Diagnostics diagnostics = {0};
    Scratch file = scratch_text(SITES COORDINATOR STEPS);
    assert_true(federation_read(&federation, file.path, NULL, &diagnostics));
    assert_true(federation.outer.kind == OUTER_NESTEROV && federation.outer.rate == 0.7 &&
                federation.outer.momentum == 0.9);
    assert_true(federation.secure && !federation.hide_metrics && federation.fragments == 1);
    assert_int_equal(federation.least, 3);
    static const struct {
        const char *text;
        int least;
    } plain[] = {{SITES COORDINATOR STEPS "aggregate: plain\n", 3},
                 {SITES COORDINATOR STEPS "aggregate: plain\nmin_sites: 1\n", 1},
                 {SITES COORDINATOR STEPS "aggregate: plain\nthreshold: 2\n", 2}};
    for (int c = 0; c < 3; c++) {
        Federation other;
        Scratch text = scratch_text(plain[c].text);
        assert_true(federation_read(&other, text.path, NULL, &diagnostics));
        assert_int_equal(other.least, plain[c].least);
        unlink(text.path);
        federation_free(&other);
    }
    assert_true(federation.round_timeout_s == 600 && federation.drop_after == 1 && federation.clip_update == 0 &&
                federation.privacy.clip == 0);
    unlink(file.path);
    federation_free(&federation);
}

#define LINKS                                                                                                          \
    "default_link: {latency: 50ms, bandwidth: 8Mbit}\nlinks:\n"                                                        \
    "  - {between: [coordinator, oslo], latency: 5ms, bandwidth: 80Mbit}\n"

/* Links are for planning: they make no other federation. */
static void links_are_read(void **state)
{
    (void)state;
    Federation federation, plain;
    Diagnostics diagnostics = {0};
    Scratch file =
        scratch_text(SITES "coordinator: {address: \"h:1\", bandwidth: 1Gbit, key: " KEY_D "}\n" STEPS LINKS);
    Scratch other = scratch_text(SITES "coordinator: {address: \"h:1\", key: " KEY_D "}\n" STEPS);
    assert_true(federation_read(&federation, file.path, NULL, &diagnostics));
    assert_true(federation_read(&plain, other.path, NULL, &diagnostics));
    assert_true(federation.coordinator_Bps == 125e6 && plain.coordinator_Bps == 0);
    assert_true(federation_link(&federation, 1, 3)->latency_s == 0.005);
    assert_true(federation_link(&federation, 3, 1)->bandwidth_Bps == 1e7);
    assert_true(federation_link(&federation, 0, 3)->latency_s == 0.05);
    assert_true(federation_link(&federation, 0, 1)->bandwidth_Bps == 1e6);
    assert_true(federation_check_links(&federation, file.path, "this", &diagnostics));
    assert_null(federation_link(&plain, 0, 3));
    assert_true(hash_equal(federation_hash(&federation, (Hash){1, 2}), federation_hash(&plain, (Hash){1, 2})));
    assert_int_equal(diagnostics.errors, 0);
    assert_false(federation_check_links(&plain, other.path, "this", &diagnostics));
    expect_complaint(&diagnostics, EXIT_BAD_INPUT, "this needs the link of site 'paris' with the coordinator");
    unlink(file.path);
    unlink(other.path);
    federation_free(&federation);
    federation_free(&plain);
}

static void the_command_line_holds(void **state)
{
    (void)state;
    FederationWishes wishes = {7, FEDERATION_STEPS_AUTO, FEDERATION_OVERLAP_ALL, 2.5, {1, 2, 1e-6}, true};
    Federation federation;
    Diagnostics diagnostics = {0};
    Scratch file = scratch_text(SITES COORDINATOR "clip_update: 9\nlocal_steps: 5\n"); /* no rounds */
    assert_true(federation_read(&federation, file.path, &wishes, &diagnostics));
    assert_true(federation.rounds == 7 && federation.local_steps == FEDERATION_STEPS_AUTO);
    assert_true(federation.overlap == FEDERATION_OVERLAP_ALL);
    assert_true(federation.clip_update == 2.5 && federation.privacy.noise == 2 && federation.hide_metrics);
    unlink(file.path);
    federation_free(&federation);
    file = scratch_text(SITES COORDINATOR STEPS "aggregate: plain\n");
    assert_false(federation_read(&federation, file.path, &wishes, &diagnostics));
    expect_complaint(&diagnostics, EXIT_BAD_INPUT, "which protects sums only");
    unlink(file.path);
    file = scratch_text(SITES COORDINATOR "rounds: 3\nlocal_steps: auto\n");
    diagnostics = (Diagnostics){0};
    assert_true(federation_read(&federation, file.path, NULL, &diagnostics));
    assert_true(federation.local_steps == FEDERATION_STEPS_AUTO);
    unlink(file.path);
    federation_free(&federation);
}

/* As many models are kept as are averaged, unless more are asked for; a coordinator's file has both. */
static void averages_are_kept(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t average, keep;
    } cases[] = {{SITES COORDINATOR STEPS, 0, FEDERATION_KEEP},
                 {SITES COORDINATOR STEPS "average: 2\n", 2, FEDERATION_KEEP},
                 {SITES COORDINATOR STEPS "average: 5\n", 5, 5},
                 {SITES COORDINATOR STEPS "average: 5\nkeep: 9\n", 5, 9}};
    for (int c = 0; c < 4; c++) {
        Federation federation, read;
        Diagnostics diagnostics = {0};
        Scratch file = scratch_text(cases[c].text);
        assert_true(federation_read(&federation, file.path, NULL, &diagnostics));
        federation.compiled = (FederationCompiled){.site = -1, .model_hash = "m", .low_rank = ""};
        for (int s = 0; s < 3; s++) federation.sites[s].rows_per_step = 8;
        FREED_WITH(buffer_free) Buffer text = {0};
        federation_print(&federation, &text);
        file_write_all(file.path, text.bytes, text.size, &diagnostics);
        assert_true(federation_read_compiled(&read, file.path, &diagnostics));
        assert_true(federation.steering.average == cases[c].average && federation.steering.keep == cases[c].keep);
        assert_true(read.steering.average == cases[c].average && read.steering.keep == cases[c].keep);
        unlink(file.path);
        federation_free(&federation);
        federation_free(&read);
    }
}

#define FIVE "rounds: 3\nlocal_steps: 5\n"

/* They are of private rows, as updates are. */
static void dp_hides_metrics(void **state)
{
    (void)state;
    Federation federation;
    Diagnostics diagnostics = {0};
    Scratch file = scratch_text(SITES COORDINATOR STEPS "dp: {clip: 1, noise: 1.1}\n");
    assert_true(federation_read(&federation, file.path, NULL, &diagnostics));
    assert_true(federation.hide_metrics);
    unlink(file.path);
    federation_free(&federation);
}

/* With or without, federations are two. */
static void overlap_is_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t overlap;
    } cases[] = {{SITES COORDINATOR FIVE "overlap: 2\n", 2},
                 {SITES COORDINATOR FIVE "overlap: all\n", 5},
                 {SITES COORDINATOR FIVE "overlap: 0\n", 0}};
    Hash hashes[3];
    for (int c = 0; c < 3; c++) {
        Federation federation;
        Diagnostics diagnostics = {0};
        Scratch file = scratch_text(cases[c].text);
        assert_true(federation_read(&federation, file.path, NULL, &diagnostics));
        assert_int_equal(federation.overlap, cases[c].overlap);
        hashes[c] = federation_hash(&federation, (Hash){1, 2});
        unlink(file.path);
        federation_free(&federation);
    }
    assert_false(hash_equal(hashes[0], hashes[1]) || hash_equal(hashes[0], hashes[2]));
}

static void refuse(const char *text, const char *expected)
{
    Federation federation;
    Diagnostics diagnostics = {0};
    Scratch file = scratch_text(text);
    assert_false(federation_read(&federation, file.path, NULL, &diagnostics));
    expect_complaint(&diagnostics, EXIT_BAD_INPUT, expected);
    assert_null(federation.sites);
    unlink(file.path);
}

static void what_is_wrong_is_refused_at_its_place(void **state)
{
    (void)state;
    refuse("sites: []\n" COORDINATOR STEPS, "1:8: error: a federation has 1 to 255 sites");
    refuse("sites:\n  - {name: a, cluster: a.yaml, key: " KEY_A "}\n  - {name: b, cluster: b.yaml, key: " KEY_A
           "}\n  - {name: c, cluster: c.yaml, key: " KEY_B "}\n" COORDINATOR STEPS,
           "3:37: error: the key of site 'b' is that of site 'a', too");
    refuse("sites:\n  - {name: a, cluster: a.yaml, key: " KEY_A "}\n  - {name: a, cluster: b.yaml, key: " KEY_B
           "}\n" COORDINATOR STEPS,
           "two sites are named 'a'");
    refuse("sites:\n  - {name: a/b, cluster: a.yaml, key: " KEY_A "}\n" COORDINATOR STEPS, "is a plain word");
    refuse("sites:\n  - {name: a, cluster: a.yaml, key: short}\n" COORDINATOR STEPS,
           "key must be a public key of 40 characters in Z85");
    refuse(SITES "coordinator: {address: \"h:1\", key: " KEY_B "}\n" STEPS, "its key is that of site 'oslo', too");
    refuse(SITES "coordinator: {address: nowhere, key: " KEY_D "}\n" STEPS, "address 'nowhere' is not HOST:PORT");
    refuse(SITES COORDINATOR STEPS "threshold: 2\n", "threshold must be at least 3 for 3 sites");
    refuse(SITES COORDINATOR STEPS "min_sites: 4\n", "min_sites must be from 1 to 3, not 4");
    refuse(SITES COORDINATOR STEPS "min_sites: 1\n",
           "8:12: error: min_sites: 1 is below the 3 sites that a secure sum");
    refuse(SITES COORDINATOR STEPS "aggregate: plain\nmin_sites: 1\nthreshold: 2\n",
           "min_sites: 1 is below threshold: 2");
    refuse(SITES COORDINATOR STEPS "aggregate: plain\nrobust: median\nmin_sites: 2\n",
           "robust: median needs 3 updates in every round, and this allows rounds of 2");
    refuse(SITES COORDINATOR STEPS "aggregate: plain\nrobust: trimmed\nsample: 2\n", "this allows rounds of 2");
    refuse(SITES COORDINATOR STEPS "outer: {optimizer: lion}\n", "unknown outer optimiser 'lion'");
    refuse(SITES COORDINATOR STEPS "outer: {optimizer: adam, momentum: 0.9}\n", "adam has no momentum");
    refuse(SITES COORDINATOR STEPS "outer: {optimizer: sgd, beta2: 0.9}\n", "sgd has no beta2");
    refuse(SITES COORDINATOR STEPS "sample: 2\n", "sample: 2 is below the 3 of 3 sites that a secure sum needs");
    refuse(SITES COORDINATOR STEPS "aggregate: plain\nsample: 2\nmin_sites: 3\n", "sample: 2 is fewer than the 3");
    refuse(SITES COORDINATOR STEPS "aggregate: plain\nsample: 4\n", "sample must be from 1 to 3");
    refuse(SITES COORDINATOR STEPS "aggregate: plain\nsample: 2\noverlap: 2\n", "sample does not go with overlap");
    refuse(SITES COORDINATOR STEPS "robust: median\n", "robust: median needs to see every update");
    refuse(SITES COORDINATOR STEPS "robust: mean\n", "unknown rule 'mean'");
    refuse(SITES COORDINATOR STEPS "keep_best: f1\n", "sites measure loss and accuracy alone");
    refuse(SITES COORDINATOR STEPS "patience: 2\nhide_metrics: true\n", "sites do not tell what they measure");
    refuse(SITES COORDINATOR STEPS "patience: 2\nkeep: 1\n", "prunes a round's model before");
    refuse(SITES COORDINATOR STEPS "evaluate: {data: a}\nkeep_best: rouge\n", "unknown metric 'rouge'");
    refuse(SITES COORDINATOR STEPS "evaluate: {every: 2}\n", "key 'data' is missing");
    refuse(SITES COORDINATOR STEPS "keep: 0\n", "keep must be");
    refuse(SITES COORDINATOR STEPS "average: 0\n", "average must be");
    refuse(SITES COORDINATOR STEPS "average: 5\nkeep: 4\n", "9:7: error: keep: 4 prunes models that average: 5 takes");
    refuse(SITES COORDINATOR STEPS "outer: {optimizer: average, lr: 1}\n", "plain averaging has no lr");
    refuse(SITES COORDINATOR STEPS "outer: {optimizer: sgd, momentum: 0.9}\n", "sgd has no momentum");
    refuse(SITES COORDINATOR STEPS "aggregate: mixed\n", "aggregate is secure or plain, not 'mixed'");
    refuse(SITES COORDINATOR STEPS "aggregate: plain\ndp: {clip: 1, noise: 1}\n", "which protects sums only");
    refuse(SITES COORDINATOR STEPS "round_timeout: soon\n", "round_timeout 'soon' is no time");
    refuse(SITES COORDINATOR STEPS "deadline: never\n", "deadline 'never' is no time");
    refuse(SITES COORDINATOR "rounds: 1\nlocal_steps: 4\noverlap: 5\n", "overlap: 5 is more than the 4 local steps");
    refuse(SITES COORDINATOR STEPS "overlap: some\n", "overlap must be");
    refuse(SITES COORDINATOR STEPS "overlap: 1\ndeadline: 3s\n", "which a deadline would change");
    refuse(SITES COORDINATOR STEPS "codec: q8\n", "codec 'q8' is not to be had with aggregate: secure");
    refuse(SITES COORDINATOR STEPS "aggregate: plain\ncodec: q9\n", "unknown codec 'q9'");
    refuse(SITES COORDINATOR STEPS "aggregate: plain\ncodec: bf16\nleast_change: 0.01\n", "needs a codec with tiles");
    refuse(SITES COORDINATOR STEPS "model_codec: q6\nleast_change: 0.6\n", "greater than 0 and at most 0.5");
    refuse(SITES COORDINATOR STEPS "model_codec: float16\n", "unknown model_codec 'float16'");
    refuse(SITES COORDINATOR STEPS "model_codec: q6\ncontrol_variates: true\n", "does not go with model_codec");
    refuse(SITES COORDINATOR "rounds: 1\nlocal_steps: often\n", "local_steps must be");
    refuse(SITES COORDINATOR STEPS "default_link: {latency: 5ms}\n", "key 'bandwidth' is missing");
    refuse(SITES COORDINATOR STEPS "default_link: {latency: 5, bandwidth: 1Gbit}\n", "latency '5' is not a time");
    refuse(SITES COORDINATOR STEPS "links: [{between: [oslo], latency: 1ms, bandwidth: 1Gbit}]\n", "must name two");
    refuse(SITES COORDINATOR STEPS "links: [{between: [oslo, rome], latency: 1ms, bandwidth: 1Gbit}]\n",
           "'rome' is none of the sites");
    refuse(SITES COORDINATOR STEPS "links: [{between: [oslo, oslo], latency: 1ms, bandwidth: 1Gbit}]\n", "with itself");
    refuse(SITES COORDINATOR STEPS "links:\n  - {between: [oslo, lima], latency: 1ms, bandwidth: 1Gbit}\n"
                                   "  - {between: [lima, oslo], latency: 2ms, bandwidth: 1Gbit}\n",
           "10:5: error: link: these two have a link already");
    refuse(SITES COORDINATOR STEPS "links: [{between: [oslo, lima], bandwidth: fast, latency: 1ms}]\n",
           "bandwidth 'fast' is not a rate");
    refuse(SITES "coordinator: {address: \"h:1\", key: " KEY_D ", bandwidth: 3}\n" STEPS, "'3' is not a rate");
    refuse(SITES COORDINATOR STEPS "clip_update: 0\n", "clip_update must be greater than 0");
    refuse(SITES COORDINATOR STEPS "dp: {clip: 1, noise: 1}\nhide_metrics: false\n",
           "with dp no site tells its rows and losses");
    refuse(SITES COORDINATOR STEPS "drop_after: 0\n", "drop_after must be");
    refuse(SITES COORDINATOR STEPS "drop_after: soon\n", "drop_after must be");
    refuse(SITES COORDINATOR STEPS "quorum: 3\n", "unknown key 'quorum'");
    refuse(SITES COORDINATOR "rounds: 3\n", "key 'local_steps' is missing");
    refuse("sites:\n  - {name: a, cluster: a.yaml, key: " KEY_A "}\n" COORDINATOR STEPS,
           "secure aggregation needs at least 3 sites");
    refuse("rounds: 3\n", "key 'sites' is missing");
    refuse("- 3\n", "must be a mapping");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_that_may_be_said_is_read),
        cmocka_unit_test(what_is_not_said_has_its_default),
        cmocka_unit_test(links_are_read),
        cmocka_unit_test(dp_hides_metrics),
        cmocka_unit_test(averages_are_kept),
        cmocka_unit_test(overlap_is_read),
        cmocka_unit_test(the_command_line_holds),
        cmocka_unit_test(what_is_wrong_is_refused_at_its_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
