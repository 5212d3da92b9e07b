#include "driver/commands/federate_sites.h"

#include <stdlib.h>
#include <unistd.h>

#include "codegen/link/link.h"
#include "driver/commands/commands.h"
#include "driver/federate/federation_steps.h"

static const char *cluster_of(Federate *federate, int site)
{
    const Options *options = federate->options;
    return federation_cluster(&federate->arena, options->amend ? options->amend : options->federation,
                              federate->federation.sites[site].cluster);
}

static ModelOptions load_options(const Federate *federate)
{
    ModelOptions load = federate->options->load;
    load.seed = federate->options->seed;
    load.train = true;
    return load;
}

bool federate_make_start(Federate *federate, int like, Diagnostics *diagnostics)
{
    const Options *options = federate->options;
    PlanModelOptions plan = options->plan;
    ModelOptions load = load_options(federate);
    plan.cluster = cluster_of(federate, like);
    plan.profile = NULL;
    return federation_start_make(&federate->start, &federate->federation, options->model, &plan, &load, options->init,
                                 diagnostics) &&
           (!options->follows ||
            federation_start_follow(&federate->start, &federate->federation, options->follows, diagnostics));
}

bool federate_compile_site(Federate *federate, int site, const char *directory, Diagnostics *diagnostics)
{
    Options options = *federate->options;
    options.output = directory;
    options.plan.cluster = cluster_of(federate, site);
    options.plan.profile = NULL; /* of links between sites */
    options.plan.request.microbatches =
        (int)(federate->federation.sites[site].rows_per_step / federate->start.microbatch_rows);
    options.quiet = options.alone = true;
    return compile_command(&options, diagnostics);
}

bool federate_write_common(Federate *federate, const char *directory, int site, const char *model,
                           Diagnostics *diagnostics)
{
    FREED_WITH(buffer_free) Buffer text = {0};
    federate->federation.compiled.site = site;
    federation_print(&federate->federation, &text);
    return file_write_part(arena_format(&federate->arena, "%s/federation.yaml", directory), buffer_text(&text),
                           text.size, diagnostics) &&
           global_model_write(&federate->start.model, arena_format(&federate->arena, "%s/%s", directory, model),
                              diagnostics);
}

bool federate_finish_site(Federate *federate, int site, const char *directory, Diagnostics *diagnostics)
{
    GlobalModel *model = &federate->start.model;
    float *momentum = model->momentum, *variance = model->variance, *remainder = model->remainder;
    unlink(arena_format(&federate->arena, "%s/" DIRECTORY_LIST,
                        directory)); /* the list of the whole directory names its files too */
    model->momentum = model->variance = model->remainder = NULL; /* the coordinator's */
    bool ok = federate_write_common(federate, directory, site, "start.safetensors", diagnostics);
    model->momentum = momentum;
    model->variance = variance;
    model->remainder = remainder;
    return ok && link_beside("member", arena_format(&federate->arena, "%s/member", directory),
                             &(LinkOptions){.runtime = ""}, diagnostics);
}
