/* Gateways and ranks of two sites over real connections on this host: what is cut comes back and nothing is lost, who
 * is not known stays outside, and who starts again is noticed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "runtime/program/message_tags.h"
#include "runtime/wire/client.h"
#include "runtime/wire/gateway_parts.h"
#include "tests/common/scratch.h"
#include "tests/runtime/wire/relay.h"

enum { SITES = 2, RANKS = 4, SECOND = 2 };

static const int site_of[RANKS] = {0, 1, 0, 1};
static const double patience = 120; /* seconds, on the busiest machine */

/* What stands for a site's machine. */
typedef struct Machine {
    WireSiteFile file;
    WireKeys keys;
    WireGateway *gateway;
    char local[80];
    pthread_t thread;
    int stop;
    const char *audit;
} Machine;

static Relay *relay;                /* in front of site 0 */
static Machine machines[SITES + 1]; /* and a second start of site 1 */
static WireClient *clients[RANKS];

static void write_site_file(const char *path, const char *run, int site)
{
    FREED_WITH(buffer_free) Buffer text = {0};
    buffer_print(
        &text,
        "{\"format\":\"skycc.site/1\",\"run\":\"%s\",\"site\":\"%s\",\"sites\":[{\"name\":\"a\",\"address\":"
        "\"127.0.0.1:%d\",\"key\":\"%s\"},{\"name\":\"b\",\"address\":null,\"key\":\"%s\"}],"
        "\"rank_sites\":[0,1,0,1],\"largest_message_bytes\":8388608,\"plan\":\"p\",\"tensors\":[{\"tensor\":\"x\","
        "\"kind\":\"activation\",\"from_stage\":0,\"to_stage\":1,\"from\":0,\"to\":1,\"tag\":%d,\"tags\":2}]}",
        run, site ? "b" : "a", relay_port(relay), machines[0].keys.public_key, machines[1].keys.public_key,
        TAG_FIRST_BOUNDARY);
    write_bytes(path, text.bytes, text.size);
}

static void *run_gateway(void *argument)
{
    Machine *machine = argument;
    wire_gateway_run(machine->gateway, machine->stop);
    return NULL;
}

static void start_gateway(int site, const char *run, double site_timeout)
{
    static int number;
    Diagnostics diagnostics = {0};
    Machine *machine = &machines[site];
    char path[32];
    snprintf(path, sizeof path, "site-%d.json", number);
    snprintf(machine->local, sizeof machine->local, "ipc://gateway-%d", number++);
    write_site_file(path, run, site);
    if (!wire_site_file_read(&machine->file, path, &diagnostics)) diagnostics_print(&diagnostics, stderr);
    const WireGatewayOptions options = {&machine->file,
                                        &machine->keys,
                                        machine->local,
                                        site ? NULL : "tcp://127.0.0.1:*",
                                        site_timeout,
                                        machine->audit,
                                        NULL};
    machine->gateway = wire_gateway_open(&options, &diagnostics);
    diagnostics_print(&diagnostics, stderr);
    assert_non_null(machine->gateway);
    if (site == 0) relay_to(relay, atoi(strrchr(wire_gateway_place(machine->gateway), ':') + 1));
    machine->stop = eventfd(0, EFD_CLOEXEC);
    assert_int_equal(pthread_create(&machine->thread, NULL, run_gateway, machine), 0);
}

/* The gateway itself stays, to be looked at. */
static void stop_gateway(int site)
{
    uint64_t one = 1;
    assert_int_equal(write(machines[site].stop, &one, sizeof one), sizeof one);
    pthread_join(machines[site].thread, NULL);
    close(machines[site].stop);
}

static void close_gateway(int site)
{
    wire_gateway_close(machines[site].gateway);
    machines[site].gateway = NULL;
    wire_site_file_free(&machines[site].file);
}

static void open_clients(int site)
{
    Diagnostics diagnostics = {0};
    for (int r = 0; r < RANKS; r++) {
        if (site_of[r] != site) continue;
        const WireClientOptions options = {machines[site].local, NULL, r, RANKS, site, SITES};
        clients[r] = wire_client_open(&options, &diagnostics);
        assert_non_null(clients[r]);
    }
}

static void close_clients(void)
{
    for (int r = 0; r < RANKS; r++)
        if (clients[r]) wire_client_close(clients[r]);
    memset(clients, 0, sizeof clients);
}

