#include "driver/commands/amend_federation.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/text.h"
#include "driver/commands/federate_sites.h"
#include "driver/federate/federation_steps.h"
#include "federation/amendment.h"

typedef struct Amending {
    Federate federate; /* the federation with all amendments, and the model that sites that join start from */
    Amendment amendment;
    const char *home; /* the directory of the federation */
    char secret[OWNER_SECRET_TEXT + 1];
    Buffer text; /* of the signed amendment */
} Amending;

static Arena *arena_of(Amending *amending) { return &amending->federate.arena; }

static bool find_home(Amending *amending, const char *change, Diagnostics *diagnostics)
{
    const Options *options = amending->federate.options;
    const char *said = amending->amendment.directory;
    amending->home = options->output ? options->output
                     : said          ? federation_cluster(arena_of(amending), change, said)
                                     : NULL;
    return amending->home ||
           input_error(diagnostics, change, "name what skycc federate made: -o DIR, or federation: DIR in the file",
                       "does not say which federation it changes");
}

/* The federation as the coordinator's folder has it, with the amendments that were signed since. */
static bool read_federation(Amending *amending, Diagnostics *diagnostics)
{
    Federation *federation = &amending->federate.federation;
    Arena *arena = arena_of(amending);
    const char *path = arena_format(arena, "%s/coordinator/federation.yaml", amending->home);
    bool ok = federation_read_compiled(federation, path, diagnostics), more = ok;
    if (ok && !federation->compiled.owner)
        ok = more = input_error(diagnostics, path, "compile it again with skycc federate --from",
                                "is of a federation without an owner's key, which nothing can amend");
    while (more) {
        FREED_WITH(amendment_free) Amendment earlier = {0};
        path = amendment_path(arena, amending->home, federation->compiled.amended + 1);
        more = amendment_open_file(&earlier, federation, path, diagnostics) &&
               federation_amend(federation, &earlier, path, diagnostics);
        if (more && earlier.from_round > amending->amendment.from_round && amending->amendment.from_round)
            more = input_error(diagnostics, amending->federate.options->amend, "name the same round or a later one",
                               "begins with round %lld, and the amendment before it with round %lld",
                               (long long)amending->amendment.from_round, (long long)earlier.from_round);
    }
    return ok && diagnostics->errors == 0;
}

/* The model that sites that join start from; without more to say, the amendment begins with the round after the one
 * under way. */
static bool read_model(Amending *amending, Diagnostics *diagnostics)
{
    const Federation *federation = &amending->federate.federation;
    GlobalModel *model = &amending->federate.start.model;
    const char *path = arena_format(arena_of(amending), "%s/coordinator/model.safetensors", amending->home);
    if (!global_model_open_file(model, federation->compiled.identity, path, 0, diagnostics)) return false;
    int64_t *round = &amending->amendment.from_round;
    if (!*round && model->round >= federation->rounds)
        return input_error(diagnostics, path, "skycc federate --from goes on with more rounds, or other sites",
                           "is the model after the last round: nothing is left to amend");
    if (*round && *round <= model->round)
        return input_error(diagnostics, amending->federate.options->amend, "name a later from_round, or leave it out",
                           "begins with round %lld, which is over: %lld were made", (long long)*round,
                           (long long)model->round);
    if (!*round) *round = model->round + 2;
    for (int s = 0; s < federation->site_count; s++) /* in the order in which they were signed */
        for (int i = 0; i < 3; i++) {
            const FederationSite *site = &federation->sites[s];
            int64_t other = i == 0 ? site->joined : i == 1 ? site->left : site->rekeyed;
            if (other > *round) *round = other;
        }
    return *round <= federation->rounds ||
           input_error(diagnostics, amending->federate.options->amend, "name an earlier from_round",
                       "begins with round %lld, and the federation ends after %lld", (long long)*round,
                       (long long)federation->rounds);
}

static bool sign(Amending *amending, Diagnostics *diagnostics)
{
    Federation *federation = &amending->federate.federation;
    Amendment *amendment = &amending->amendment;
    const char *key = arena_format(arena_of(amending), "%s/" OWNER_KEY, amending->home);
    amendment->number = federation->compiled.amended + 1;
    amendment->federation = federation->compiled.identity;
    for (size_t i = 0; i < amendment->count; i++)
        if (amendment->changes[i].kind == CHANGE_ADD && !amendment->changes[i].site.rows_per_step)
            return input_error(diagnostics, amending->federate.options->amend, "say it for every site that is added",
                               "site '%s' has no rows_per_step", amendment->changes[i].site.name);
    if (!owner_key_read(amending->secret, key, federation, diagnostics) ||
        !federation_amend(federation, amendment, amending->federate.options->amend, diagnostics))
        return false;
    amendment_print(amendment, amending->secret, &amending->text);
    explicit_bzero(amending->secret, sizeof amending->secret);
    return true;
}

