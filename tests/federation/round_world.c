#include "tests/federation/round_world.h"

#include <math.h>

#include "base/random.h"
#include "federation/amendment.h"

static const char *const names[] = {"embeddings", "layer", "head"};
static const Shape shapes[] = {{2, {4, 9}}, {1, {30}}, {1, {24}}};

static int64_t weight_of(int site) { return 10 + 7 * site; }

static float update_of(int site, int64_t round, size_t element)
{
    RandomStream stream = random_substream(random_stream(77, "update"), (uint64_t)(round * MOST + site));
    return (float)(0.01 * random_normal(stream, element));
}

static void open_coordinator(World *world)
{
    Diagnostics diagnostics = {0};
    if (!coordinator_open(&world->coordinator, &world->federation, ".", world->console, world->log, &diagnostics)) {
        diagnostics_print(&diagnostics, stderr);
        fail();
    }
    world->killed = false;
}

static void write_start(const World *world)
{
    GlobalModel model;
    Diagnostics diagnostics = {0};
    global_model_open(&model, world->federation.compiled.identity, names, shapes, 3, false);
    for (size_t i = 0; i < model.elements; i++) model.values[i] = (float)i / 32;
    assert_true(global_model_write(&model, "model.safetensors", &diagnostics));
    global_model_free(&model);
}

size_t piece_of_updates = PIECE;
Codec codec_of_models = CODEC_NONE;

void start(World *world, int sites, bool secure, OuterKind outer, int64_t rounds, int64_t fragments)
{
    static const char *const site_names[MOST] = {"paris", "oslo", "lima", "kyoto", "accra", "quito"};
    KeyPair pairs[MOST];
    memset(world, 0, sizeof *world);
    for (int s = 0; s < sites; s++) {
        world->members[s] = (FederationSite){.name = site_names[s], .key = site_names[s], .rows_per_step = 4};
        key_pair_draw(&pairs[s]);
    }
    int least = secure ? sum_threshold(sites) : 2;
    world->federation = (Federation){.site_count = sites,
                                     .sites = world->members,
                                     .rounds = rounds,
                                     .local_steps = 5,
                                     .outer = outer_rule_default(outer),
                                     .secure = secure,
                                     .least = least,
                                     .round_timeout_s = 60,
                                     .drop_after = 1,
                                     .fragments = fragments,
                                     .model_codec = codec_of_models,
                                     .update_piece = piece_of_updates,
                                     .compiled = {.identity = {3, 4}, .site = -1}};
    world->console = open_memstream(&world->said, &world->said_bytes);
    world->kill_at = -1;
    for (int s = 0; s < sites; s++) {
        Site *site = &world->sites[s];
        site->world = world;
        site->number = s;
        site->federation = world->federation;
        site->federation.compiled.site = s;
        memcpy(site->keys.secret, pairs[s].secret, KEY_BYTES);
        for (int i = 0; i < sites; i++) memcpy(site->keys.publics + i * KEY_BYTES, pairs[i].public_key, KEY_BYTES);
    }
    write_start(world);
    open_coordinator(world);
}

void stop(World *world)
{
    for (int s = 0; s < world->federation.site_count; s++) {
        Federation *own = &world->sites[s].federation;
        meeting_close(&world->sites[s].meeting);
        if (own->compiled.amended) arena_free(&own->arena);
    }
    coordinator_free(&world->coordinator);
    if (world->federation.compiled.amended) arena_free(&world->federation.arena);
    fclose(world->console);
    free(world->said);
}

static void drop_replies(Site *site)
{
    while (site->reply_count) buffer_free(&site->replies[--site->reply_count]);
}

bool exchange(void *context, const Buffer *request, Buffer *reply)
{
    Site *site = context;
    World *world = site->world;
    if (world->killed) drop_replies(site);
    if (world->killed) return false;
    if (request) {
        Buffer *answer = &site->replies[site->reply_count++];
        assert_true(site->reply_count <= UPDATE_PIECES_AHEAD);
        coordinator_handle(&world->coordinator, site->number, (const unsigned char *)request->bytes, request->size,
                           world->now, answer);
        if (world->handled++ == world->kill_at) world->killed = true; /* taken, not answered, and nothing follows */
        if (!world->killed) coordinator_tick(&world->coordinator, world->now);
    }
    if (world->cut_in && world->cut_site == site->number && !reply && !--world->cut_in) {
        drop_replies(site);
        return false;
    }
    if (world->killed) drop_replies(site);
    if (reply && !world->killed) {
        assert_true(site->reply_count > 0);
        buffer_append(reply, site->replies[0].bytes, site->replies[0].size);
        buffer_free(&site->replies[0]);
        memmove(site->replies, site->replies + 1, (size_t)--site->reply_count * sizeof *site->replies);
        site->replies[site->reply_count] = (Buffer){0};
    }
    return !world->killed;
}

void begin_meeting(Site *site, int64_t round)
{
    World *world = site->world;
    FragmentRange part = global_model_part(&world->coordinator.model, round, (size_t)world->federation.fragments);
    meeting_close(&site->meeting);
    for (size_t i = part.first; i < part.end; i++) site->update[i] = update_of(site->number, round, i);
    assert_true(meeting_open(&site->meeting, &site->federation, &site->keys, round, site->update + part.first,
                             part.end - part.first, weight_of(site->number)));
    site->meeting.exchange = exchange;
    site->meeting.context = site;
    site->meeting.branch = site->branch;
    site->meeting.metrics = (SiteMetrics){true, true, weight_of(site->number), 0.5 + 0.1 * site->number};
    site->meets = true;
    site->round = round;
}

