/* Sites and a coordinator in one process, without connections: what the tests of rounds share. */
#ifndef TESTS_FEDERATION_ROUND_WORLD_H
#define TESTS_FEDERATION_ROUND_WORLD_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "federation/coordinator.h"
#include "federation/meeting.h"
#include "federation/update_pieces.h"
#include "tests/common/scratch.h"

enum { MOST = 6, ELEMENTS = 90, PIECE = 16, PIECES = 6 };

/* A site that makes up its updates: a function of site, round and element, whatever the model. */
typedef struct Site {
    struct World *world;
    int number;
    Federation federation; /* its own copy says which site it is */
    MeetingKeys keys;
    Meeting meeting;
    float update[ELEMENTS];
    bool meets, gone;
    int64_t round, branch; /* of the meeting */
    int64_t late;          /* rounds that ended without it */
    Buffer replies[UPDATE_PIECES_AHEAD + 1];
    int reply_count;
} Site;

typedef struct World {
    Federation federation;
    FederationSite members[MOST];
    Coordinator coordinator;
    Site sites[MOST];
    double now;
    FILE *console, *log;
    char *said;
    size_t said_bytes;
    int64_t handled, kill_at; /* messages so far; after which one the coordinator ends without a word */
    bool killed;
    int cut_site, cut_in; /* of a site, how many more messages arrive and are answered: 0: all */
} World;

extern size_t piece_of_updates; /* elements */
extern Codec codec_of_models;

void start(World *world, int sites, bool secure, OuterKind outer, int64_t rounds, int64_t fragments);
void stop(World *world);
/* Replies wait in `replies` until they are asked for. */
bool exchange(void *context, const Buffer *request, Buffer *reply);
void begin_meeting(Site *site, int64_t round);
/* One step of a site that is there, which begins the next round when one is over. */
void step(Site *site);
/* The coordinator ends without a word, and begins again with what is on disk. */
void restart(World *world);
void run(World *world, uint64_t seed);
float *final_values(World *world);
/* What the model must be, with what a codec has left out, in double precision; in[r][s]: site s was in round r. */
void expect_model(World *world, bool in[][MOST]);
void all_in(bool in[][MOST], int rounds);
/* To the phase of updates, and of site 1 two pieces; then its connection is cut. */
void send_two_pieces(World *world, int sites, bool secure);

#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_folder_enter, scratch_folder_leave)

#endif
