#include "federation/planning/simulate_rounds.h"

#include <math.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/random.h"
#include "federation/aggregate/fixed_point.h"
#include "federation/messages.h"
#include "federation/update_pieces.h"

enum { MOST_ATTEMPTS = 1000 };

typedef enum Vanishing { STAYS, BEFORE_OFFERS, BEHIND_SHARES } Vanishing;

typedef struct Simulation {
    const SimulationRequest *request;
    MeetingRules rules; /* with members of one coordinator of sites */
    const Replica *given;
    int given_count;
    Arena arena;
    double *factor;                          /* per site, whatever the round */
    double *free_at;                         /* per site: it has the model and may train */
    double *trained;                         /* per site: seconds of steps, in all */
    double *busy_until;                      /* per site: its last steps end */
    double *start, *cap, *end;               /* of what crosses a line */
    int64_t sums, updates, restarts;         /* updates in a sum, and made */
    double processor_s, bytes_in, bytes_out; /* of the busiest coordinator in this round */
    double total_processor_s, total_in, total_out;
} Simulation;

static const Replica *replica_of(const Simulation *simulation, int site)
{
    return &simulation->given[site % simulation->given_count];
}

static RandomStream stream_of(const Simulation *simulation, const char *what, int round)
{
    return random_substream(random_stream(simulation->request->seed, what), (uint64_t)round);
}

static double factor(const Simulation *simulation, const char *what, int round, int site)
{
    return exp(simulation->request->spread * random_normal(stream_of(simulation, what, round), (uint64_t)site));
}

static Vanishing vanishing(const Simulation *simulation, int round, int attempt, int site)
{
    RandomStream stream = random_substream(stream_of(simulation, "vanish", round), (uint64_t)attempt);
    double drawn = (double)random_uniform(stream, (uint64_t)site), dropout = simulation->request->dropout;
    return drawn >= dropout ? STAYS : drawn < dropout / 2 ? BEFORE_OFFERS : BEHIND_SHARES;
}

static double line_of(const Simulation *simulation)
{
    return simulation->rules.coordinator_Bps > 0 ? simulation->rules.coordinator_Bps : INFINITY;
}

