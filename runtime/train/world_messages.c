#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "runtime/train/world_parts.h"

/* Tags of the control communicator. */
enum { TAG_QUESTION = 1, TAG_ANSWER };

/* Tests before sleeping: MPICH takes one message per test, and several tests per large message. */
enum { ROUNDS_AWAKE = 8 };

static const double least_sleep = 20e-6, most_sleep = 1e-3;
static const double helping_sleep = 0.25e-3, arrival_time = 3e-3;
static const double most_bell_sleep = 4e-3; /* where whoever brings something rings: ranks of this host */
static const double asking_time = 1. / 3;   /* ask a peer whether it is alive after this share of world_patience */
static const double longest_pause = 1;      /* in silence; more is time in which this rank itself was stopped */

static void sleep_for(double seconds)
{
    struct timespec time = {(time_t)seconds, (long)(fmod(seconds, 1) * 1e9)};
    nanosleep(&time, NULL);
}

void world_add_request(World *world, MPI_Request request, int *pending, bool is_send)
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
    MPI_Irecv(bytes, (int)size, MPI_BYTE, peer < 0 ? peer : world_mpi_rank(world, peer), tag, communicator, &request);
    world_add_request(world, request, pending, false);
}

static void send_on(World *world, MPI_Comm communicator, const void *bytes, size_t size, int peer, int tag,
                    int *pending)
{
    MPI_Request request;
    if (size > INT_MAX) bug("message of %zu bytes", size);
    MPI_Isend(bytes, (int)size, MPI_BYTE, world_mpi_rank(world, peer), tag, communicator, &request);
    world_add_request(world, request, pending, true);
    if (world->bells && world->near[peer]) doorbell_ring(&world->bells[peer]);
}

void world_send(World *world, const void *bytes, size_t size, int peer, int tag, int *pending)
{
    if (world_is_far(world, peer))
        world->sites->bridge->send(world, bytes, size, peer, WIRE_FIRST_TAG + tag);
    else
        send_on(world, world->data, bytes, size, peer, tag, pending);
}

void world_receive(World *world, void *bytes, size_t size, int peer, int tag, int *pending)
{
    if (world_is_far(world, peer))
        world->sites->bridge->receive(world, bytes, size, peer, WIRE_FIRST_TAG + tag, pending);
    else
        receive_on(world, world->data, bytes, size, peer, tag, pending);
}

void world_await_question(World *world)
{
    receive_on(world, world->control, &world->live.question, sizeof world->live.question, MPI_ANY_SOURCE, TAG_QUESTION,
               &world->live.question_pending);
}

static void answer_questions(World *world)
{
    if (world->live.question_pending || world->live.reply_pending) return;
    world->live.reply = world->rank;
    send_on(world, world->control, &world->live.reply, sizeof world->live.reply, world->live.question, TAG_ANSWER,
            &world->live.reply_pending);
    world_await_question(world);
}

/* ---- A union of bits, while other messages go on ---- */

void world_unite(World *world, uint32_t *bits, int *pending)
{
    MPI_Request request;
    WorldUnion *uniting = world->sites ? &world->sites->uniting : NULL;
    if (uniting && uniting->stage != UNION_NONE) bug("two unions at once");
    MPI_Iallreduce(MPI_IN_PLACE, bits, 1, MPI_UINT32_T, MPI_BOR, uniting ? uniting->communicator : world->control,
                   &request);
    if (!uniting) {
        world_add_request(world, request, pending, false);
        return;
    }
    uniting->stage = UNION_GATHERING;
    uniting->bits = bits;
    uniting->whole = pending;
    ++*pending;
    world_add_request(world, request, &uniting->pending, false);
}

static void exchange_bits(World *world, WorldUnion *uniting)
{
    const WorldSites *sites = world->sites;
    for (int s = 0; s < sites->count; s++) {
        if (s == sites->site) continue;
        size_t size = sizeof *uniting->bits;
        sites->bridge->receive(world, &uniting->received[s], size, sites->leader[s], WIRE_UNITE, &uniting->pending);
        sites->bridge->send(world, uniting->bits, size, sites->leader[s], WIRE_UNITE);
    }
}

