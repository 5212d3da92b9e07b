/* skycc federate: makes a directory for every site of a federation and one for the coordinator. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/directory.h"
#include "base/text.h"
#include "driver/commands/amend_federation.h"
#include "driver/commands/commands.h"
#include "driver/commands/federate_sites.h"
#include "driver/coordinate/evaluator.h"
#include "driver/federate/federation_start.h"
#include "driver/federate/federation_steps.h"
#include "federation/amendment.h"
#include "federation/fragments.h"
#include "federation/planning/probed_links.h"
#include "frontend/onnx/model.h"

static const char *site_directory(Federate *federate, int site)
{
    return arena_format(&federate->arena, "%s/%s", federate->directory.temporary,
                        federate->federation.sites[site].name);
}

static bool copy_file(const char *from, const char *to, Diagnostics *diagnostics)
{
    FREED_WITH(file_unmap) MappedFile file = {0};
    if (!file_map(&file, from, diagnostics)) return false;
    return file_write_part(to, file.bytes, file.size, diagnostics);
}

/* The files next to the model that hold its weights: frozen ones are in no checkpoint. */
static bool copy_external(Federate *federate, const char *directory, Diagnostics *diagnostics)
{
    FREED_WITH(onnx_model_close) OnnxModel model = {0};
    bool ok = onnx_model_open(&model, federate->options->model, false, diagnostics);
    for (size_t i = 0; ok && i < model.proto->graph->n_initializer; i++) {
        const Onnx__TensorProto *tensor = model.proto->graph->initializer[i];
        for (size_t e = 0; ok && e < tensor->n_external_data; e++)
            if (strcmp(tensor->external_data[e]->key, "location") == 0)
                ok = external_data_open(&model.external, tensor->external_data[e]->value,
                                        PLACE_FILE(federate->options->model), diagnostics);
    }
    for (size_t f = 0; ok && f < model.external.count; f++) {
        char *to = arena_format(&federate->arena, "%s/%s", directory, model.external.files[f]->location);
        for (char *slash = to + strlen(directory) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
            *slash = '\0';
            mkdir(to, 0777);
        }
        ok = access(to, F_OK) == 0
                 ? input_error(diagnostics, federate->options->model, "rename that file and save again",
                               "keeps weights in '%s', a name that the coordinator's folder needs",
                               model.external.files[f]->location)
                 : copy_file(model.external.files[f]->path, to, diagnostics);
    }
    return ok;
}

/* The coordinator gets what it evaluates with, and tries it on the model that all begin with. */
static bool add_evaluation(Federate *federate, const char *directory, const char *data, Diagnostics *diagnostics)
{
    Arena *arena = &federate->arena;
    Evaluation evaluation;
    bool ok = copy_file(federate->options->model, arena_format(arena, "%s/" EVALUATOR_MODEL, directory), diagnostics) &&
              copy_file(data, arena_format(arena, "%s/" EVALUATOR_DATA, directory), diagnostics) &&
              copy_external(federate, directory, diagnostics);
    if (!ok) return false;
    Evaluator evaluator = evaluator_begin(directory, arena_format(arena, "%s/model.safetensors", directory), data);
    bool begun = evaluator.process > 0;
    if (begun) evaluator_ended(&evaluator, true, &ok, &evaluation);
    return (begun && ok) ||
           input_error(diagnostics, data, "evaluate: {data: FILE} in federation.yaml names it; skycc evaluate tries it",
                       "cannot be used to evaluate the model: see the error above");
}

static bool make_coordinator(Federate *federate, Diagnostics *diagnostics)
{
    const char *directory = arena_format(&federate->arena, "%s/coordinator", federate->directory.temporary);
    const char *data = federate->federation.steering.data;
    if (mkdir(directory, 0777) != 0) return file_error(diagnostics, directory, "cannot create");
    if (data) data = federation_cluster(&federate->arena, federate->options->federation, data);
    return federate_write_common(federate, directory, -1, "model.safetensors", diagnostics) &&
           (!data || add_evaluation(federate, directory, data, diagnostics));
}

/* The owner's key pair, whose secret half lies next to the folders and goes nowhere. */
static bool make_owner(Federate *federate, Diagnostics *diagnostics)
{
    char secret[OWNER_SECRET_TEXT + 1], public_key[OWNER_PUBLIC_TEXT + 1];
    const char *path = arena_format(&federate->arena, "%s/" OWNER_KEY, federate->directory.temporary);
    owner_key_draw(secret, public_key);
    federate->federation.compiled.owner = arena_string(&federate->federation.arena, public_key);
    int descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
    bool ok = descriptor >= 0 && write(descriptor, secret, OWNER_SECRET_TEXT) == OWNER_SECRET_TEXT &&
              write(descriptor, "\n", 1) == 1;
    explicit_bzero(secret, sizeof secret);
    if (descriptor >= 0) ok = close(descriptor) == 0 && ok;
    return ok || file_error(diagnostics, path, "cannot write");
}

static bool federate_all(Federate *federate, Diagnostics *diagnostics)
{
    const Options *options = federate->options;
    Federation *federation = &federate->federation;
    if (!federation_read(federation, options->federation, &options->federation_wishes, diagnostics) ||
        !probed_links_take(federation, options->plan.profile, diagnostics) ||
        (federation->local_steps == FEDERATION_STEPS_AUTO &&
         !federation_check_links(federation, options->federation, "local_steps: auto", diagnostics)) ||
        !federate_make_start(federate, 0, diagnostics) ||
        !directory_create(&federate->directory, options->output, options->force, diagnostics))
        return false;
    if (!federation_settle_rows(federation, options->federation, federate->start.microbatch_rows,
                                options->plan.request.microbatches, diagnostics))
        return false;
    for (int s = 0; s < federation->site_count; s++)
        if (!federate_compile_site(federate, s, site_directory(federate, s), diagnostics)) return false;
    if (!federation_settle_steps(federation, (int64_t)federate->start.model.elements, federate->directory.temporary,
                                 diagnostics))
        return false;
    federation_start_identify(&federate->start, federation);
    if (!make_owner(federate, diagnostics)) return false;
    for (int s = 0; s < federation->site_count; s++)
        if (!federate_finish_site(federate, s, site_directory(federate, s), diagnostics)) return false;
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
    size_t fragments = fragments_most(federate->start.model.tensor_count, (size_t)federation->fragments);
    if (fragments < (size_t)federation->fragments)
        text_print(stdout, "fragments: %zu, not %lld: one for each parameter\n", fragments,
                   (long long)federation->fragments);
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
    if (options->amend) return amend_federation(options, diagnostics);
    bool ok = federate_all(&federate, diagnostics);
    if (ok && !options->quiet) tell(&federate);
    directory_abandon(&federate.directory);
    global_model_free(&federate.start.model);
    federation_free(&federate.federation);
    arena_free(&federate.arena);
    return ok;
}