static int taken[RANKS]; /* messages with a tag below 0 */

static void take(void *context, int from, int tag, const void *bytes, size_t size)
{
    (void)from, (void)bytes;
    int *count = context;
    *count -= tag;
    assert_int_equal(size, 3);
}

static void progress(void)
{
    for (int r = 0; r < RANKS; r++)
        if (clients[r]) wire_client_progress(clients[r], take, &taken[r]);
}

static void wait_a_little(double limit, const char *what)
{
    if (monotonic_seconds() > limit) fail_msg("waited in vain for %s", what);
    usleep(500);
}

#define WAIT_UNTIL(condition)                                                                                          \
    do {                                                                                                               \
        double limit = monotonic_seconds() + patience;                                                                 \
        while (true) {                                                                                                 \
            progress();                                                                                                \
            if (condition) break;                                                                                      \
            wait_a_little(limit, #condition);                                                                          \
        }                                                                                                              \
    } while (false)

static WireState state_at(int rank) { return wire_client_state(clients[rank], 1 - site_of[rank])->state; }

static bool all_up(void)
{
    for (int r = 0; r < RANKS; r++)
        if (state_at(r) != WIRE_UP) return false;
    return true;
}

static int enter(void **state)
{
    scratch_folder_enter(state);
    relay = relay_open();
    for (int s = 0; s < SITES; s++)
        assert_int_equal(zmq_curve_keypair(machines[s].keys.public_key, machines[s].keys.secret_key), 0);
    memset(taken, 0, sizeof taken);
    return 0;
}

static int leave(void **state)
{
    relay_close(relay);
    return scratch_folder_leave(state);
}

static void start_all(void)
{
    for (int s = 0; s < SITES; s++) start_gateway(s, "run", 0);
    for (int s = 0; s < SITES; s++) open_clients(s);
}

static void end_all(void)
{
    close_clients();
    for (int s = 0; s < SITES; s++) { /* who is left sees that the other is gone, and waits for it no more */
        stop_gateway(s);
        close_gateway(s);
    }
}

/* From every rank to both of the other site; some bytes say which message it is. */
enum { SIZE = 300000, MESSAGES = 12 };

static uint8_t byte_of(int from, int to, int number, size_t i)
{
    return (uint8_t)((size_t)from * 7 + (size_t)to * 13 + (size_t)number * 31 + i / 3);
}

static void test_cuts(void **state)
{
    (void)state;
    static uint8_t sent[SIZE], received[RANKS][RANKS][MESSAGES][SIZE];
    int pending = 0, ends = 0;
    start_all();
    for (int round = 0; round < MESSAGES; round++) {
        for (int from = 0; from < RANKS; from++)
            for (int to = 0; to < RANKS; to++) {
                if (site_of[from] == site_of[to]) continue;
                size_t size = round % 3 ? SIZE : (size_t)round;
                for (size_t i = 0; i < size; i++) sent[i] = byte_of(from, to, round, i);
                if (round % 2) wire_client_receive(clients[to], from, 5, received[from][to][round], size, &pending);
                wire_client_send(clients[from], to, 5, sent, size);
                wire_client_send(clients[from], to, -1, "abc", 3);
                if (round % 2 == 0)
                    wire_client_receive(clients[to], from, 5, received[from][to][round], size, &pending);
            }
        if (round % 4 == 1) {
            relay_cut(relay);
            WAIT_UNTIL(state_at(1) != WIRE_UP); /* who connects sees it at once */
            ends = relay_connections(relay);
        }
        if (round % 4 == 2) {
            relay_mend(relay);
            WAIT_UNTIL(relay_connections(relay) > ends);
        }
    }
    WAIT_UNTIL(pending == 0 && all_up());
    for (int r = 0; r < RANKS; r++) {
        WAIT_UNTIL(taken[r] == 2 * MESSAGES);
        assert_int_equal(wire_client_dropped(clients[r]), 0);
    }
    for (int from = 0; from < RANKS; from++)
        for (int to = 0; to < RANKS; to++)
            for (int round = 0; site_of[from] != site_of[to] && round < MESSAGES; round++)
                for (size_t i = 0; i < (round % 3 ? SIZE : (size_t)round); i++)
                    if (received[from][to][round][i] != byte_of(from, to, round, i))
                        fail_msg("byte %zu of message %d from %d to %d", i, round, from, to);
    end_all();
}

static void test_strangers(void **state)
{
    (void)state;
    start_all();
    WAIT_UNTIL(all_up());
    /* Without any key: garbage, and nothing at all. */
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons((uint16_t)relay_port(relay)),
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    static const char garbage[] = "GET / HTTP/1.0\r\n\r\n\377\377\377\377\377\377\377\377\177garbage";
    int descriptors[8];
    for (int i = 0; i < 8; i++) {
        descriptors[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(descriptors[i], (const struct sockaddr *)&address, sizeof address), 0);
        if (i % 2) send(descriptors[i], garbage, sizeof garbage, MSG_NOSIGNAL);
    }
    for (int i = 2; i < 8; i++) close(descriptors[i]); /* two stay and say nothing more */
    /* With a key that nobody pinned, and with one that is pinned, for what is not of this run. */
    char place[64];
    WireKeys stranger;
    zmq_curve_keypair(stranger.public_key, stranger.secret_key);
    void *context = zmq_ctx_new(), *sockets[2];
    snprintf(place, sizeof place, "tcp://127.0.0.1:%d", relay_port(relay));
    for (int i = 0; i < 2; i++) {
        sockets[i] = wire_socket(context, ZMQ_DEALER);
        wire_socket_pin(sockets[i], i ? &machines[1].keys : &stranger, machines[0].keys.public_key);
        assert_int_equal(zmq_connect(sockets[i], place), 0);
        uint8_t header[WIRE_HEADER];
        const WireFrame frame = {.kind = WIRE_DATA, .run = {1, 1}, .from = 1};
        const WireFrame hello = {.kind = WIRE_HELLO, .run = {1, 1}, .incarnation = 5};
        wire_frame_write(&frame, header);
        zmq_send(sockets[i], header, sizeof header, 0);
        zmq_send(sockets[i], "two", 3, ZMQ_SNDMORE);
        zmq_send(sockets[i], "parts", 5, 0);
        wire_frame_write(&hello, header);
        zmq_send(sockets[i], header, sizeof header, 0);
    }
    WAIT_UNTIL(machines[0].gateway->odd >= 1 && machines[0].gateway->strangers >= 4 &&
               machines[0].gateway->links[1].peer.counters.dropped[WIRE_DROP_RUN] >= 1);
    /* The run goes on, on the connection that it had. */
    int pending = 0;
    char text[3] = "";
    wire_client_receive(clients[0], 1, 1, text, 3, &pending);
    wire_client_receive(clients[3], 2, 1, text, 3, &pending);
    wire_client_send(clients[1], 0, 1, "yes", 3);
    wire_client_send(clients[2], 3, 1, "yes", 3);
    WAIT_UNTIL(pending == 0);
    assert_memory_equal(text, "yes", 3);
    assert_int_equal(machines[0].gateway->links[1].peer.counters.connections, 1);
    for (int i = 0; i < 2; i++) {
        wire_socket_option(sockets[i], ZMQ_LINGER, 0);
        zmq_close(sockets[i]);
        close(descriptors[i]);
    }
    zmq_ctx_term(context);
    end_all();
}

static void test_a_gateway_started_again(void **state)
{
    (void)state;
    start_all();
    WAIT_UNTIL(all_up());
    stop_gateway(1);
    close_gateway(1);
    WAIT_UNTIL(wire_client_is_lost(clients[1]) && wire_client_is_lost(clients[3]));
    start_gateway(1, "run", 0);
    WAIT_UNTIL(state_at(0) == WIRE_RETURNED && state_at(2) == WIRE_RETURNED);
    /* So site 0 starts again, too: once. */
    close_clients();
    stop_gateway(0);
    close_gateway(0);
    start_gateway(0, "run", 0);
    for (int s = 0; s < SITES; s++) open_clients(s);
    WAIT_UNTIL(all_up());
    int pending = 0;
    char text[4] = "";
    wire_client_receive(clients[0], 1, 1, text, 4, &pending);
    wire_client_send(clients[1], 0, 1, "back", 4);
    WAIT_UNTIL(pending == 0);
    end_all();
}

/* A second start of site 1: the first goes on undisturbed, the other is told why it ends. */
static void test_a_site_in_two_places(void **state)
{
    (void)state;
    start_all();
    WAIT_UNTIL(all_up());
    WireClient *of_first = clients[1];
    machines[SECOND].keys = machines[1].keys;
    start_gateway(SECOND, "run", 0);
    Diagnostics diagnostics = {0};
    const WireClientOptions options = {machines[SECOND].local, NULL, 1, RANKS, 1, SITES};
    clients[1] = wire_client_open(&options, &diagnostics);
    assert_non_null(clients[1]);
    WAIT_UNTIL(state_at(1) == WIRE_ENDED);
    assert_int_equal(wire_client_state(clients[1], 0)->exit_code, EXIT_RUN_FAILED);
    assert_non_null(strstr(wire_client_state(clients[1], 0)->why, "site b runs in two places"));
    assert_true(state_at(0) == WIRE_UP && state_at(2) == WIRE_UP && state_at(3) == WIRE_UP);
    wire_client_close(clients[1]);
    stop_gateway(SECOND);
    close_gateway(SECOND);
    clients[1] = of_first;
    int pending = 0;
    char text[3] = "";
    wire_client_receive(clients[0], 1, 1, text, 3, &pending);
    wire_client_send(clients[1], 0, 1, "on", 3);
    WAIT_UNTIL(pending == 0);
    assert_string_equal(text, "on");
    end_all();
}

/* Whether site 0 says to the start of site 1 behind the socket that it is one too many. */
static bool is_turned_away(void *socket)
{
    uint8_t bytes[2 * WIRE_HEADER];
    WireFrame frame;
    for (int size; (size = zmq_recv(socket, bytes, sizeof bytes, ZMQ_DONTWAIT)) >= 0;)
        if (wire_frame_read(&frame, bytes, (size_t)size) && frame.kind == WIRE_TWICE) return true;
    return false;
}

/* Two starts too many, which greet in turn: both are turned away. */
static void test_a_site_in_three_places(void **state)
{
    (void)state;
    enum { GREETINGS = 600 };
    void *context = zmq_ctx_new(), *sockets[2];
    bool away[2] = {false, false};
    start_all();
    WAIT_UNTIL(all_up());
    for (int i = 0; i < 2; i++) {
        sockets[i] = wire_socket(context, ZMQ_DEALER);
        wire_socket_pin(sockets[i], &machines[1].keys, machines[0].keys.public_key);
        assert_int_equal(zmq_connect(sockets[i], machines[0].gateway->place), 0);
    }
    for (int greeting = 0; greeting < GREETINGS && !(away[0] && away[1]); greeting++) {
        uint8_t header[WIRE_HEADER];
        int i = greeting % 2;
        const WireFrame hello = {.kind = WIRE_HELLO, .run = machines[0].file.run, .incarnation = 5 + (uint64_t)i};
        wire_frame_write(&hello, header);
        zmq_send(sockets[i], header, sizeof header, 0);
        for (double end = monotonic_seconds() + 0.2; monotonic_seconds() < end; usleep(10000)) progress();
        away[i] |= is_turned_away(sockets[i]);
    }
    assert_true(away[0] && away[1]);
    assert_true(all_up());
    for (int i = 0; i < 2; i++) {
        wire_socket_option(sockets[i], ZMQ_LINGER, 0);
        zmq_close(sockets[i]);
    }
    zmq_ctx_term(context);
    end_all();
}

/* A site whose key the other one has wrong is turned away, and let in once that is repaired. */
static void test_a_site_known_later(void **state)
{
    (void)state;
    const WireKeys own = machines[1].keys;
    assert_int_equal(zmq_curve_keypair(machines[1].keys.public_key, machines[1].keys.secret_key), 0);
    start_gateway(0, "run", 0);
    machines[1].keys = own;
    start_gateway(1, "run", 0);
    open_clients(1);
    WAIT_UNTIL(*(volatile uint64_t *)&machines[0].gateway->strangers > 0);
    stop_gateway(0);
    close_gateway(0);
    start_gateway(0, "run", 0);
    open_clients(0);
    WAIT_UNTIL(all_up());
    end_all();
}

/* What a site with the right key says reaches ranks as it is, and people escaped: it forges no line and controls no
 * terminal. */
static void test_a_rank_that_ends_the_run(void **state)
{
    (void)state;
    static const char why[] = "the loss is nan\033[2J\nskycc: error: forged\r\302\233"
                              "1m\342\200\256\377";
    char said[4096] = "";
    FILE *file = tmpfile();
    int errors = dup(STDERR_FILENO);
    start_all();
    WAIT_UNTIL(all_up());
    assert_non_null(file);
    dup2(fileno(file), STDERR_FILENO);
    wire_client_fail(clients[3], 7, why);
    WAIT_UNTIL(state_at(0) == WIRE_ENDED && state_at(2) == WIRE_ENDED);
    assert_int_equal(wire_client_state(clients[0], 1)->exit_code, 7);
    assert_string_equal(wire_client_state(clients[2], 1)->why, why);
    assert_int_equal(state_at(1), WIRE_UP);
    end_all();
    dup2(errors, STDERR_FILENO);
    close(errors);
    rewind(file);
    assert_true(fread(said, 1, sizeof said - 1, file) > 0);
    fclose(file);
    assert_non_null(
        strstr(said, "ended the run: the loss is nan\\x1b[2J\\nskycc: error: forged\\r\\u009b1m\\u202e\\xff\n"));
    assert_null(strpbrk(said, "\033\r\233\377"));
}

static void test_a_site_that_never_comes(void **state)
{
    (void)state;
    start_gateway(0, "run", 0.2);
    open_clients(0);
    WAIT_UNTIL(state_at(0) == WIRE_GIVEN_UP);
    close_clients();
    stop_gateway(0);
    close_gateway(0);
}

/* Messages of another size than the receive's are left out, and so are ranks that name another run. */
static void test_sizes(void **state)
{
    (void)state;
    Diagnostics diagnostics = {0};
    start_all();
    int pending = 0;
    char text[4] = "";
    wire_client_receive(clients[0], 1, 1, text, 4, &pending);
    wire_client_send(clients[1], 0, 1, "longer", 6);
    wire_client_send(clients[1], 0, 1, "good", 4);
    WAIT_UNTIL(pending == 0);
    assert_memory_equal(text, "good", 4);
    assert_int_equal(wire_client_dropped(clients[0]), 1);
    const WireClientOptions options = {machines[0].local, NULL, 2, RANKS + 1, 0, SITES};
    WireClient *other = wire_client_open(&options, &diagnostics);
    WAIT_UNTIL(machines[0].gateway->odd >= 1);
    assert_false(wire_client_has_joined(other));
    wire_client_close(other);
    end_all();
}

static const WireCrossing *counted(const WireAudit *audit, WireClass what, const char *from)
{
    for (size_t i = 0; i < audit->crossing_count; i++)
        if (audit->crossings[i].what == what && strcmp(audit->crossings[i].from_site, from) == 0)
            return &audit->crossings[i];
    fail_msg("nothing was counted as %s from %s", wire_class_name(what), from);
    return NULL;
}

/* Whatever ranks send is counted at both ends as what it is, also what no program of the run sends; over two starts. */
static void test_audits(void **state)
{
    (void)state;
    enum { TENSOR = WIRE_FIRST_TAG + TAG_FIRST_BOUNDARY };
    static char text[100];
    static const int tags[] = {TENSOR, TENSOR + 1, TENSOR + 2, WIRE_BARRIER, WIRE_FIRST_TAG + TAG_REPORT, -77};
    machines[0].audit = "a.audit";
    machines[1].audit = "b.audit";
    for (int start = 1; start <= 2; start++) {
        int pending = 0, before = taken[1];
        start_all();
        WAIT_UNTIL(all_up());
        wire_client_note(clients[0], WIRE_NOTE_STEP, 4, 2);
        wire_client_note(clients[0], WIRE_NOTE_EVALUATION, 4, 3);
        for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
            size_t size = tags[i] < 0 ? 3 : 10 + i;
            if (tags[i] >= 0) wire_client_receive(clients[1], 0, tags[i], text, size, &pending);
            wire_client_send(clients[0], 1, tags[i], text, size);
        }
        wire_client_receive(clients[3], 2, TENSOR, text, 9, &pending); /* the same tag, and not of those ranks */
        wire_client_send(clients[2], 3, TENSOR, text, 9);
        WAIT_UNTIL(pending == 0 && taken[1] == before + 77);
        end_all();
        for (int s = 0; s < SITES; s++) {
            Diagnostics diagnostics = {0};
            WireAudit audit;
            assert_true(wire_audit_read(&audit, machines[s].audit, &diagnostics));
            assert_true(audit.starts == start && !audit.running && audit.cut_short == 0 && audit.broken_off == 0);
            const WireCrossing *tensor = counted(&audit, WIRE_CLASS_TENSOR, "a");
            assert_true(tensor->messages == 2 * start && tensor->bytes == 21 * start);
            assert_true(tensor->least == 10 && tensor->most == 11);
            const WireCrossing *unknown = counted(&audit, WIRE_CLASS_UNKNOWN, "a");
            assert_true(unknown->messages == 3 * start && unknown->bytes == (12 + 3 + 9) * start);
            assert_int_equal(unknown->most, 12);
            assert_int_equal(counted(&audit, WIRE_CLASS_BARRIER, "a")->bytes, 13 * start);
            assert_int_equal(counted(&audit, WIRE_CLASS_LOSS, "a")->bytes, 14 * start);
            assert_int_equal(counted(&audit, WIRE_CLASS_END, "a")->messages, start);
            assert_true(counted(&audit, WIRE_CLASS_GREETING, "b")->messages >= start);
            assert_int_equal(audit.steps, s ? 0 : start);
            assert_int_equal(audit.repeated_steps, s ? 0 : start - 1);
            assert_int_equal(audit.evaluated_microbatches, s ? 0 : 3 * start);
            assert_int_equal(audit.longest_evaluation, s ? 0 : 4);
            wire_audit_free(&audit);
        }
    }
    for (int s = 0; s < SITES; s++) machines[s].audit = NULL;
}