/* What the coordinator has done, that begins a piece of work of `seconds` when each thing has arrived. */
static int ascending(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

static double work_off(double *arrivals, int count, double seconds)
{
    double done = 0;
    qsort(arrivals, (size_t)count, sizeof *arrivals, ascending);
    for (int i = 0; i < count; i++) done = fmax(done, arrivals[i]) + seconds;
    return done;
}

static void note_work(Simulation *simulation, double seconds, double in, double out)
{
    simulation->processor_s = fmax(simulation->processor_s, seconds);
    simulation->bytes_in = fmax(simulation->bytes_in, in);
    simulation->bytes_out = fmax(simulation->bytes_out, out);
}

/* ---- Sites and their coordinator ---- */

typedef struct Part {
    int first, count; /* sites */
    MeetingRules rules;
    double words;     /* bytes of words that are added */
    double latency_s; /* the longest */
    double *offers;   /* [count]: when a site that stays offers */
} Part;

static double phase_s(const Part *part) { return 2 * part->latency_s * part->rules.costs.round_trips; }

/* What a site needs between its model and its offer, and between its shares and its update, without transfers. */
static double prepare_s(const Part *part)
{
    const MeetingCosts *costs = &part->rules.costs;
    double checkpoints = 4 * 4 * (double)part->rules.elements * (double)(1 + part->rules.states) / costs->storage_Bps;
    return costs->start_s + checkpoints + part->words * costs->update_s;
}

static double masks_s(const Part *part)
{
    return part->rules.secure ? part->rules.members * part->words * part->rules.costs.mask_s : 0;
}

static Part open_part(Simulation *simulation, int first, int count, int round)
{
    Part part = {.first = first, .count = count, .rules = simulation->rules};
    part.rules.members = count;
    part.words = 4 * ceil((double)part.rules.elements / (double)part.rules.fragments);
    part.offers = memory_allocate((size_t)count * sizeof *part.offers);
    int64_t all = simulation->request->steps, ahead = meeting_overlap(&part.rules, all);
    double stops = ahead ? (ahead < all ? 2 : 1) * meeting_stop_s(&part.rules) : 0;
    for (int i = 0; i < count; i++) {
        const Replica *replica = replica_of(simulation, first + i);
        double step = replica->step_s * simulation->factor[first + i] * factor(simulation, "round", round, first + i);
        double begin = fmax(simulation->free_at[first + i], simulation->busy_until[first + i]);
        double before = (double)(round ? all - ahead : all) * step, behind = (double)ahead * step;
        simulation->trained[first + i] += before + behind;
        simulation->busy_until[first + i] = begin + before + stops + behind;
        part.latency_s = fmax(part.latency_s, replica->latency_s);
        part.offers[i] = begin + before + prepare_s(&part) + replica->gather_s;
    }
    return part;
}

/* When a phase is over: with all, or with those who are in time. Offers wait until there are `least`. */
static double end_offers(const Simulation *simulation, const Part *part, const Vanishing *vanishes, bool *in, int least)
{
    double *sorted = memory_allocate((size_t)part->count * sizeof *sorted), first = INFINITY, end = 0;
    int there = 0;
    for (int i = 0; i < part->count; i++)
        if (vanishes[i] != BEFORE_OFFERS) sorted[there++] = part->offers[i];
    qsort(sorted, (size_t)there, sizeof *sorted, ascending);
    if (there) first = sorted[0];
    double limit = first + simulation->request->timeout_s;
    if (there >= least) limit = fmax(limit, sorted[least - 1]);
    if (there) end = there == part->count ? fmin(limit, sorted[there - 1]) : limit;
    for (int i = 0; i < part->count; i++) in[i] = vanishes[i] != BEFORE_OFFERS && part->offers[i] <= end;
    free(sorted);
    return end;
}

/* One session; false: too few stayed, and the time it took. *in of who is in the sum. */
static bool try_session(Simulation *simulation, const Part *part, const Vanishing *vanishes, int least, bool *in,
                        double *ready)
{
    double now = end_offers(simulation, part, vanishes, in, least) + phase_s(part), seconds = 0, in_bytes = 0;
    int offered = 0, stayed = 0, k = 0;
    for (int i = 0; i < part->count; i++) {
        offered += in[i];
        in[i] = in[i] && vanishes[i] == STAYS;
        stayed += in[i];
    }
    *ready = now;
    if (offered < least) return false;
    if (part->rules.secure) now += phase_s(part); /* shares */
    double values_since = now;
    for (int i = 0; i < part->count; i++)
        if (in[i]) {
            simulation->start[k] = now + masks_s(part) + replica_of(simulation, part->first + i)->latency_s;
            simulation->cap[k++] = replica_of(simulation, part->first + i)->bandwidth_Bps;
        }
    in_bytes = (double)meeting_bytes_up(&part->rules);
    share_line(simulation->start, simulation->cap, stayed, in_bytes, line_of(simulation), simulation->end);
    double sum = part->words * part->rules.costs.sum_s;
    now = work_off(simulation->end, stayed, sum);
    if (stayed < offered) now = fmax(now, values_since + simulation->request->timeout_s);
    *ready = now;
    if (stayed < least) return false;
    if (part->rules.secure) now += phase_s(part); /* reveals */
    seconds = meeting_coordinator_s(&part->rules, part->count - stayed) - sum * stayed;
    if (part->rules.secure) /* those that never shared left no masks */
        seconds -= (double)(part->count - offered) * stayed * part->words * part->rules.costs.mask_s;
    *ready = now + seconds;
    simulation->sums += stayed;
    note_work(simulation, seconds + sum * stayed, in_bytes * stayed,
              (double)meeting_bytes_down(&part->rules) * part->count);
    return true;
}

/* When the sum of the part's sites is there. */
static double sum_part(Simulation *simulation, const Part *part, int round)
{
    Vanishing *vanishes = memory_allocate((size_t)part->count * sizeof *vanishes);
    bool *in = memory_allocate((size_t)part->count * sizeof *in);
    int least = sum_threshold(part->count);
    double ready = 0;
    for (int attempt = 0; attempt < MOST_ATTEMPTS; attempt++) {
        for (int i = 0; i < part->count; i++) vanishes[i] = vanishing(simulation, round, attempt, part->first + i);
        bool done = try_session(simulation, part, vanishes, least, in, &ready);
        if (done) break;
        simulation->restarts++;
        for (int i = 0; i < part->count; i++) part->offers[i] = fmax(part->offers[i], ready);
    }
    simulation->updates += part->count;
    free(in);
    free(vanishes);
    return ready;
}

/* The model goes from a coordinator that has it to `count` that lie behind links of these caps. */
static void send_model(Simulation *simulation, double now, const double *caps, double latency_s, int count, double *end)
{
    MeetingRules rules = simulation->rules;
    rules.members = count;
    double pieces = ceil((double)meeting_bytes_down(&rules) / (double)rules.costs.piece_bytes);
    for (int i = 0; i < count; i++) simulation->start[i] = now;
    share_line(simulation->start, caps, count, (double)meeting_bytes_down(&rules), line_of(simulation), end);
    for (int i = 0; i < count; i++) end[i] += 2 * pieces * latency_s;
}

static void give_model(Simulation *simulation, const Part *part, double now)
{
    for (int i = 0; i < part->count; i++) simulation->cap[i] = replica_of(simulation, part->first + i)->bandwidth_Bps;
    send_model(simulation, now, simulation->cap, part->latency_s, part->count, simulation->end);
    /* Who was too late ends its steps all the same, and takes the model then. */
    for (int i = 0; i < part->count; i++)
        simulation->free_at[part->first + i] = fmax(simulation->end[i], part->offers[i]);
}

/* ---- Coordinators and theirs ---- */

/* Sums of coordinators go up, a level at a time, in parts of `branch`; *ready becomes those of the next level. How many. */
static int sum_level(Simulation *simulation, double *ready, int count, const Part *leaf)
{
    int branch = simulation->request->branch, next = 0;
    double bytes = leaf->words, sum = leaf->words * leaf->rules.costs.sum_s, line = line_of(simulation);
    for (int first = 0; first < count; first += branch, next++) {
        int members = count - first < branch ? count - first : branch;
        for (int i = 0; i < members; i++) {
            simulation->start[i] = ready[first + i] + 2 * leaf->latency_s;
            simulation->cap[i] = line;
        }
        share_line(simulation->start, simulation->cap, members, bytes, line, simulation->end);
        ready[next] = work_off(simulation->end, members, sum);
        note_work(simulation, sum * members, bytes * members, bytes * members);
    }
    return next;
}

/* And the model comes down again: to one coordinator behind the other, level by level. */
static double model_down(const Simulation *simulation, double now, int count, const Part *leaf)
{
    for (int level = count; level > 1;
         level = (level + simulation->request->branch - 1) / simulation->request->branch) {
        int members = level < simulation->request->branch ? level : simulation->request->branch;
        now += 2 * leaf->latency_s + leaf->words * members / line_of(simulation);
    }
    return now;
}

static int part_size(const SimulationRequest *request) { return request->branch ? request->branch : request->sites; }

/* From the sites' models to their next ones; when the model was there. */
static double simulate_round(Simulation *simulation, int round)
{
    const SimulationRequest *request = simulation->request;
    int size = part_size(request), count = 0;
    double *ready = memory_allocate((size_t)request->sites * sizeof *ready);
    Part *parts = memory_allocate((size_t)request->sites * sizeof *parts);
    simulation->processor_s = simulation->bytes_in = simulation->bytes_out = 0;
    for (int first = 0; first < request->sites; first += size, count++) {
        int members = request->sites - first < size ? request->sites - first : size;
        parts[count] = open_part(simulation, first, members, round);
        ready[count] = sum_part(simulation, &parts[count], round);
    }
    int level = count;
    while (level > 1) level = sum_level(simulation, ready, level, &parts[0]);
    double now = ready[0], down = model_down(simulation, now, count, &parts[0]);
    for (int p = 0; p < count; p++) {
        give_model(simulation, &parts[p], down);
        free(parts[p].offers);
    }
    simulation->total_processor_s += simulation->processor_s;
    simulation->total_in += simulation->bytes_in;
    simulation->total_out += simulation->bytes_out;
    free(parts);
    free(ready);
    return now;
}

static void describe_tree(SimulatedRounds *result)
{
    const SimulationRequest *request = &result->request;
    int size = part_size(request);
    result->most_members = request->sites < size ? request->sites : size;
    int level = (request->sites + size - 1) / size;
    result->coordinators = level;
    result->levels = 1;
    while (level > 1) {
        level = (level + size - 1) / size;
        result->coordinators += level;
        result->levels++;
    }
}

/* Model and momentum, a sum and an update, and of every pair of members sealed shares. */
static double memory_of(const MeetingRules *rules, int members)
{
    double words = 4 * ceil((double)rules->elements / (double)rules->fragments);
    double shares = rules->secure ? (double)members * (double)sum_shares_bytes(members) : 0;
    double arriving = fmin(words, 4.0 * UPDATE_PIECE * UPDATE_PIECES_AHEAD);
    return 8 * (double)rules->elements + words + members * arriving + shares;
}

static void open_simulation(Simulation *simulation)
{
    size_t sites = (size_t)simulation->request->sites;
    double **arrays[] = {&simulation->factor, &simulation->free_at, &simulation->trained, &simulation->busy_until,
                         &simulation->start,  &simulation->cap,     &simulation->end};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        *arrays[i] = arena_new_array(&simulation->arena, double, sites);
    for (int s = 0; s < simulation->request->sites; s++) simulation->factor[s] = factor(simulation, "site", 0, s);
}

void simulate_rounds(SimulatedRounds *result, const SimulationRequest *request, const MeetingRules *rules,
                     const Replica *given, int count)
{
    Simulation simulation = {.request = request, .rules = *rules, .given = given, .given_count = count};
    double now = 0, trained = 0;
    simulation.rules.secure = request->secure;
    *result = (SimulatedRounds){.request = *request};
    describe_tree(result);
    open_simulation(&simulation);
    for (int round = 0; round < request->rounds; round++) {
        double ended = simulate_round(&simulation, round);
        result->worst_round_s = fmax(result->worst_round_s, ended - now);
        now = ended;
    }
    for (int s = 0; s < request->sites; s++)
        trained += simulation.trained[s] - fmax(0, simulation.busy_until[s] - now); /* the last round is over by then */
    double rounds = request->rounds;
    result->round_s = now / rounds;
    result->training = trained / request->sites / now;
    result->lost = 1 - (double)simulation.sums / (double)simulation.updates;
    result->restarts = (double)simulation.restarts / rounds;
    result->coordinator_s = simulation.total_processor_s / rounds;
    result->bytes_in = simulation.total_in / rounds;
    result->bytes_out = simulation.total_out / rounds;
    result->line_share = fmax(result->bytes_in, result->bytes_out) / line_of(&simulation) / result->round_s;
    result->memory_bytes = memory_of(&simulation.rules, result->most_members);
    arena_free(&simulation.arena);
}
