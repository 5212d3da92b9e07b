/* skycc compile: model and cluster in, a directory with one native program per device out. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/directory.h"
#include "base/outputs.h"
#include "base/owned_files.h"
#include "base/text.h"
#include "driver/commands/commands.h"
#include "driver/compile/emit_programs.h"
#include "driver/compile/launch_files.h"
#include "driver/compile/packed_check.h"
#include "driver/compile/plan_load.h"
#include "driver/compile/smaller_microbatches.h"
#include "driver/compile/stage_programs.h"
#include "driver/compile/training_model.h"
#include "driver/compile/weights.h"
#include "partitioner/report/report.h"
#include "partitioner/report/report_words.h"

typedef struct Compilation {
    const Options *options;
    PlannedModel planned;
    Advice advice;
    StagePrograms pipeline;
    OutputDirectory directory;
    Arena arena;
    uint64_t kept_bytes; /* of EmitTimes */
    const char *note;    /* what a phase adds to the line about its time; NULL: it had nothing to do */
} Compilation;

static bool write_output(const char *path, Buffer *text, Diagnostics *diagnostics)
{
    bool ok = file_write_all(path, buffer_text(text), text->size, diagnostics);
    buffer_free(text);
    return ok;
}

/* Warns of sites that the plan leaves out: they get no folder. */
static void tell_unused_sites(const Compilation *compilation, Diagnostics *diagnostics)
{
    const Cluster *cluster = &compilation->planned.cluster;
    const StagePrograms *pipeline = &compilation->pipeline;
    for (int s = 0; s < cluster->site_count && pipeline->in_folders; s++) {
        bool used = false;
        for (size_t k = 0; k < pipeline->site_count; k++) used |= pipeline->sites[k] == &cluster->sites[s];
        if (!used)
            diagnostics_warning(diagnostics, PLACE_FILE(compilation->options->plan.cluster), NULL,
                                "site '%s' has no stage in this plan, so it gets no folder", cluster->sites[s].name);
    }
}

static bool write_text(Compilation *compilation, const char *name, Buffer *text, Diagnostics *diagnostics)
{
    const char *path = arena_format(&compilation->arena, "%s/%s", compilation->directory.temporary, name);
    return write_output(path, text, diagnostics);
}

/* Writes a file that the user named; it may lie in the output directory. */
static bool write_beside(const OutputDirectory *directory, const char *path, Buffer *text, Diagnostics *diagnostics)
{
    FREED char *place = directory_place(directory, path);
    bool is_made = path_inside(place, directory->temporary) && access(place, F_OK) == 0;
    return is_made ? diagnostics_error(diagnostics, EXIT_USAGE, PLACE_FILE(path), "name another file",
                                       "would replace a part of the compiled folder %s", directory->path)
                   : write_output(place, text, diagnostics);
}

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
    const Report report = {.plan = &planned->plan, .costs = &planned->costs, .advice = &compilation->advice};
    Buffer costs = {0}, plan = {0}, html = {0};
    advice_make(&compilation->advice, &planned->plan, &planned->costs, planned->advice_deadline);
    smaller_microbatches_advise(planned, &compilation->options->plan, &compilation->advice);
    costs_print(&planned->costs, &costs);
    plan_print(&planned->plan, &plan);
    report_print(&report, "html", &html);
    return write_text(compilation, "costs.json", &costs, diagnostics) &&
           write_text(compilation, "plan.json", &plan, diagnostics) &&
           write_text(compilation, "report.html", &html, diagnostics) &&
           write_chosen_report(&report, &compilation->directory, compilation->options->report, diagnostics);
}

/* A file name, escaped for make and ninja. */
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
    const char *last = options->model; /* parameters of one file are mostly adjacent */
    for (size_t i = 0; i < imported->parameter_count; i++) {
        const char *file = imported->parameters[i].file;
        if (!file || strcmp(file, last) == 0) continue;
        buffer_print(&text, " ");
        print_depfile_name(&text, last = file);
    }
    buffer_print(&text, "\n");
    return write_beside(&compilation->directory, options->depfile, &text, diagnostics);
}

/* ---- The phases ---- */

/* With --emit the output is one phase's, or code in another form: there is nothing to start. */
static bool emits(const Compilation *compilation)
{
    return compilation->options->emit || compilation->options->form != EMIT_PROGRAMS;
}

static bool load(Compilation *compilation, bool train, Diagnostics *diagnostics)
{
    const Options *options = compilation->options;
    PlannedModel *planned = &compilation->planned;
    ModelOptions load = options->load;
    load.seed = options->seed;
    load.train = train;
    if (!planned_model_load(planned, &options->plan, options->model, &load, diagnostics)) return false;
    if (emits(compilation)) planned_model_tell_packing(planned, options->quiet); /* otherwise the report says it */
    return true;
}

/* The graph as imported, or after a pass, which may be one that adds gradients and updates. */
static bool load_graph(Compilation *compilation, Diagnostics *diagnostics)
{
    return load(compilation, compilation->options->load.last_pass, diagnostics);
}

static bool load_training_graph(Compilation *compilation, Diagnostics *diagnostics)
{
    return load(compilation, true, diagnostics);
}

static void print_graph(const Compilation *compilation, Buffer *text)
{
    graph_print(&compilation->planned.model.graph, text);
}

static bool check_packing(Compilation *compilation, Diagnostics *diagnostics)
{
    const PlannedModel *planned = &compilation->planned;
    if (planned->model.graph.packing.slots && !emits(compilation))
        return packed_model_check(&planned->packed, compilation->options->model, diagnostics);
    compilation->note = NULL;
    return true;
}