/* As a member does it, whose consent is given. */
static void amend(Site *site)
{
    Amendment amendment;
    Diagnostics diagnostics = {0};
    const Buffer *text = &site->meeting.told;
    bool ok = amendment_open(&amendment, &site->federation, "told", text->bytes, text->size, &diagnostics) &&
              federation_amend(&site->federation, &amendment, "told", &diagnostics);
    if (!ok) diagnostics_print(&diagnostics, stderr);
    assert_true(ok);
    amendment_free(&amendment);
    meeting_forget_session(&site->meeting);
    for (int s = 0; s < site->federation.site_count; s++)
        if (site->federation.sites[s].left) memset(site->keys.publics + s * KEY_BYTES, 0, KEY_BYTES);
}

void step(Site *site)
{
    if (site->gone) return;
    if (!site->meets) begin_meeting(site, site->round);
    MeetingState state = meeting_step(&site->meeting);
    if (state == MEETING_AMENDED) amend(site);
    if (site->federation.sites[site->number].left) site->gone = true;
    if (site->gone || state == MEETING_AMENDED) return;
    assert_true(state != MEETING_REFUSED);
    if (state != MEETING_OVER) return;
    if (!site->meeting.has_answered || site->meeting.answered < SUM_VALUES) site->late++;
    site->meets = false;
    site->round = (int64_t)site->meeting.said.round;
    site->branch = (int64_t)site->meeting.said.branch;
}

void restart(World *world)
{
    coordinator_free(&world->coordinator);
    open_coordinator(world);
}

void run(World *world, uint64_t seed)
{
    RandomStream stream = random_stream(seed, "turns");
    for (uint64_t turn = 0; !coordinator_is_done(&world->coordinator); turn++) {
        if (turn > 1000000) fail_msg("the federation does not end: %s", world->said);
        if (world->killed) restart(world);
        step(&world->sites[random_below(stream, turn, (uint64_t)world->federation.site_count)]);
        world->now += 0.01;
        if (!world->killed) coordinator_tick(&world->coordinator, world->now);
    }
}

float *final_values(World *world) { return world->coordinator.model.values; }

void expect_model(World *world, bool in[][MOST])
{
    double values[ELEMENTS], momentum[ELEMENTS] = {0}, variance[ELEMENTS] = {0};
    const float *remainder = world->coordinator.model.remainder;
    const OuterRule *rule = &world->federation.outer;
    for (size_t i = 0; i < ELEMENTS; i++) values[i] = (double)i / 32;
    for (int64_t round = 0; round < world->federation.rounds; round++) {
        FragmentRange part = global_model_part(&world->coordinator.model, round, (size_t)world->federation.fragments);
        for (size_t i = part.first; i < part.end; i++) {
            double mean = 0, weight = 0;
            for (int s = 0; s < world->federation.site_count; s++) {
                if (!in[round][s]) continue;
                mean += (double)weight_of(s) * update_of(s, round, i);
                weight += (double)weight_of(s);
            }
            mean /= weight;
            if (outer_moments(rule->kind) == 2) { /* "Adaptive federated optimization", algorithm 2 */
                double square = mean * mean, sign = variance[i] > square ? 1 : variance[i] < square ? -1 : 0;
                momentum[i] = rule->momentum * momentum[i] + (1 - rule->momentum) * mean;
                variance[i] = rule->kind == OUTER_ADAM ? rule->beta2 * variance[i] + (1 - rule->beta2) * square
                                                       : variance[i] - (1 - rule->beta2) * square * sign;
                values[i] -= rule->rate * momentum[i] / (sqrt(variance[i]) + rule->epsilon);
                continue;
            }
            momentum[i] = rule->momentum * momentum[i] + mean;
            values[i] -= rule->rate * (rule->kind == OUTER_NESTEROV ? mean + rule->momentum * momentum[i] : mean);
        }
    }
    for (size_t i = 0; i < ELEMENTS; i++) {
        double is = (double)final_values(world)[i] + (remainder ? (double)remainder[i] : 0);
        if (fabs(values[i] - is) > 2e-6) fail_msg("element %zu is %.9g, not %.9g", i, is, values[i]);
    }
}

void all_in(bool in[][MOST], int rounds)
{
    for (int r = 0; r < rounds; r++)
        for (int s = 0; s < MOST; s++) in[r][s] = true;
}

void send_two_pieces(World *world, int sites, bool secure)
{
    start(world, sites, secure, OUTER_AVERAGE, 1, 1);
    for (int turn = 0; world->coordinator.sum.phase != SUM_VALUES; turn++) step(&world->sites[turn % sites]);
    world->cut_site = 1;
    world->cut_in = 3;
    step(&world->sites[1]);
    assert_int_equal(world->coordinator.sites[1].arriving.pieces, 3); /* the last was taken and not answered */
    assert_int_equal(world->sites[1].meeting.pieces, 0);
}
