#include "runtime/train/handshake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "base/owned_files.h"

enum { MOST_AGREED = 48 };

typedef struct Card {
    uint32_t rank, rank_count, total_stage_count, microbatch_count, microbatch_size;
    Hash model, plan, recipe, weights;
    uint64_t options[MOST_AGREED]; /* that ranks must agree on, in the order of the table */
    char device[128];              /* its name, and that of its site where there are several */
} Card;

static Hash hash_text(const char *text) { return hash_bytes(text, strlen(text)); }

static uint64_t said(const Option *option, const TrainingOptions *options)
{
    const char *field = (const char *)options + option->offset;
    if (option->kind != OPTION_FILE && option->kind != OPTION_DIRECTORY) return hash_bytes(field, option->size).low;
    const char *path;
    memcpy(&path, field, sizeof path);
    return path != NULL;
}

static Card make_card(const SkyProgram *program, const TrainingOptions *options)
{
    Card card = {.rank = program->rank,
                 .rank_count = program->rank_count,
                 .total_stage_count = program->total_stage_count,
                 .microbatch_count = program->microbatch_count,
                 .microbatch_size = program->microbatch_size,
                 .model = hash_text(program->model_hash),
                 .plan = hash_text(program->plan_hash),
                 .recipe = hash_text(program->recipe_hash),
                 .weights = hash_text(program->weights_hash)};
    const char *site = program->site_count ? program->site_names[program->site] : "";
    snprintf(card.device, sizeof card.device, "%.60s%s%.50s", program->device_name, *site ? ", site " : "", site);
    const OptionSet *set = &training_option_set;
    for (size_t i = 0, count = 0; i < set->count; i++) {
        if (!set->rows[i].agreed) continue;
        if (count == MOST_AGREED) bug("more than %d options to agree on", MOST_AGREED);
        card.options[count++] = said(&set->rows[i], options);
    }
    return card;
}

/* ---- Programs ---- */

/* The settings of every rank; NULL if all programs compute the same. Collective unless they do. */
static char **gather_settings(World *world, const SkyProgram *program, const Card *cards, Arena *arena)
{
    bool same = true;
    for (int r = 1; r < world->size; r++)
        same &= hash_equal(cards[r].recipe, cards[0].recipe) && hash_equal(cards[r].weights, cards[0].weights);
    if (same) return NULL;
    uint64_t mine = strlen(program->settings) + 1, most = 0;
    uint64_t *sizes = arena_new_array(arena, uint64_t, (size_t)world->size);
    world_allgather(world, &mine, sizeof mine, sizes, "the handshake");
    for (int r = 0; r < world->size; r++)
        if (sizes[r] > most) most = sizes[r];
    char *padded = arena_new_array(arena, char, most), *all = arena_new_array(arena, char, most *(size_t)world->size);
    memcpy(padded, program->settings, mine);
    world_allgather(world, padded, most, all, "the handshake");
    char **settings = arena_new_array(arena, char *, (size_t)world->size);
    for (int r = 0; r < world->size; r++) settings[r] = all + most * (size_t)r;
    return settings;
}

/* Finds a setting that differs, as "--dropout 0.1" and "--dropout off"; false: there is none. */
static bool find_difference(const char *mine, const char *others, Arena *arena, const char **setting,
                            const char **other)
{
    while (*mine && *others) {
        size_t length = strcspn(mine, "\n"), other_length = strcspn(others, "\n");
        *setting = arena_string_n(arena, mine, length);
        *other = arena_string_n(arena, others, other_length);
        if (strcmp(*setting, *other) != 0) return true;
        mine += length + (mine[length] == '\n');
        others += other_length + (others[other_length] == '\n');
    }
    return false;
}

/* What is wrong with rank r's program, or NULL. `settings` may be NULL. */
static const char *find_problem(const Card *cards, int r, int world_size, char **settings, Arena *arena)
{
    const Card *card = &cards[r], *first = &cards[0];
    const char *setting, *other;
    if (card->rank_count != (uint32_t)world_size)
        return arena_format(arena, "was compiled for %u ranks, but %d were started", card->rank_count, world_size);
    if (!hash_equal(card->model, first->model)) return "was compiled from another model than rank 0";
    bool same_recipe = hash_equal(card->recipe, first->recipe),
         same_weights = hash_equal(card->weights, first->weights);
    if (!(same_recipe && same_weights) && settings &&
        find_difference(settings[r], settings[0], arena, &setting, &other))
        return arena_format(arena, "was compiled with %s, but rank 0 (%s) with %s", setting, first->device, other);
    if (!same_recipe) return "was compiled to compute something else than rank 0: their training graphs differ";
    if (!same_weights) return "was compiled with other initial weights than rank 0";
    if (!hash_equal(card->plan, first->plan) || card->total_stage_count != first->total_stage_count ||
        card->microbatch_count != first->microbatch_count || card->microbatch_size != first->microbatch_size)
        return "was compiled for another plan than rank 0";
    if (card->rank != (uint32_t)r)
        return arena_format(arena, "runs the program of rank %u, which runs elsewhere too", card->rank);
    return NULL;
}

