#include "runtime/train/world.h"

#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "runtime/train/last_words.h"

/* Tags of the control communicator. */
enum { TAG_QUESTION = 1, TAG_ANSWER };

enum { ROUNDS_AWAKE = 8 }; /* tests before sleeping on: MPICH takes one message a test, large ones take several */

enum { ABORT_SECONDS = 3 };

static const double least_sleep = 20e-6, most_sleep = 1e-3;
static const double helping_sleep = 0.25e-3, arrival_time = 3e-3;
static const double most_bell_sleep =
    4e-3;                               /* what does not ring: answers of large messages, collectives, other hosts */
static const double asking_time = 0.25; /* share of the time-out after which a peer is asked whether it is alive */

static void sleep_for(double seconds)
{
    struct timespec time = {(time_t)seconds, (long)(fmod(seconds, 1) * 1e9)};
    nanosleep(&time, NULL);
}

static int last_exit_code;

/* MPI_Abort waits for a launcher's answer, for ever if it is gone. */
static void leave(int number)
{
    (void)number;
    _exit(last_exit_code);
}

static _Noreturn void end_all(const World *world, int exit_code, const char *format, va_list arguments)
{
    Arena arena = {0};
    const char *reason = arena_format_va(&arena, format, arguments);
    const char *place =
        *world->step > 0 ? arena_format(&arena, "step %lld", (long long)*world->step) : "before training";
    fprintf(stderr, "skycc: error: rank %d (%s), %s: %s\n", world->rank, world->device, place, reason);
    fflush(NULL);
    last_words_await_reader();
    last_exit_code = exit_code;
    signal(SIGALRM, leave);
    alarm(ABORT_SECONDS);
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    _exit(exit_code);
}

_Noreturn void world_fail(World *world, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    end_all(world, EXIT_RUN_FAILED, format, arguments);
}

_Noreturn void world_diverged(World *world, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    end_all(world, EXIT_DIVERGED, format, arguments);
}

static World *failing_world; /* MPI error handlers carry no context */

static void on_mpi_error(MPI_Comm *communicator, int *code, ...)
{
    (void)communicator;
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(*code, text, &length);
    world_fail(failing_world, "communication failed: %.*s", length, text);
}

/* All ranks, numbered as their programs are, whatever order the launcher started them in. */
static MPI_Comm ordered(const SkyProgram *program, MPI_Errhandler handler)
{
    MPI_Comm communicator;
    MPI_Comm_split(MPI_COMM_WORLD, 0, (int)program->rank, &communicator);
    MPI_Comm_set_errhandler(communicator, handler);
    return communicator;
}

static void add_request(World *world, MPI_Request request, int *pending, bool is_send)
{
    if (world->request_count == world->request_capacity) {
        int capacity = world->request_capacity ? 2 * world->request_capacity : 64;
        world->requests = memory_resize(world->requests, (size_t)capacity, sizeof *world->requests);
        world->pending = memory_resize(world->pending, (size_t)capacity, sizeof *world->pending);
        world->is_send = memory_resize(world->is_send, (size_t)capacity, sizeof *world->is_send);
        world->completed = memory_resize(world->completed, (size_t)capacity, sizeof *world->completed);
        world->request_capacity = capacity;
    }
    world->requests[world->request_count] = request;
    world->is_send[world->request_count] = is_send;
    world->send_count += is_send;
    world->pending[world->request_count++] = pending;
    ++*pending;
}

static void receive_on(World *world, MPI_Comm communicator, void *bytes, size_t size, int peer, int tag, int *pending)
{
    MPI_Request request;
    if (size > INT_MAX) bug("message of %zu bytes", size);
    MPI_Irecv(bytes, (int)size, MPI_BYTE, peer, tag, communicator, &request);
    add_request(world, request, pending, false);
}