/* Programs must be those of the other sites, for other devices. */
static bool check_recipe(const FederationCompiled *was, const FederationCompiled *is, const char *path,
                         Diagnostics *diagnostics)
{
    return (strcmp(was->model_hash, is->model_hash) == 0 && strcmp(was->low_rank, is->low_rank) == 0 &&
            (!was->recipe || strcmp(was->recipe, is->recipe) == 0)) ||
           input_error(diagnostics, path, "give the model and the options that skycc federate was given",
                       "gives other programs than those of the sites that are there");
}

static bool make_site(Amending *amending, int site, Diagnostics *diagnostics)
{
    Federate *federate = &amending->federate;
    Federation *federation = &federate->federation;
    FederationCompiled was = federation->compiled;
    GlobalModel model = federate->start.model;
    const Options *options = federate->options;
    const char *home = arena_format(arena_of(amending), "%s/%s", amending->home, federation->sites[site].name);
    if (!options->model)
        return input_error(diagnostics, options->amend,
                           "skycc federate MODEL.onnx --amend FILE with the options that it had before",
                           "adds site '%s', whose programs are made of the model", federation->sites[site].name);
    bool ok = federate_make_start(federate, site, diagnostics) &&
              federation_settle_rows(federation, options->amend, federate->start.microbatch_rows, 0, diagnostics) &&
              check_recipe(&was, &federation->compiled, options->model, diagnostics);
    global_model_free(&federate->start.model);
    federate->start.model = model;
    federation->compiled = was;
    ok = ok && directory_create(&federate->directory, home, false, diagnostics) &&
         federate_compile_site(federate, site, federate->directory.temporary, diagnostics) &&
         federate_finish_site(federate, site, federate->directory.temporary, diagnostics) &&
         directory_commit(&federate->directory, diagnostics);
    federation->compiled = was;
    return ok;
}

static bool make_sites(Amending *amending, Diagnostics *diagnostics)
{
    Federation *federation = &amending->federate.federation;
    Amendment *amendment = &amending->amendment;
    bool ok = true;
    for (size_t i = 0; i < amendment->count && ok; i++)
        if (amendment->changes[i].kind == CHANGE_ADD)
            ok = make_site(amending, federation_find_site(federation, amendment->changes[i].site.name), diagnostics);
    return ok;
}

static bool put(Amending *amending, const char *directory, Diagnostics *diagnostics)
{
    const char *folder = arena_format(arena_of(amending), "%s/amendments", directory);
    const char *path = amendment_path(arena_of(amending), directory, amending->amendment.number);
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) return file_error(diagnostics, folder, "cannot create");
    return file_write_all(path, amending->text.bytes, amending->text.size, diagnostics);
}

static void tell(Amending *amending)
{
    const char *path = amendment_path(arena_of(amending), amending->home, amending->amendment.number);
    FREED_WITH(buffer_free) Buffer what = {0};
    amendment_describe(&amending->amendment, &what);
    text_print(stdout, "%s: from round %lld on:%s\n", path, (long long)amending->amendment.from_round,
               buffer_text(&what));
    text_print(stdout, "the coordinator takes it from %s/coordinator/amendments\n", amending->home);
    if (amending->federate.federation.secure && amendment_has_new_keys(&amending->amendment))
        text_print(stdout, "it has new keys: every site consents by putting the file into its DIR/SITE/amendments\n");
}

bool amend_federation(const Options *options, Diagnostics *diagnostics)
{
    Amending amending = {.federate = {.options = options}};
    bool ok = amendment_read(&amending.amendment, options->amend, diagnostics) &&
              find_home(&amending, options->amend, diagnostics) && read_federation(&amending, diagnostics) &&
              read_model(&amending, diagnostics) && sign(&amending, diagnostics) &&
              make_sites(&amending, diagnostics) && put(&amending, amending.home, diagnostics) &&
              put(&amending, arena_format(arena_of(&amending), "%s/coordinator", amending.home), diagnostics);
    if (ok && !options->quiet) tell(&amending);
    buffer_free(&amending.text);
    directory_abandon(&amending.federate.directory);
    global_model_free(&amending.federate.start.model);
    federation_free(&amending.federate.federation);
    amendment_free(&amending.amendment);
    arena_free(&amending.federate.arena);
    return ok;
}