static void hand_out_bits(World *world, WorldUnion *uniting)
{
    MPI_Request request;
    for (int s = 0; world_leads(world) && s < world->sites->count; s++)
        if (s != world->sites->site) *uniting->bits |= uniting->received[s];
    MPI_Ibcast(uniting->bits, 1, MPI_UINT32_T, 0, uniting->communicator, &request);
    world_add_request(world, request, &uniting->pending, false);
}

static void advance_union(World *world)
{
    WorldUnion *uniting = &world->sites->uniting;
    while (uniting->stage != UNION_NONE && uniting->pending == 0) {
        switch (uniting->stage++) {
        case UNION_NONE: break;
        case UNION_GATHERING:
            if (world_leads(world)) exchange_bits(world, uniting);
            break;
        case UNION_EXCHANGING: hand_out_bits(world, uniting); break;
        case UNION_HANDING_OUT:
            uniting->stage = UNION_NONE;
            --*uniting->whole;
            break;
        }
    }
}

/* ---- Progress and waiting ---- */

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
    if (!world->sites) return;
    world->sites->bridge->progress(world);
    advance_union(world);
}

/* The rings of this rank's bell. Read them before testing, so that a ring in between is not missed. */
static uint32_t bell_shows(const World *world)
{
    return world->bells ? atomic_load(&world->bells[world->rank].rings) : 0;
}

void world_arrive(const World *world)
{
    uint32_t here = 0;
    if (!world->bells) return;
    for (int r = 0; r < world->size; r++) here += world->near[r];
    if ((atomic_fetch_add(&world->bells[world->first_here].arrivals, 1) + 1) % here) return;
    for (int r = 0; r < world->size; r++)
        if (world->near[r] && r != world->rank) doorbell_ring(&world->bells[r]);
}

/* Whether all that is waited for begins with a ring. `peer`: who is waited for, -1: all. */
static bool is_rung_for(const World *world, int peer)
{
    return world->bells && (peer < 0 ? world->one_host : world->near[peer]);
}

/* The sender and the receiver of a large message must both call MPI until it has arrived. */
static double longest_sleep(const World *world, int peer)
{
    if (world->send_count || world->last_progress - world->last_ring < arrival_time) return helping_sleep;
    return is_rung_for(world, peer) ? most_bell_sleep : most_sleep;
}

/* Reads the bell again and notes when something began to arrive. */
static uint32_t listen(World *world, uint32_t seen)
{
    uint32_t shows = bell_shows(world);
    if (shows != seen) world->last_ring = monotonic_seconds();
    return shows;
}

/* Sleeps at most `seconds`, less if a message comes from `peer` (-1: from anyone). A rank cannot wait for the bell and
 * the wire at once, so it sleeps briefly while both may bring something. */
static void doze(World *world, uint32_t seen, double seconds, int peer)
{
    if (world->sites && (peer < 0 || world_is_far(world, peer)))
        world->sites->bridge->sleep(world, peer < 0 && seconds > most_sleep ? most_sleep : seconds);
    else if (world->bells)
        doorbell_sleep(&world->bells[world->rank], seen, seconds);
    else
        sleep_for(seconds);
}

void world_sleep_until(World *world, double deadline)
{
    uint32_t seen = bell_shows(world);
    for (double left; (left = deadline - monotonic_seconds()) > 0;) {
        double most = longest_sleep(world, world->rank);
        doze(world, seen, left < most ? left : most, world->rank);
        seen = listen(world, seen);
        for (int i = 0; i < ROUNDS_AWAKE; i++) world_progress(world);
    }
}

/* ---- Silence ---- */

/* "rank 1 (edge-2, stage 1, host b) has not answered for 30 seconds" */
static const char *describe(const World *world, int peer, const char *who, int stage, double seconds, Arena *arena)
{
    const struct RankName *name = world->names ? &world->names[peer] : NULL;
    if (!*who && !name) who = arena_format(arena, "rank %d", peer);
    if (!*who)
        who = arena_format(arena, "rank %d (%s%s%s%s)", peer, name->device,
                           stage >= 0 ? arena_format(arena, ", stage %d", stage) : "",
                           world->near[peer] ? "" : ", host ", world->near[peer] ? "" : name->host);
    return arena_format(arena, "%s has not answered for %.0f seconds", who, seconds);
}

/* Those for whom a rank waits, each asked whether it lives. */
typedef struct Question {
    bool is_asked, is_named;
    int pending, answer;
    uint64_t answers;
} Question;