static void send_on(World *world, MPI_Comm communicator, const void *bytes, size_t size, int peer, int tag,
                    int *pending)
{
    MPI_Request request;
    if (size > INT_MAX) bug("message of %zu bytes", size);
    MPI_Isend(bytes, (int)size, MPI_BYTE, peer, tag, communicator, &request);
    add_request(world, request, pending, true);
    if (world->bells && world->near[peer]) doorbell_ring(&world->bells[peer]);
}

void world_send(World *world, const void *bytes, size_t size, int peer, int tag, int *pending)
{
    send_on(world, world->data, bytes, size, peer, tag, pending);
}

void world_receive(World *world, void *bytes, size_t size, int peer, int tag, int *pending)
{
    receive_on(world, world->data, bytes, size, peer, tag, pending);
}

static void await_question(World *world)
{
    receive_on(world, world->control, &world->live.question, sizeof world->live.question, MPI_ANY_SOURCE, TAG_QUESTION,
               &world->live.question_pending);
}

void world_open(World *world, const SkyProgram *program, double timeout, volatile int64_t *step)
{
    *world = (World){.device = program->device_name, .timeout = timeout, .step = step, .shares_cores = true};
    failing_world = world;
    MPI_Errhandler handler;
    MPI_Comm_create_errhandler(on_mpi_error, &handler);
    world->data = ordered(program, handler);
    world->control = ordered(program, handler);
    MPI_Errhandler_free(&handler);
    MPI_Comm_rank(world->data, &world->rank);
    MPI_Comm_size(world->data, &world->size);
    await_question(world);
    prctl(PR_SET_TIMERSLACK, 1000UL); /* the default adds 50 us to every short sleep */
}

typedef struct RankPlace {
    char host[64], bells[DOORBELL_NAME];
    int threads;
} RankPlace;

/* Whether `mine` holds on all ranks of this host. */
static bool all_near(World *world, bool mine)
{
    bool *all = memory_allocate((size_t)world->size), everywhere = true;
    world_allgather(world, &mine, sizeof mine, all, "agreement on shared memory");
    for (int r = 0; r < world->size; r++) everywhere = everywhere && (all[r] || !world->near[r]);
    free(all);
    return everywhere;
}

/* The first rank of each host makes its bells. */
static void hang_bells(World *world, const RankPlace *places)
{
    int first = world->first_here;
    const char *name = places[first].bells;
    Bell *bells = first == world->rank ? doorbell_map(name, world->size, true) : NULL;
    world_barrier(world, "shared memory");
    if (first != world->rank) bells = doorbell_map(name, world->size, false);
    bool hung = all_near(world, bells != NULL);
    if (first == world->rank) doorbell_unlink(name);
    if (hung && world->shares_cores)
        world->bells = bells;
    else
        doorbell_unmap(bells, world->size);
}

void world_meet_hosts(World *world, int threads)
{
    RankPlace mine = {.threads = threads}, *all = memory_allocate((size_t)world->size * sizeof *all);
    gethostname(mine.host, sizeof mine.host - 1);
    doorbell_name(mine.bells);
    world_allgather(world, &mine, sizeof mine, all, "hosts");
    long here = 0, cores = sysconf(_SC_NPROCESSORS_ONLN);
    world->one_host = true;
    world->near = memory_allocate((size_t)world->size * sizeof *world->near);
    for (int r = 0; r < world->size; r++) {
        world->near[r] = memcmp(all[r].host, mine.host, sizeof mine.host) == 0;
        if (world->near[r]) here += all[r].threads;
        world->one_host = world->one_host && world->near[r];
    }
    while (!world->near[world->first_here]) world->first_here++;
    memcpy(world->host, mine.host, sizeof world->host);
    world->shares_cores = here > cores;
    hang_bells(world, all);
    free(all);
}

