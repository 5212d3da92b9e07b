/* skycc federate: a model and a federation in, a directory for every site and one for the coordinator out. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/directory.h"
#include "codegen/link/link.h"
#include "driver/commands/commands.h"
#include "driver/compile/federation_start.h"
#include "driver/compile/federation_steps.h"

typedef struct Federate {
    const Options *options;
    Arena arena;
    Federation federation;
    FederationStart start;
    OutputDirectory directory;
} Federate;

/* Files that federation.yaml names lie beside it. */
static const char *cluster_of(Federate *federate, int site)
{
    const char *cluster = federate->federation.sites[site].cluster, *file = federate->options->federation;
    const char *slash = strrchr(file, '/');
    if (*cluster == '/' || !slash) return cluster;
    return arena_format(&federate->arena, "%.*s/%s", (int)(slash - file), file, cluster);
}

static ModelOptions load_options(const Federate *federate)
{
    ModelOptions load = federate->options->load;
    load.seed = federate->options->seed;
    load.train = true;
    return load;
}

static bool make_start(Federate *federate, Diagnostics *diagnostics)
{
    const Options *options = federate->options;
    PlanModelOptions plan = options->plan;
    ModelOptions load = load_options(federate);
    plan.cluster = cluster_of(federate, 0);
    return federation_start_make(&federate->start, &federate->federation, options->model, &plan, &load, options->init,
                                 diagnostics);
}

/* Rows of a step are whole micro-batches; --microbatches says how many where the site does not say its rows. */
static bool settle_rows(Federate *federate, int site, int *microbatches, Diagnostics *diagnostics)
{
    FederationSite *member = &federate->federation.sites[site];
    int64_t rows = federate->start.microbatch_rows, given = federate->options->plan.request.microbatches;
    if (!member->rows_per_step && given < 1)
        return diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_FILE(federate->options->federation),
                                 "give it rows_per_step, or all of them --microbatches N",
                                 "site '%s' does not say how many rows it takes in a step", member->name);
    if (member->rows_per_step % rows)
        return diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_FILE(federate->options->federation),
                                 "--dim batch=N sets the rows of a micro-batch",
                                 "rows_per_step of site '%s', %lld, is no multiple of the micro-batch's %lld rows",
                                 member->name, (long long)member->rows_per_step, (long long)rows);
    if (!member->rows_per_step) member->rows_per_step = rows * given;
    *microbatches = (int)(member->rows_per_step / rows);
    return true;
}

static const char *site_directory(Federate *federate, int site)
{
    return arena_format(&federate->arena, "%s/%s", federate->directory.temporary,
                        federate->federation.sites[site].name);
}

static bool compile_site(Federate *federate, int site, int microbatches, Diagnostics *diagnostics)
{
    Options options = *federate->options;
    options.output = site_directory(federate, site);
    options.plan.cluster = cluster_of(federate, site);
    options.plan.request.microbatches = microbatches;
    options.quiet = true;
    return compile_command(&options, diagnostics) == EXIT_OK;
}

static bool write_common(Federate *federate, const char *directory, int site, const char *model,
                         Diagnostics *diagnostics)
{
    Buffer text = {0};
    federate->federation.compiled.site = site;
    federation_print(&federate->federation, &text);
    bool ok = file_write_part(arena_format(&federate->arena, "%s/federation.yaml", directory), buffer_text(&text),
                              text.size, diagnostics) &&
              global_model_write(&federate->start.model, arena_format(&federate->arena, "%s/%s", directory, model),
                                 diagnostics);
    buffer_free(&text);
    return ok;
}

static bool finish_site(Federate *federate, int site, Diagnostics *diagnostics)
{
    const char *directory = site_directory(federate, site);
    unlink(arena_format(&federate->arena, "%s/" DIRECTORY_LIST, directory)); /* that of the whole has its files, too */
    return write_common(federate, directory, site, "start.safetensors", diagnostics) &&
           link_beside("member", arena_format(&federate->arena, "%s/member", directory), &(LinkOptions){.runtime = ""},
                       diagnostics);
}

static bool make_coordinator(Federate *federate, Diagnostics *diagnostics)
{
    const char *directory = arena_format(&federate->arena, "%s/coordinator", federate->directory.temporary);
    if (mkdir(directory, 0777) != 0) return file_error(diagnostics, directory, "cannot create");
    return write_common(federate, directory, -1, "model.safetensors", diagnostics);
}

static bool federate_all(Federate *federate, Diagnostics *diagnostics)
{
    const Options *options = federate->options;
    Federation *federation = &federate->federation;
    if (!federation_read(federation, options->federation, &options->federation_wishes, diagnostics) ||
        (federation->local_steps == FEDERATION_STEPS_AUTO &&
         !federation_check_links(federation, options->federation, "local_steps: auto", diagnostics)) ||
        !make_start(federate, diagnostics) ||
        !directory_create(&federate->directory, options->output, options->force, diagnostics))
        return false;
    int *microbatches = arena_new_array(&federate->arena, int, (size_t)federation->site_count);
    for (int s = 0; s < federation->site_count; s++)
        if (!settle_rows(federate, s, &microbatches[s], diagnostics)) return false;
    for (int s = 0; s < federation->site_count; s++)
        if (!compile_site(federate, s, microbatches[s], diagnostics)) return false;
    if (!federation_settle_steps(federation, (int64_t)federate->start.model.elements, federate->directory.temporary,
                                 diagnostics))
        return false;
    federation_start_identify(&federate->start, federation);
    for (int s = 0; s < federation->site_count; s++)
        if (!finish_site(federate, s, diagnostics)) return false;
    return make_coordinator(federate, diagnostics) && directory_commit(&federate->directory, diagnostics);
}

static void tell(const Federate *federate)
{
    const Federation *federation = &federate->federation;
    printf("%d sites, %zu parameters of %zu elements, a round every %lld steps\n", federation->site_count,
           federate->start.model.tensor_count, federate->start.model.elements, (long long)federation->local_steps);
    if (federation->compiled.why_steps) printf("local_steps: %s\n", federation->compiled.why_steps);
    for (int s = 0; s < federation->site_count; s++)
        printf("%s/%s/train --join --data DATA --checkpoint DIR      # at %s, %lld rows a step\n",
               federate->options->output, federation->sites[s].name, federation->sites[s].name,
               (long long)federation->sites[s].rows_per_step);
    printf("skycc coordinate %s/coordinator      # at %s\n", federate->options->output, federation->address);
}

int federate_command(const Options *options, Diagnostics *diagnostics)
{
    Federate federate = {.options = options};
    bool ok = federate_all(&federate, diagnostics);
    if (ok && !options->quiet) tell(&federate);
    directory_abandon(&federate.directory);
    global_model_free(&federate.start.model);
    federation_free(&federate.federation);
    arena_free(&federate.arena);
    return ok ? EXIT_OK : diagnostics->exit_code;
}