/* The first message; all others may differ between versions. */
static bool check_versions(World *world, const SkyProgram *program, Diagnostics *diagnostics)
{
    FREED uint32_t *all = memory_allocate((size_t)world->size * sizeof *all);
    bool ok = true;
    world_allgather(world, &program->version, sizeof *all, all, "the handshake");
    for (int r = 0; r < world->size; r++)
        if (all[r] != SKY_PROGRAM_VERSION)
            ok = run_error(diagnostics, "compile again, with one skycc for all",
                           "rank %d has a program of version %u, but the runtime is of version %d", r, all[r],
                           SKY_PROGRAM_VERSION);
    return ok;
}

/* A site of a federation must run the programs that its federation.yaml was written for. */
static bool check_federation(const SkyProgram *program, Diagnostics *diagnostics)
{
    const char *expected = getenv(SKY_RECIPE_VARIABLE);
    char mine[80];
    snprintf(mine, sizeof mine, "%s %s", program->recipe_hash, program->weights_hash);
    return !expected || strcmp(expected, mine) == 0 ||
           diagnostics_error(diagnostics, EXIT_BAD_INPUT, (Place){.object = program->device_name},
                             "copy the whole directory of the site again, as one `skycc federate` wrote it",
                             "the program was compiled with other settings or weights than its federation");
}

static bool check_programs(World *world, const SkyProgram *program, const Card *cards, Diagnostics *diagnostics)
{
    FREED_WITH(arena_free) Arena arena = {0};
    char **settings = gather_settings(world, program, cards, &arena);
    bool ok = true;
    for (int r = 0; r < world->size; r++) {
        const char *problem = find_problem(cards, r, world->size, settings, &arena);
        if (problem)
            ok = run_error(diagnostics,
                           "start all programs of one output directory with its train script or run.mpi; copy that "
                           "directory to every host again",
                           "rank %d (%s) %s", r, cards[r].device, problem);
    }
    return ok;
}

/* ---- Options ---- */

static bool check_options(World *world, const SkyProgram *program, const Card *cards, TrainingOptions *options,
                          Diagnostics *diagnostics)
{
    bool ok = true, several = program->site_count > 1;
    const OptionSet *set = &training_option_set;
    for (size_t i = 0, number = 0; i < set->count; i++) {
        const Option *option = &set->rows[i];
        if (!option->agreed) continue;
        bool any_may = several && option->offset == offsetof(TrainingOptions, resume);
        for (int r = 1; r < world->size; r++) {
            if (cards[r].options[number] == cards[0].options[number]) continue;
            if (any_may)
                options->resume = true;
            else
                ok = usage_error(diagnostics, "give all ranks the same options",
                                 "rank %d (%s) was started with another --%s than rank 0 (%s)", r, cards[r].device,
                                 option->name, cards[0].device);
        }
        number++;
    }
    return ok;
}

bool handshake(World *world, const SkyProgram *program, TrainingOptions *options, Diagnostics *diagnostics)
{
    if (!check_versions(world, program, diagnostics)) return false;
    bool fits = check_federation(program, diagnostics);
    const Card mine = make_card(program, options);
    FREED Card *cards = memory_allocate((size_t)world->size * sizeof *cards);
    world_allgather(world, &mine, sizeof mine, cards, "the handshake");
    return fits && check_programs(world, program, cards, diagnostics) &&
           check_options(world, program, cards, options, diagnostics);
}

/* ---- Paths ---- */

typedef struct RankPath {
    Hash place, words; /* what the path leads to, and itself; zeros: none was given */
    char text[256];
} RankPath;

static RankPath rank_path(const char *path, bool tells)
{
    RankPath own = {.place = {0}};
    struct stat status;
    if (!path) return own;
    own.words = hash_text(path);
    if (tells) snprintf(own.text, sizeof own.text, " %s", path);
    if (stat(path, &status) == 0) {
        const uint64_t file[] = {status.st_dev, status.st_ino};
        own.place = hash_bytes(file, sizeof file);
    } else {
        FREED char *resolved = path_resolve(path);
        own.place = hash_text(resolved);
    }
    return own;
}

static uint32_t site_of(const SkyProgram *program, int rank)
{
    return program->site_count > 1 ? program->rank_sites[rank] : 0;
}