void world_close(World *world)
{
    world_barrier(world, "the end of the run");
    while (world->request_count > 1) world_progress(world);
    MPI_Cancel(&world->requests[0]); /* the question that nobody will ask any more */
    MPI_Request_free(&world->requests[0]);
    MPI_Comm_free(&world->data);
    MPI_Comm_free(&world->control);
    doorbell_unmap(world->bells, world->size);
    free(world->near);
    free(world->requests);
    free(world->pending);
    free(world->is_send);
    free(world->completed);
    world->request_count = 0;
}

static void answer_questions(World *world)
{
    if (world->live.question_pending || world->live.reply_pending) return;
    world->live.reply = world->rank;
    send_on(world, world->control, &world->live.reply, sizeof world->live.reply, world->live.question, TAG_ANSWER,
            &world->live.reply_pending);
    await_question(world);
}

void world_progress(World *world)
{
    int count = 0;
    MPI_Status statuses[64];
    /* In windows of the status array: MPI_STATUSES_IGNORE makes gcc see a write through a null pointer. */
    for (int first = 0; first < world->request_count; first += 64) {
        int window = world->request_count - first < 64 ? world->request_count - first : 64;
        MPI_Testsome(window, world->requests + first, &count, world->completed, statuses);
        for (int i = 0; i < count && count != MPI_UNDEFINED; i++) --*world->pending[first + world->completed[i]];
    }
    int kept = 0;
    world->send_count = 0;
    for (int i = 0; i < world->request_count; i++)
        if (world->requests[i] != MPI_REQUEST_NULL) {
            world->requests[kept] = world->requests[i];
            world->is_send[kept] = world->is_send[i];
            world->send_count += world->is_send[i];
            world->pending[kept++] = world->pending[i];
        }
    world->request_count = kept;
    world->last_progress = monotonic_seconds();
    answer_questions(world);
}

/* What the bell of this rank shows: to be read before testing, so that a ring in between is not missed. */
static uint32_t bell_shows(const World *world)
{
    return world->bells ? atomic_load(&world->bells[world->rank].rings) : 0;
}

/* A large message on its way may need this rank's help at any time, on either side. */
static double longest_sleep(const World *world)
{
    if (world->send_count || world->last_progress - world->last_ring < arrival_time) return helping_sleep;
    return world->bells ? most_bell_sleep : most_sleep;
}

/* The bell again; notes when something began to arrive. */
static uint32_t listen(World *world, uint32_t seen)
{
    uint32_t shows = bell_shows(world);
    if (shows != seen) world->last_ring = monotonic_seconds();
    return shows;
}

/* At most `seconds`, less if a message comes. */
static void doze(World *world, uint32_t seen, double seconds)
{
    if (world->bells)
        doorbell_sleep(&world->bells[world->rank], seen, seconds);
    else
        sleep_for(seconds);
}

void world_sleep_until(World *world, double deadline)
{
    uint32_t seen = bell_shows(world);
    for (double left; (left = deadline - monotonic_seconds()) > 0;) {
        doze(world, seen, left < longest_sleep(world) ? left : longest_sleep(world));
        seen = listen(world, seen);
        for (int i = 0; i < ROUNDS_AWAKE; i++) world_progress(world);
    }
}

/* Whether `peer` answers a question before `deadline`. If not, the run is over: the messages are never completed. */
static bool is_alive(World *world, int peer, double deadline)
{
    int answer = -1, pending = 0;
    receive_on(world, world->control, &answer, sizeof answer, peer, TAG_ANSWER, &pending);
    send_on(world, world->control, &world->rank, sizeof world->rank, peer, TAG_QUESTION, &pending);
    while (pending && monotonic_seconds() < deadline) {
        sleep_for(most_sleep);
        world_progress(world);
    }
    return pending == 0;
}