/* Without a descriptor for it the audit waits, and the run does not; afterwards nothing is missing. */
static void test_an_audit_without_descriptors(void **state)
{
    (void)state;
    enum { MOST = 4096 };
    static int taken_up[MOST];
    struct rlimit before, low;
    int count = 0, next;
    machines[0].audit = "a.audit";
    start_all();
    WAIT_UNTIL(all_up());
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    next = dup(0);
    low = (struct rlimit){(rlim_t)next + 200, before.rlim_max};
    close(next);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    Diagnostics diagnostics = {0};
    WireAudit audit;
    for (int sent = 0; sent < 3; sent++) { /* strangers take what is given up for the audit, too */
        for (double end = monotonic_seconds() + 2.5; monotonic_seconds() < end; usleep(100))
            while (count < MOST && (next = dup(0)) >= 0) taken_up[count++] = next;
        wire_client_send(clients[0], 1, -77, "abc", 3);
    }
    WAIT_UNTIL(taken[1] == 3 * 77);
    assert_true(all_up());
    while (count) close(taken_up[--count]);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    end_all();
    assert_true(wire_audit_read(&audit, "a.audit", &diagnostics));
    assert_int_equal(counted(&audit, WIRE_CLASS_UNKNOWN, "a")->messages, 3);
    wire_audit_free(&audit);
    machines[0].audit = NULL;
}