/* Reports a rank that names another place than the first one of its host, by other words. Warns of the same words that
 * lead elsewhere, from another working directory, and of other words than those of the site's first rank: these may be
 * meant, as every host has its own directories. */
static bool check_host_path(const World *world, const SkyProgram *program, const char *option, const RankPath *all,
                            int rank, Diagnostics *diagnostics)
{
    int first = 0, here;
    while (site_of(program, first) != site_of(program, rank)) first++;
    for (here = first; strcmp(world->names[here].host, world->names[rank].host) != 0;) here++;
    bool meets = hash_equal(all[here].place, all[rank].place), same = strcmp(all[first].text, all[rank].text) == 0;
    bool ok = meets || hash_equal(all[here].words, all[rank].words);
    static const char message[] = "rank %d (%s) was started with --%s%s, but rank %d (%s) with --%s%s";
    const struct RankName *names = world->names;
    if (!ok)
        usage_error(diagnostics, "give all ranks the same options", message, rank, names[rank].device, option,
                    all[rank].text, here, names[here].device, option, all[here].text);
    else if (!meets)
        diagnostics_warning(diagnostics, PLACE_NONE, "an absolute path leads all ranks of a host to one place",
                            "rank %d (%s) and rank %d (%s) have other working directories, so --%s%s leads each to "
                            "its own place",
                            here, names[here].device, rank, names[rank].device, option, all[rank].text);
    else if (!same && here == rank)
        diagnostics_warning(diagnostics, PLACE_NONE, "each host keeps its part where its ranks were told to", message,
                            rank, names[rank].device, option, all[rank].text, first, names[first].device, option,
                            all[first].text);
    return ok;
}

/* Reports a rank that was given an output that only rank 0 would write, and rank 0 was not. Another site is warned. */
static bool check_first_path(World *world, const SkyProgram *program, const char *option, const RankPath *all, int rank,
                             const char *own, Diagnostics *diagnostics)
{
    static const Hash none = {0};
    const struct RankName *names = world->names;
    bool far = site_of(program, rank) != site_of(program, 0);
    if (hash_equal(all[rank].place, none) || (!far && strcmp(all[rank].text, all[0].text) == 0)) return true;
    if (far && rank == world->rank && world_speaks(world))
        world_warn(world, "--%s %s is not written: only rank 0 (%s), at another site, writes one", option, own,
                   names[0].device);
    if (far) return true;
    static const char message[] = "rank %d (%s) was started with --%s%s, but only rank 0 (%s) writes one";
    if (hash_equal(all[0].place, none))
        return usage_error(diagnostics, "give the option to rank 0", message, rank, names[rank].device, option,
                           all[rank].text, names[0].device);
    diagnostics_warning(diagnostics, PLACE_NONE, NULL, message, rank, names[rank].device, option, all[rank].text,
                        names[0].device);
    return true;
}

bool handshake_paths(World *world, const SkyProgram *program, const TrainingOptions *options, Diagnostics *diagnostics)
{
    const OptionSet *set = &training_option_set;
    bool ok = true, tells = program->site_count < 2; /* paths are no other site's business */
    FREED RankPath *all = memory_allocate((size_t)world->size * sizeof *all);
    for (size_t i = 0; i < set->count; i++) {
        const Option *option = &set->rows[i];
        if (option->path == OPTION_PATH_OWN) continue;
        const char *own = *(const char *const *)((const char *)options + option->offset);
        const RankPath mine = rank_path(own, tells);
        world_allgather(world, &mine, sizeof mine, all, "agreement on paths");
        for (int r = 1; r < world->size; r++)
            ok &= option->path == OPTION_PATH_HOST
                      ? check_host_path(world, program, option->name, all, r, diagnostics)
                      : check_first_path(world, program, option->name, all, r, own, diagnostics);
    }
    return ok;
}

/* ---- Data ---- */

typedef struct ReadTensor {
    Hash name, content;
    char label[64]; /* the name, cut off if it is longer; "": none */
} ReadTensor;

/* Reports how tensor `number` of `all` (`each` per rank) differs from that of the first rank that reads it. */
static bool check_read(const ReadTensor *all, uint32_t each, size_t number, const char *path, Diagnostics *diagnostics)
{
    const ReadTensor *tensor = &all[number];
    for (size_t i = 0; tensor->label[0] && i < number; i++) {
        if (!all[i].label[0] || !hash_equal(all[i].name, tensor->name)) continue;
        if (hash_equal(all[i].content, tensor->content)) return true;
        return input_error(diagnostics, path, "give all hosts the same rows, in the same order",
                           "tensor '%s' is not the same for rank %zu as for rank %zu", tensor->label, number / each,
                           i / each);
    }
    return true;
}

