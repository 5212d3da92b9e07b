/* skycc compile: model and cluster in, a directory with one native program per device out. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/directory.h"
#include "driver/commands/commands.h"
#include "driver/compile/emit_programs.h"
#include "driver/compile/launch_files.h"
#include "driver/compile/packed_check.h"
#include "driver/compile/plan_model.h"
#include "driver/compile/stage_programs.h"
#include "driver/compile/training_model.h"
#include "driver/compile/weights.h"
#include "partitioner/report/report.h"

typedef struct Compilation {
    const Options *options;
    PlannedModel planned;
    Advice advice;
    StagePrograms pipeline;
    OutputDirectory directory;
    Arena arena;
    double last; /* when the phase before was done, on the monotonic clock */
} Compilation;

static void print_time(const Compilation *compilation, const char *phase, double seconds)
{
    if (compilation->options->verbose) fprintf(stderr, "%-36s %7.3f s\n", phase, seconds);
}

static void tell_time(Compilation *compilation, const char *phase)
{
    double now = monotonic_seconds();
    print_time(compilation, phase, now - compilation->last);
    compilation->last = now;
}

/* Of the last phase: what its parts took. */
static void tell_emission(Compilation *compilation, const EmitTimes *times)
{
    char phase[80];
    snprintf(phase, sizeof phase, "code (%zu kernels, %zu cached)", times->kernels, times->cached);
    print_time(compilation, phase, times->compile_s);
    snprintf(phase, sizeof phase, "tables and linking (%zu)", compilation->pipeline.rank_count);
    print_time(compilation, phase, times->link_s);
    compilation->last = monotonic_seconds();
}

static bool emit_text(const Options *options, Buffer *text, Diagnostics *diagnostics)
{
    bool ok = file_write_all(options->output, buffer_text(text), text->size, diagnostics);
    buffer_free(text);
    return ok;
}

/* The phases that print one text. */
static bool emit_phase(Compilation *compilation, Diagnostics *diagnostics)
{
    const Options *options = compilation->options;
    Buffer text = {0};
    if (strcmp(options->emit, "costs") == 0)
        costs_print(&compilation->planned.costs, &text);
    else if (strcmp(options->emit, "plan") == 0)
        plan_print(&compilation->planned.plan, &text);
    else
        graph_print(&compilation->planned.model.graph, &text);
    return emit_text(options, &text, diagnostics);
}

/* A site that the plan leaves out gets no folder, which whoever looks for it is to know. */
static void tell_unused_sites(const Compilation *compilation, Diagnostics *diagnostics)
{
    const Cluster *cluster = &compilation->planned.cluster;
    const StagePrograms *pipeline = &compilation->pipeline;
    for (int s = 0; s < cluster->site_count && pipeline->in_folders; s++) {
        bool used = false;
        for (size_t k = 0; k < pipeline->site_count; k++) used |= pipeline->sites[k] == &cluster->sites[s];
        if (!used)
            diagnostics_warning(diagnostics, PLACE_FILE(compilation->options->plan.cluster), NULL,
                                "site '%s' has no stage in this plan, and so no folder", cluster->sites[s].name);
    }
}

static bool write_text(Compilation *compilation, const char *name, Buffer *text, Diagnostics *diagnostics)
{
    const char *path = arena_format(&compilation->arena, "%s/%s", compilation->directory.temporary, name);
    bool ok = file_write_all(path, buffer_text(text), text->size, diagnostics);
    buffer_free(text);
    return ok;
}

/* A file that the user named, which may lie in the output directory. */
static bool write_beside(const OutputDirectory *directory, const char *path, Buffer *text, Diagnostics *diagnostics)
{
    char *place = directory_place(directory, path);
    bool ok = file_write_all(place, buffer_text(text), text->size, diagnostics);
    free(place);
    buffer_free(text);
    return ok;
}

/* --report FILE: the form follows from the suffix. */
static bool write_chosen_report(const Report *report, const OutputDirectory *directory, const char *path,
                                Diagnostics *diagnostics)
{
    if (!path) return true;
    Buffer text = {0};
    report_print(report, report_form(path), &text);
    return write_beside(directory, path, &text, diagnostics);
}

static bool write_reports(Compilation *compilation, Diagnostics *diagnostics)
{
    const PlannedModel *planned = &compilation->planned;
    const Report report = {&planned->plan, &planned->costs, &compilation->advice};
    Buffer costs = {0}, plan = {0}, html = {0};
    advice_make(&compilation->advice, &planned->plan, &planned->costs, planned->advice_deadline);
    costs_print(&planned->costs, &costs);
    plan_print(&planned->plan, &plan);
    report_html(&report, &html);
    return write_text(compilation, "costs.json", &costs, diagnostics) &&
           write_text(compilation, "plan.json", &plan, diagnostics) &&
           write_text(compilation, "report.html", &html, diagnostics) &&
           write_chosen_report(&report, &compilation->directory, compilation->options->report, diagnostics);
}