/* The wait is long: returns if whom it is for is alive, and so waits or computes itself. */
static void suspect(World *world, WaitReason reason)
{
    double deadline = monotonic_seconds() + (1 - asking_time) * world->timeout;
    for (int peer = 0; peer < world->size; peer++) {
        if (peer == world->rank || (reason.peer >= 0 && reason.peer != peer) || is_alive(world, peer, deadline))
            continue;
        Arena arena = {0};
        const char *stage = reason.stage >= 0 ? arena_format(&arena, " (stage %d)", reason.stage) : "";
        const char *microbatch =
            reason.microbatch >= 0 ? arena_format(&arena, " of micro-batch %d", reason.microbatch) : "";
        world_fail(world, "rank %d%s has not answered for %g seconds; waited for %s%s", peer, stage, world->timeout,
                   reason.what, microbatch);
    }
}

void world_wait(World *world, const int *pending, WaitReason reason)
{
    if (!*pending) return;
    uint32_t seen = bell_shows(world);
    world_progress(world);
    double start = world->last_progress, pause = least_sleep;
    int rounds = world->shares_cores ? ROUNDS_AWAKE : 1;
    while (*pending) {
        if (world->shares_cores) {
            doze(world, seen, pause < longest_sleep(world) ? pause : longest_sleep(world));
            pause = pause * 1.5 < most_bell_sleep ? pause * 1.5 : most_bell_sleep;
        }
        seen = listen(world, seen);
        for (int i = 0; i < rounds && *pending; i++) world_progress(world);
        if (world->timeout > 0 && world->last_progress - start > asking_time * world->timeout) {
            suspect(world, reason);
            start = monotonic_seconds();
        }
    }
}

void world_allgather(World *world, const void *mine, size_t size, void *all, const char *what)
{
    MPI_Request request;
    int pending = 0;
    if (size > INT_MAX) bug("collective of %zu bytes", size);
    MPI_Iallgather(mine, (int)size, MPI_BYTE, all, (int)size, MPI_BYTE, world->control, &request);
    add_request(world, request, &pending, false);
    world_wait(world, &pending, (WaitReason){-1, -1, -1, what});
}

void world_broadcast(World *world, void *bytes, size_t size, int root, const char *what)
{
    MPI_Request request;
    int pending = 0;
    if (size > INT_MAX) bug("collective of %zu bytes", size);
    MPI_Ibcast(bytes, (int)size, MPI_BYTE, root, world->control, &request);
    add_request(world, request, &pending, false);
    world_wait(world, &pending, (WaitReason){-1, -1, -1, what});
}

void world_sum(World *world, double *values, size_t count, const char *what)
{
    MPI_Request request;
    int pending = 0;
    if (count > INT_MAX) bug("collective of %zu numbers", count);
    MPI_Iallreduce(MPI_IN_PLACE, values, (int)count, MPI_DOUBLE, MPI_SUM, world->control, &request);
    add_request(world, request, &pending, false);
    world_wait(world, &pending, (WaitReason){-1, -1, -1, what});
}

void world_barrier(World *world, const char *what)
{
    MPI_Request request;
    int pending = 0;
    MPI_Ibarrier(world->control, &request);
    add_request(world, request, &pending, false);
    world_wait(world, &pending, (WaitReason){-1, -1, -1, what});
}

void world_unite(World *world, uint32_t *bits, int *pending)
{
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, bits, 1, MPI_UINT32_T, MPI_BOR, world->control, &request);
    add_request(world, request, pending, false);
}

bool world_agree(World *world, Diagnostics *diagnostics, int *exit_code)
{
    int mine = diagnostics->errors ? diagnostics->exit_code : EXIT_OK, first = -1;
    int *all = memory_allocate((size_t)world->size * sizeof *all);
    world_allgather(world, &mine, sizeof mine, all, "agreement");
    for (int r = world->size - 1; r >= 0; r--)
        if (all[r] != EXIT_OK) first = r;
    if (world->rank == (first < 0 ? 0 : first)) diagnostics_print(diagnostics, stderr);
    if (first >= 0) *exit_code = all[first];
    free(all);
    diagnostics_free(diagnostics);
    return first < 0;
}