static int by_name(const void *a, const void *b)
{
    const ReadTensor *left = a, *right = b;
    return memcmp(&left->name, &right->name, sizeof left->name);
}

/* The hash of every tensor once, in an order that does not depend on the ranks. Sorts the list. */
static Hash hash_read(ReadTensor *all, size_t count)
{
    Hash hash = {0};
    qsort(all, count, sizeof *all, by_name);
    for (size_t i = 0; i < count; i++)
        if (all[i].label[0] && (i == 0 || !hash_equal(all[i].name, all[i - 1].name)))
            hash = hash_extend(hash, &all[i].name, sizeof all[i].name + sizeof all[i].content);
    return hash;
}

typedef struct ReadFile {
    Hash tensors, pages; /* names and shapes of all tensors, and some contents; zeros: this rank reads no data */
} ReadFile;

static ReadFile describe_file(const Dataset *dataset)
{
    ReadFile file = {.pages = dataset->sample};
    for (size_t i = 0; dataset->read_count && i < dataset->file.count; i++) {
        const SafeTensor *tensor = dataset->file.by_name[i];
        file.tensors = hash_extend(file.tensors, tensor->name, strlen(tensor->name));
        file.tensors =
            hash_extend(file.tensors, tensor->shape.dim, (size_t)tensor->shape.rank * sizeof *tensor->shape.dim);
    }
    return file;
}

/* Ranks of which one reads texts and another labels have no tensor to compare. Their files may differ on purpose, where
 * raw tensors must not leave a device; more often one was copied before the other was made again. */
static void warn_of_other_files(World *world, const Dataset *dataset, const char *path, Diagnostics *diagnostics)
{
    const ReadFile mine = describe_file(dataset), none = {0};
    FREED ReadFile *all = memory_allocate((size_t)world->size * sizeof *all);
    int first = 0, other;
    world_allgather(world, &mine, sizeof mine, all, "agreement on data");
    while (first < world->size && hash_equal(all[first].tensors, none.tensors)) first++;
    for (other = first + 1; other < world->size; other++)
        if (hash_equal(all[other].tensors, all[first].tensors) && !hash_equal(all[other].pages, all[first].pages))
            break;
    if (other < world->size)
        diagnostics_warning(diagnostics, PLACE_FILE(path),
                            "if that is not on purpose, copy one file to all hosts: skycc deploy --data does",
                            "rank %d reads another file than rank %d, with the same tensors and other contents", other,
                            first);
}

bool handshake_data(World *world, const SkyProgram *program, const Dataset *dataset, const char *path, Hash *data,
                    Diagnostics *diagnostics)
{
    uint32_t mine = 0;
    for (uint32_t s = 0; s < program->stage_count; s++) mine += program->stages[s].input_count;
    uint32_t largest = world_largest(world, mine, "agreement on data"), each = largest ? largest : 1;
    FREED ReadTensor *read = memory_allocate(each * sizeof *read);
    FREED ReadTensor *all = memory_allocate((size_t)world->size * each * sizeof *all);
    for (uint32_t i = 0; i < dataset->read_count; i++) {
        const char *name = dataset->read[i].input->name;
        read[i] = (ReadTensor){.name = hash_text(name), .content = dataset->read[i].content};
        snprintf(read[i].label, sizeof read[i].label, "%s", name);
    }
    world_allgather(world, read, each * sizeof *read, all, "agreement on data");
    bool ok = true;
    for (size_t i = 0; i < (size_t)world->size * each; i++) ok = check_read(all, each, i, path, diagnostics) && ok;
    *data = hash_read(all, (size_t)world->size * each);
    if (ok) warn_of_other_files(world, dataset, path, diagnostics);
    return ok;
}

void handshake_warm_up(World *world, const SkyProgram *program)
{
    enum { LARGE = 1 << 17 };
    FREED char *buffers = memory_allocate(2 * (size_t)LARGE);
    for (uint32_t s = 0; s + 1 < program->total_stage_count; s++) {
        int from = (int)program->stage_rank[s], to = (int)program->stage_rank[s + 1], pending = 0;
        if (from == to || (from != world->rank && to != world->rank)) continue;
        int peer = from == world->rank ? to : from;
        world_receive(world, buffers, LARGE, peer, TAG_WARM_UP, &pending);
        world_send(world, buffers + LARGE, LARGE, peer, TAG_WARM_UP, &pending);
        world_wait(world, &pending, (WaitReason){peer, (int)(from == world->rank ? s + 1 : s), -1, "a first message"});
    }
    world_barrier(world, "the other links");
}
