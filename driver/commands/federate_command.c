/* skycc federate: makes a directory for every site of a federation and one for the coordinator. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/directory.h"
#include "base/text.h"
#include "codegen/link/link.h"
#include "driver/commands/commands.h"
#include "driver/coordinate/evaluator.h"
#include "driver/federate/federation_start.h"
#include "driver/federate/federation_steps.h"
#include "federation/planning/probed_links.h"

typedef struct Federate {
    const Options *options;
    Arena arena;
    Federation federation;
    FederationStart start;
    OutputDirectory directory;
} Federate;

static const char *cluster_of(Federate *federate, int site)
{
    return federation_cluster(&federate->arena, federate->options->federation,
                              federate->federation.sites[site].cluster);
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
    plan.profile = NULL;
    return federation_start_make(&federate->start, &federate->federation, options->model, &plan, &load, options->init,
                                 diagnostics) &&
           (!options->follows ||
            federation_start_follow(&federate->start, &federate->federation, options->follows, diagnostics));
}

static const char *site_directory(Federate *federate, int site)
{
    return arena_format(&federate->arena, "%s/%s", federate->directory.temporary,
                        federate->federation.sites[site].name);
}

static bool compile_site(Federate *federate, int site, Diagnostics *diagnostics)
{
    Options options = *federate->options;
    options.output = site_directory(federate, site);
    options.plan.cluster = cluster_of(federate, site);
    options.plan.profile = NULL; /* of links between sites */
    options.plan.request.microbatches =
        (int)(federate->federation.sites[site].rows_per_step / federate->start.microbatch_rows);
    options.quiet = options.alone = true;
    return compile_command(&options, diagnostics);
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
    GlobalModel *model = &federate->start.model;
    float *momentum = model->momentum, *variance = model->variance;
    unlink(arena_format(&federate->arena, "%s/" DIRECTORY_LIST,
                        directory));          /* the list of the whole directory names its files too */
    model->momentum = model->variance = NULL; /* the coordinator's */
    bool ok = write_common(federate, directory, site, "start.safetensors", diagnostics);
    model->momentum = momentum;
    model->variance = variance;
    return ok && link_beside("member", arena_format(&federate->arena, "%s/member", directory),
                             &(LinkOptions){.runtime = ""}, diagnostics);
}

static bool copy_file(const char *from, const char *to, Diagnostics *diagnostics)
{
    MappedFile file;
    if (!file_map(&file, from, diagnostics)) return false;
    bool ok = file_write_part(to, file.bytes, file.size, diagnostics);
    file_unmap(&file);
    return ok;
}

/* The coordinator gets what it evaluates with, and tries it on the model that all begin with. */
static bool add_evaluation(Federate *federate, const char *directory, const char *data, Diagnostics *diagnostics)
{
    Arena *arena = &federate->arena;
    Evaluation evaluation;
    bool ok = copy_file(federate->options->model, arena_format(arena, "%s/" EVALUATOR_MODEL, directory), diagnostics) &&
              copy_file(data, arena_format(arena, "%s/" EVALUATOR_DATA, directory), diagnostics);
    if (!ok) return false;
    pid_t process = evaluator_begin(directory, arena_format(arena, "%s/model.safetensors", directory));
    if (process > 0) evaluator_ended(process, directory, true, &ok, &evaluation);
    return (process > 0 && ok) ||
           input_error(diagnostics, data, "evaluate: {data: FILE} in federation.yaml names it; skycc evaluate tries it",
                       "cannot be used to evaluate the model: see the error above");
}

static bool make_coordinator(Federate *federate, Diagnostics *diagnostics)
{
    const char *directory = arena_format(&federate->arena, "%s/coordinator", federate->directory.temporary);
    const char *data = federate->federation.steering.data;
    if (mkdir(directory, 0777) != 0) return file_error(diagnostics, directory, "cannot create");
    if (data) data = federation_cluster(&federate->arena, federate->options->federation, data);
    return write_common(federate, directory, -1, "model.safetensors", diagnostics) &&
           (!data || add_evaluation(federate, directory, data, diagnostics));
}

static bool federate_all(Federate *federate, Diagnostics *diagnostics)
{
    const Options *options = federate->options;
    Federation *federation = &federate->federation;
    if (!federation_read(federation, options->federation, &options->federation_wishes, diagnostics) ||
        !probed_links_take(federation, options->plan.profile, diagnostics) ||
        (federation->local_steps == FEDERATION_STEPS_AUTO &&
         !federation_check_links(federation, options->federation, "local_steps: auto", diagnostics)) ||
        !make_start(federate, diagnostics) ||
        !directory_create(&federate->directory, options->output, options->force, diagnostics))
        return false;
    if (!federation_settle_rows(federation, options->federation, federate->start.microbatch_rows,
                                options->plan.request.microbatches, diagnostics))
        return false;
    for (int s = 0; s < federation->site_count; s++)
        if (!compile_site(federate, s, diagnostics)) return false;
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
    text_print(stdout, "%d sites, %zu parameters with %zu elements, a round every %lld steps\n", federation->site_count,
               federate->start.model.tensor_count, federate->start.model.elements, (long long)federation->local_steps);
    if (federate->options->follows)
        text_print(stdout, "continues with round %lld of %lld\n", (long long)federate->start.model.round + 1,
                   (long long)federation->rounds);
    if (federation->compiled.why_steps) text_print(stdout, "local_steps: %s\n", federation->compiled.why_steps);
    for (int s = 0; s < federation->site_count; s++)
        text_print(stdout, "%s/%s/train --join --data DATA --checkpoint DIR      # at %s, %lld rows per step\n",
                   federate->options->output, federation->sites[s].name, federation->sites[s].name,
                   (long long)federation->sites[s].rows_per_step);
    text_print(stdout, "skycc coordinate %s/coordinator      # at %s\n", federate->options->output,
               federation->address);
}

bool federate_command(const Options *options, Diagnostics *diagnostics)
{
    Federate federate = {.options = options};
    bool ok = federate_all(&federate, diagnostics);
    if (ok && !options->quiet) tell(&federate);
    directory_abandon(&federate.directory);
    global_model_free(&federate.start.model);
    federation_free(&federate.federation);
    arena_free(&federate.arena);
    return ok;
}
