/* A site at the coordinator's port: an update of several pieces, of which some are under way while the connection is
 * cut. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <unistd.h>

#include "federation/connect/serve.h"
#include "federation/connect/site_link.h"
#include "federation/update_pieces.h"
#include "tests/common/scratch.h"

enum { ELEMENTS = 330, PIECE = 16, PIECES = 21, LEAST_BEFORE_CUT = 3 };

static Federation federation;
static FederationSite member = {.name = "paris"};
static WireKeys head_keys, site_keys;
static Coordinator coordinator;
static Server server;
static pthread_t thread;
static volatile sig_atomic_t server_ended, site_ended;
static int sent; /* pieces that were handed to the link */

static void *serve(void *unused)
{
    server_run(&server, 5, &server_ended);
    return unused;
}

static void start_server(void)
{
    Diagnostics diagnostics = {0};
    server_ended = 0;
    if (!server_open(&server, &coordinator, &head_keys, federation.address, &diagnostics)) {
        diagnostics_print(&diagnostics, stderr);
        fail();
    }
    assert_int_equal(pthread_create(&thread, NULL, serve, NULL), 0);
}

static void stop_server(void)
{
    server_ended = SIGTERM;
    pthread_join(thread, NULL);
    server_close(&server);
}

/* The coordinator goes on with what has arrived, as when the network is cut. */
static bool exchange_with_a_cut(void *link, const Buffer *request, Buffer *reply)
{
    bool is_piece = request && !reply;
    if (is_piece && ++sent == LEAST_BEFORE_CUT + UPDATE_PIECES_AHEAD) {
        stop_server();
        start_server();
    }
    return site_link_exchange(link, request, reply);
}

static void make_coordinator(void)
{
    static char address[32];
    Diagnostics diagnostics = {0};
    GlobalModel model;
    int number = (int)getpid();
    snprintf(address, sizeof address, "127.%d.%d.9:%d", 1 + number % 250, number / 250 % 250, 20000 + number % 10000);
    assert_true(wire_keys_write(&head_keys, "head", &diagnostics) &&
                wire_keys_write(&site_keys, "paris", &diagnostics));
    member.key = site_keys.public_key;
    federation = (Federation){.site_count = 1,
                              .sites = &member,
                              .address = address,
                              .key = head_keys.public_key,
                              .rounds = 1,
                              .outer = outer_rule_default(OUTER_AVERAGE),
                              .least = 1,
                              .round_timeout_s = 60,
                              .fragments = 1,
                              .update_piece = PIECE};
    global_model_open(&model, federation.compiled.identity, &(const char *){"w"}, &(Shape){1, {ELEMENTS}}, 1, false);
    for (size_t i = 0; i < ELEMENTS; i++) model.values[i] = 1;
    coordinator_begin(&coordinator, &federation, &model, ".", NULL, NULL);
}

static void an_update_goes_on_behind_a_cut(void **state)
{
    (void)state;
    Diagnostics diagnostics = {0};
    SiteLink link;
    Meeting meeting;
    float update[ELEMENTS];
    make_coordinator();
    start_server();
    for (size_t i = 0; i < ELEMENTS; i++) update[i] = 0.01F * (float)sin((double)i);
    assert_true(site_link_open(&link, &federation, &site_keys, &site_ended, &diagnostics));
    assert_true(meeting_open(&meeting, &federation, NULL, 0, update, ELEMENTS, 5));
    meeting.exchange = exchange_with_a_cut;
    meeting.context = &link;
    for (MeetingState now = MEETING_WAITS; now != MEETING_OVER; usleep(1000)) {
        now = meeting_step(&meeting);
        assert_true(now != MEETING_REFUSED);
    }
    meeting_close(&meeting);
    site_link_close(&link);
    stop_server();
    assert_int_equal(meeting.said.round, 1);
    assert_true(sent > PIECES && sent <= PIECES + UPDATE_PIECES_AHEAD + 1); /* those that were under way, again */
    assert_int_equal(coordinator.sites[0].refused, 0);
    for (size_t i = 0; i < ELEMENTS; i++) assert_true(fabsf(coordinator.model.values[i] - (1 - update[i])) < 1e-6F);
    coordinator_free(&coordinator);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_update_goes_on_behind_a_cut, scratch_folder_enter, scratch_folder_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