static bool make_costs(Compilation *compilation, Diagnostics *diagnostics)
{
    PlannedModel *planned = &compilation->planned;
    return weights_check_names(&planned->model, diagnostics) &&
           planned_model_costs(planned, &compilation->options->plan, diagnostics);
}

static void print_costs(const Compilation *compilation, Buffer *text)
{
    costs_print(&compilation->planned.costs, text);
}

static bool make_plan(Compilation *compilation, Diagnostics *diagnostics)
{
    const Options *options = compilation->options;
    PlannedModel *planned = &compilation->planned;
    bool ok = planned_model_plan(planned, &options->plan, diagnostics);
    if (!ok) smaller_microbatches_hint(planned, &options->plan, diagnostics);
    return ok && plan_check_limit(&planned->plan, "the", options->fail_above, diagnostics);
}

static void print_plan(const Compilation *compilation, Buffer *text) { plan_print(&compilation->planned.plan, text); }

static bool build_stages(Compilation *compilation, Diagnostics *diagnostics)
{
    const Options *options = compilation->options;
    PlannedModel *planned = &compilation->planned;
    if (!directory_create(&compilation->directory, options->output, options->force, diagnostics)) return false;
    WeightOptions weights = {compilation->directory.temporary, options->output, options->init, options->alone};
    return stage_programs_build(&compilation->pipeline, &planned->model, &planned->plan, &planned->cluster, &weights,
                                options->seed, options->plan.clip, diagnostics);
}

static bool emit_code(Compilation *compilation, Diagnostics *diagnostics)
{
    const Options *options = compilation->options;
    StagePrograms *pipeline = &compilation->pipeline;
    EmitOptions emit = {compilation->directory.temporary, options->target_cpu, options->form};
    EmitTimes times;
    if (!stage_programs_emit(pipeline, &compilation->planned.cluster, &emit, &times, diagnostics)) return false;
    compilation->note = arena_format(&compilation->arena, " (%zu kernels, %zu cached: %.3f s; linking %zu: %.3f s)",
                                     times.kernels, times.cached, times.compile_s, pipeline->rank_count, times.link_s);
    compilation->kept_bytes = times.kept_bytes;
    tell_unused_sites(compilation, diagnostics);
    return true;
}

static bool finish_directory(Compilation *compilation, Diagnostics *diagnostics)
{
    const PlannedModel *planned = &compilation->planned;
    OutputDirectory *directory = &compilation->directory;
    outputs_hold();
    bool ok = (emits(compilation) || launch_files_make(&compilation->pipeline, &planned->plan, &planned->cluster,
                                                       directory->temporary, diagnostics)) &&
              write_reports(compilation, diagnostics) && write_depfile(compilation, diagnostics) &&
              directory_commit(directory, diagnostics);
    return outputs_release(ok, diagnostics);
}

/* In order. `--emit NAME` stops after the phase of that name and prints its output. */
static const struct CompilePhase {
    const char *name; /* NULL: it prints nothing */
    bool alone;       /* runs only if --emit names it */
    const char *told; /* with --verbose, next to its time */
    bool (*run)(Compilation *compilation, Diagnostics *diagnostics);
    void (*print)(const Compilation *compilation, Buffer *text);
} phases[] = {
    {"graph", true, "import", load_graph, print_graph},
    {"train", false, "import and differentiation", load_training_graph, print_graph},
    {NULL, false, "packed and padded rows compared", check_packing, NULL},
    {"costs", false, "costs", make_costs, print_costs},
    {"plan", false, "plan", make_plan, print_plan},
    {NULL, false, "stages and memory", build_stages, NULL},
    {NULL, false, "code", emit_code, NULL},
    {NULL, false, "launch files and reports", finish_directory, NULL},
};

static bool run_phase(Compilation *compilation, const struct CompilePhase *phase, Diagnostics *diagnostics)
{
    double begin = monotonic_seconds();
    compilation->note = "";
    bool ok = phase->run(compilation, diagnostics);
    if (ok && compilation->options->verbose && compilation->note)
        text_print(stderr, "%-32s %7.3f s%s\n", phase->told, monotonic_seconds() - begin, compilation->note);
    return ok;
}

static bool compile(Compilation *compilation, Diagnostics *diagnostics)
{
    const Options *options = compilation->options;
    Buffer text = {0};
    for (size_t p = 0; p < sizeof phases / sizeof *phases; p++) {
        const struct CompilePhase *phase = &phases[p];
        bool asked = phase->name && options->emit && strcmp(options->emit, phase->name) == 0;
        if (phase->alone && !asked) continue;
        if (!run_phase(compilation, phase, diagnostics)) return false;
        if (!asked) continue;
        phase->print(compilation, &text);
        return write_output(options->output, &text, diagnostics);
    }
    if (options->quiet || emits(compilation)) return true;
    const PlannedModel *planned = &compilation->planned;
    report_print(&(Report){.plan = &planned->plan, .costs = &planned->costs, .advice = &compilation->advice}, "text",
                 &text);
    char kept[REPORT_TEXT];
    if (compilation->kept_bytes)
        buffer_print(&text,
                     "Products keep weights in the order in which they read them: up to %s more per process than "
                     "planned, where a device has it to spare.\n",
                     report_bytes((int64_t)compilation->kept_bytes, kept));
    return write_output("-", &text, diagnostics);
}

bool compile_command(const Options *options, Diagnostics *diagnostics)
{
    Compilation compilation = {.options = options};
    bool ok = compile(&compilation, diagnostics);
    directory_abandon(&compilation.directory);
    stage_programs_free(&compilation.pipeline);
    advice_free(&compilation.advice);
    planned_model_free(&compilation.planned);
    arena_free(&compilation.arena);
    return ok;
}