static void ask(World *world, int peer, Question *question)
{
    question->is_asked = true;
    if (world_is_far(world, peer)) {
        question->answers = world->sites->bridge->ask(world, peer);
        return;
    }
    receive_on(world, world->control, &question->answer, sizeof question->answer, peer, TAG_ANSWER, &question->pending);
    send_on(world, world->control, &world->rank, sizeof world->rank, peer, TAG_QUESTION, &question->pending);
}

/* NULL: the peer has answered; else as WorldBridge.silent. */
static const char *silent(const World *world, int peer, const Question *question)
{
    if (!question->is_asked) return NULL;
    if (world_is_far(world, peer)) return world->sites->bridge->silent(world, peer, question->answers);
    return question->pending ? "" : NULL;
}

static bool some_silent(const World *world, const Question *questions)
{
    for (int peer = 0; peer < world->size; peer++)
        if (silent(world, peer, &questions[peer])) return true;
    return false;
}

/* Where all ranks wait for all, the lowest that lives names the others. */
static void name_silent(World *world, Question *questions, WaitReason reason, double seconds)
{
    bool ends = world->timeout > 0 && seconds >= world->timeout;
    for (int peer = 0; peer < world->size; peer++) {
        FREED_WITH(arena_free) Arena arena = {0};
        const char *who = silent(world, peer, &questions[peer]);
        if (!who && peer < world->rank && reason.peer < 0 && !ends) return;
        if (!who) continue;
        const char *silence = describe(world, peer, who, reason.stage, seconds, &arena);
        const char *of = reason.microbatch < 0 ? "" : arena_format(&arena, " of micro-batch %d", reason.microbatch);
        if (ends)
            world_fail(world, "%s; waited for %s%s%s", silence, reason.what, of,
                       world->has_replicas ? "; without its device the other replicas can go on: skycc compile ... "
                                             "--without DEVICE -o NEW, then NEW/train ... --resume"
                                           : "");
        world_warn(world, "%s; waiting for %s%s", silence, reason.what, of);
        questions[peer].is_named = true;
    }
}

/* After a long wait: returns when the peer has answered, because it then waits or computes itself. Names it meanwhile,
 * ever more rarely. */
static void suspect(World *world, WaitReason reason)
{
    FREED Question *questions = memory_allocate((size_t)world->size * sizeof *questions);
    double next = world_patience(world->timeout), seconds = asking_time * next, last = monotonic_seconds();
    for (int peer = 0; peer < world->size; peer++)
        if (peer != world->rank && (reason.peer < 0 || reason.peer == peer)) ask(world, peer, &questions[peer]);
    while (some_silent(world, questions)) {
        sleep_for(most_sleep);
        world_progress(world);
        double pause = world->last_progress - last;
        last = world->last_progress;
        seconds += pause < longest_pause ? pause : longest_pause;
        if (seconds < next) continue;
        name_silent(world, questions, reason, next);
        next = world->timeout > 0 && 2 * next > world->timeout ? world->timeout : 2 * next;
    }
    for (int peer = 0; peer < world->size; peer++)
        if (questions[peer].is_named) world_warn(world, "rank %d answers again", peer);
}

void world_wait(World *world, const int *pending, WaitReason reason)
{
    if (!*pending) return;
    StepPart before = step_clock_enter(&world->clock, PART_WAITING);
    uint32_t seen = bell_shows(world);
    world_progress(world);
    double start = world->last_progress, pause = is_rung_for(world, reason.peer) ? helping_sleep : least_sleep;
    int rounds = world->shares_cores ? ROUNDS_AWAKE : 1;
    while (*pending) {
        if (world->shares_cores) {
            double most = longest_sleep(world, reason.peer);
            doze(world, seen, pause < most ? pause : most, reason.peer);
            pause = pause * 1.5 < most_bell_sleep ? pause * 1.5 : most_bell_sleep;
        }
        uint32_t shows = listen(world, seen);
        if (shows != seen) pause = least_sleep; /* what was rung for may take several tests */
        seen = shows;
        for (int i = 0; i < rounds && *pending; i++) world_progress(world);
        if (world->last_progress - start > asking_time * world_patience(world->timeout)) {
            suspect(world, reason);
            start = monotonic_seconds();
        }
    }
    step_clock_leave(&world->clock, before);
}