/* Whatever becomes of the file while the run goes on, the run does. What somebody else put there stays as it is. */
static void test_an_audit_that_is_taken(void **state)
{
    (void)state;
    enum { OTHERS, FOLDER, FIFO, UNLINKED, CASES };
    machines[0].audit = "a.audit";
    for (int what = 0; what < CASES; what++) {
        struct stat status;
        taken[1] = 0;
        start_all();
        WAIT_UNTIL(all_up());
        if (what == OTHERS) write_text("other", "somebody else's");
        if (what == FIFO) assert_int_equal(mkfifo("other", 0644), 0);
        if (what == OTHERS || what == FIFO) assert_int_equal(rename("other", "a.audit"), 0);
        if (what == UNLINKED) assert_int_equal(remove("a.audit"), 0);
        while (what == FOLDER && mkdir("a.audit", 0755) != 0) remove("a.audit"); /* it may be written meanwhile */
        wire_client_send(clients[0], 1, -77, "abc", 3);
        WAIT_UNTIL(taken[1] == 77);
        if (what == FIFO) { /* it is looked at meanwhile, and else in the end */
            usleep(2600000);
            wire_client_send(clients[0], 1, -77, "abc", 3);
            WAIT_UNTIL(taken[1] == 2 * 77);
        }
        end_all();
        if (what == OTHERS) assert_holds("a.audit", "somebody else's");
        assert_int_equal(stat("a.audit", &status), 0);
        assert_true(what == FOLDER ? S_ISDIR(status.st_mode) : what != FIFO || S_ISFIFO(status.st_mode));
        assert_int_equal(remove("a.audit"), 0);
    }
    machines[0].audit = NULL;
}