/* A name as make and ninja read it. */
static void print_depfile_name(Buffer *text, const char *name)
{
    for (; *name; name++) {
        if (strchr(" #", *name)) buffer_print(text, "\\");
        if (*name == '$') buffer_print(text, "$");
        buffer_print(text, "%c", *name);
    }
}

static bool write_depfile(Compilation *compilation, Diagnostics *diagnostics)
{
    const Options *options = compilation->options;
    if (!options->depfile) return true;
    Buffer text = {0};
    print_depfile_name(&text, options->output);
    buffer_print(&text, "/plan.json:");
    const char *inputs[] = {options->model, options->plan.cluster, options->plan.profile};
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
        if (!inputs[i] || strcmp(inputs[i], "-") == 0) continue;
        buffer_print(&text, " ");
        print_depfile_name(&text, inputs[i]);
    }
    const ImportedModel *imported = &compilation->planned.model.imported;
    const char *last = options->model; /* parameters of one file mostly follow each other */
    for (size_t i = 0; i < imported->parameter_count; i++) {
        const char *file = imported->parameters[i].file;
        if (!file || strcmp(file, last) == 0) continue;
        buffer_print(&text, " ");
        print_depfile_name(&text, last = file);
    }
    buffer_print(&text, "\n");
    return write_beside(&compilation->directory, options->depfile, &text, diagnostics);
}

static bool emit_programs(Compilation *compilation, Diagnostics *diagnostics)
{
    const Options *options = compilation->options;
    PlannedModel *planned = &compilation->planned;
    if (!directory_create(&compilation->directory, options->output, options->force, diagnostics)) return false;
    WeightOptions weights = {compilation->directory.temporary, options->output, options->init, false};
    if (!stage_programs_build(&compilation->pipeline, &planned->model, &planned->plan, &planned->cluster, &weights,
                              options->seed, options->plan.clip, diagnostics))
        return false;
    tell_time(compilation, "stages and memory");
    EmitOptions emit = {compilation->directory.temporary, options->target_cpu, options->emit};
    EmitTimes times;
    if (!stage_programs_emit(&compilation->pipeline, &planned->cluster, &emit, &times, diagnostics)) return false;
    tell_emission(compilation, &times);
    tell_unused_sites(compilation, diagnostics);
    bool launches = !options->emit; /* else there is nothing to start */
    if ((launches && !launch_files_make(&compilation->pipeline, &planned->plan, &planned->cluster,
                                        compilation->directory.temporary, diagnostics)) ||
        !write_reports(compilation, diagnostics))
        return false;
    bool ok = write_depfile(compilation, diagnostics) && directory_commit(&compilation->directory, diagnostics);
    tell_time(compilation, "reports");
    return ok;
}

static bool compile(Compilation *compilation, Diagnostics *diagnostics)
{
    const Options *options = compilation->options;
    PlannedModel *planned = &compilation->planned;
    compilation->last = monotonic_seconds();
    ModelOptions load = options->load;
    load.seed = options->seed;
    load.train = !options->emit || strcmp(options->emit, "graph") != 0 || load.last_pass;
    if (!planned_model_load(planned, &options->plan, options->model, &load, diagnostics)) return false;
    tell_time(compilation, "import and differentiation");
    if (options->emit) planned_model_tell_packing(planned, options->quiet); /* else the report says it */
    if (planned->model.graph.packing.slots && !options->emit) {
        if (!packed_model_check(&planned->packed, options->model, diagnostics)) return false;
        tell_time(compilation, "packed and padded rows compared");
    }
    if (options->emit && (strcmp(options->emit, "graph") == 0 || strcmp(options->emit, "train") == 0))
        return emit_phase(compilation, diagnostics);
    if (!weights_check_names(&planned->model, diagnostics) ||
        !planned_model_costs(planned, &options->plan, diagnostics))
        return false;
    tell_time(compilation, "costs");
    if (options->emit && strcmp(options->emit, "costs") == 0) return emit_phase(compilation, diagnostics);
    if (!planned_model_plan(planned, &options->plan, diagnostics) ||
        !plan_check_limit(&planned->plan, "the", options->fail_above, diagnostics))
        return false;
    tell_time(compilation, "plan");
    if (options->emit && strcmp(options->emit, "plan") == 0) return emit_phase(compilation, diagnostics);
    if (!emit_programs(compilation, diagnostics)) return false;
    if (!options->quiet && !options->emit) {
        Buffer text = {0};
        report_text(&(Report){&planned->plan, &planned->costs, &compilation->advice}, &text);
        fputs(buffer_text(&text), stdout);
        buffer_free(&text);
    }
    return true;
}

int compile_command(const Options *options, Diagnostics *diagnostics)
{
    Compilation compilation = {.options = options};
    int code = compile(&compilation, diagnostics) ? EXIT_OK : diagnostics->exit_code;
    directory_abandon(&compilation.directory);
    stage_programs_free(&compilation.pipeline);
    advice_free(&compilation.advice);
    planned_model_free(&compilation.planned);
    arena_free(&compilation.arena);
    return code;
}