/* Nor does it keep a site from starting again: no name is left for the file that would replace this one. */
static void test_an_audit_that_cannot_be_continued(void **state)
{
    (void)state;
    static char longest[256];
    memset(longest, 'a', sizeof longest - 1);
    machines[0].audit = "a.audit";
    for (int start = 0; start < 2; start++) {
        start_all();
        WAIT_UNTIL(all_up());
        end_all();
        if (start == 0) assert_int_equal(rename("a.audit", longest), 0);
        machines[0].audit = longest;
    }
    machines[0].audit = NULL;
}

static void test_what_cannot_be_opened(void **state)
{
    (void)state;
    Diagnostics diagnostics = {0};
    WireSiteFile file;
    write_site_file("site.json", "run", 0);
    assert_true(wire_site_file_read(&file, "site.json", &diagnostics));
    WireGatewayOptions options = {&file, &machines[1].keys, "ipc://x", "tcp://127.0.0.1:*", 0, NULL, NULL};
    assert_null(wire_gateway_open(&options, &diagnostics));
    expect_complaint(&diagnostics, EXIT_BAD_INPUT, "not that of site a");
    options.keys = &machines[0].keys;
    options.bind = "tcp://192.0.2.1:5555";
    assert_null(wire_gateway_open(&options, &diagnostics));
    expect_complaint(&diagnostics, EXIT_RUN_FAILED, "cannot listen");
    options.bind = "tcp://127.0.0.1:*";
    options.local = "ipc://no/such/folder/x";
    assert_null(wire_gateway_open(&options, &diagnostics));
    expect_complaint(&diagnostics, EXIT_RUN_FAILED, "cannot listen for ranks");
    options.local = "ipc://y";
    static const char *const audits[][2] = {
        {"-", "no regular file"},
        {".", "no regular file"},
        {"site.json", "format"},
        {"no/such/folder/audit", "cannot create"},
    };
    for (size_t i = 0; i < sizeof audits / sizeof *audits; i++) {
        options.audit = audits[i][0];
        assert_null(wire_gateway_open(&options, &diagnostics));
        expect_complaint(&diagnostics, EXIT_BAD_INPUT, audits[i][1]);
    }
    pid_t child = fork(); /* whose limit can only fall */
    if (child == 0) {
        const struct rlimit low = {24, 24};
        bool refused = setrlimit(RLIMIT_NOFILE, &low) == 0 && !wire_gateway_open(&options, &diagnostics);
        _exit(!(refused && diagnostics.exit_code == EXIT_RUN_FAILED &&
                strstr(diagnostics.first->message, "limit of open files")));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    wire_site_file_free(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_cuts, enter, leave),
        cmocka_unit_test_setup_teardown(test_strangers, enter, leave),
        cmocka_unit_test_setup_teardown(test_a_gateway_started_again, enter, leave),
        cmocka_unit_test_setup_teardown(test_a_site_in_two_places, enter, leave),
        cmocka_unit_test_setup_teardown(test_a_site_in_three_places, enter, leave),
        cmocka_unit_test_setup_teardown(test_a_site_known_later, enter, leave),
        cmocka_unit_test_setup_teardown(test_a_rank_that_ends_the_run, enter, leave),
        cmocka_unit_test_setup_teardown(test_a_site_that_never_comes, enter, leave),
        cmocka_unit_test_setup_teardown(test_sizes, enter, leave),
        cmocka_unit_test_setup_teardown(test_audits, enter, leave),
        cmocka_unit_test_setup_teardown(test_an_audit_without_descriptors, enter, leave),
        cmocka_unit_test_setup_teardown(test_an_audit_that_is_taken, enter, leave),
        cmocka_unit_test_setup_teardown(test_an_audit_that_cannot_be_continued, enter, leave),
        cmocka_unit_test_setup_teardown(test_what_cannot_be_opened, enter, leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
