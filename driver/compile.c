/* skycc compile: model and cluster in, a directory with one native program per device out. */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "driver/commands.h"
#include "driver/emit_programs.h"
#include "driver/options.h"
#include "driver/pipeline.h"
#include "driver/plan_model.h"
#include "driver/training_model.h"
#include "partitioner/report.h"
#include "runtime/launch.h"

static const char usage[] =
    "usage: skycc compile MODEL.onnx -d CLUSTER.yaml -o DIR [options]\n"
    "\n"
    "Derives the training program of a BERT-family model, partitions its layers over the devices of the cluster and\n"
    "leaves one native program per device in DIR, ready to run: DIR/train --data DATA.safetensors --steps 100\n"
    "\n" PLAN_OPTIONS_HELP
    "  --optimizer SPEC      sgd, momentum, adam, adamw or lamb, with :key=value,... (default adamw)\n"
    "  --init normal:STD     draw the initial weights instead of taking the model's; --init none: the model's\n"
    "  --seed N              of the drawn weights (default 0)\n"
    "  --target-cpu NAME     generate code for this CPU on native targets (default: this machine's)\n"
    "  --emit=PHASE          stop after a phase and write its text to the output: graph, train, costs, plan;\n"
    "                        llvm, asm or obj write one file per device into the output directory\n"
    "  --report FILE         also write the plan report: .html, .json, else text\n"
    "  --depfile FILE        write the files this compilation read, for make and ninja\n"
    "  -o, --output DIR      the directory to make (with --emit: the file, - for standard output)\n"
    "  -v, --verbose         say where the time goes          -q, --quiet   no plan on standard output\n"
    "  -h, --help            this text\n";

typedef struct CompileOptions {
    PlanModelOptions plan;
    const char *output, *target_cpu, *emit, *report, *depfile;
    WeightInit init;
    int64_t seed;
    bool verbose, quiet;
} CompileOptions;

enum { OPTION_INIT = 512, OPTION_SEED, OPTION_TARGET_CPU, OPTION_EMIT, OPTION_REPORT, OPTION_DEPFILE };

static const struct option long_options[] = {
    PLAN_LONG_OPTIONS,
    {"output", required_argument, NULL, 'o'},
    {"init", required_argument, NULL, OPTION_INIT},
    {"seed", required_argument, NULL, OPTION_SEED},
    {"target-cpu", required_argument, NULL, OPTION_TARGET_CPU},
    {"emit", required_argument, NULL, OPTION_EMIT},
    {"report", required_argument, NULL, OPTION_REPORT},
    {"depfile", required_argument, NULL, OPTION_DEPFILE},
    {"verbose", no_argument, NULL, 'v'},
    {"quiet", no_argument, NULL, 'q'},
    {"help", no_argument, NULL, 'h'},
    {0},
};

static const char *const phases[] = {"graph", "train", "costs", "plan", "llvm", "asm", "obj"};

static bool parse_emit(CompileOptions *options, const char *text, Diagnostics *diagnostics)
{
    for (size_t i = 0; i < sizeof phases / sizeof *phases; i++)
        if (strcmp(text, phases[i]) == 0) return options->emit = phases[i], true;
    return diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, "graph, train, costs, plan, llvm, asm or obj",
                             "there is no phase '%s' to emit", text);
}

static bool parse_option(CompileOptions *options, int option, char *argument, Diagnostics *diagnostics)
{
    switch (option) {
    case 'o': options->output = argument; return true;
    case OPTION_INIT:
        if (!weights_parse_init(&options->init, argument, diagnostics)) return false;
        options->plan.load.import.no_weights = options->init.drawn;
        return true;
    case OPTION_SEED: return option_integer("--seed", argument, 0, INT64_MAX, &options->seed, diagnostics);
    case OPTION_TARGET_CPU: options->target_cpu = argument; return true;
    case OPTION_EMIT: return parse_emit(options, argument, diagnostics);
    case OPTION_REPORT: options->report = argument; return true;
    case OPTION_DEPFILE: options->depfile = argument; return true;
    case 'v': return options->verbose = true;
    case 'q': return options->quiet = true;
    default: return plan_model_option(&options->plan, option, argument, diagnostics);
    }
}

/* -1: go on; else the exit code. */
static int parse(CompileOptions *options, int argc, char **argv, Diagnostics *diagnostics)
{
    *options = (CompileOptions){0};
    plan_model_defaults(&options->plan);
    options->plan.load.train = true;
    optind = 1;
    for (int option; (option = getopt_long(argc, argv, "-o:d:vqh", long_options, NULL)) != -1;) {
        if (option == 'h') return fputs(usage, stdout), EXIT_OK;
        if (option == '?') return option_refused("compile");
        if (option == 1 && !options->plan.model)
            options->plan.model = optarg;
        else if (option == 1 ? !option_unexpected(optarg, diagnostics)
                             : !parse_option(options, option, optarg, diagnostics))
            return EXIT_USAGE;
    }
    if (options->plan.model && options->plan.cluster && options->output) return -1;
    diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, "skycc compile --help lists the options", "%s",
                      !options->plan.model     ? "no model is named"
                      : !options->plan.cluster ? "no cluster is named (-d CLUSTER.yaml)"
                                               : "no output directory is named (-o DIR)");
    return EXIT_USAGE;
}

typedef struct Compilation {
    const CompileOptions *options;
    PlannedModel planned;
    Advice advice;
    Pipeline pipeline;
    OutputDirectory directory;
    Arena arena;
    struct timespec last;
} Compilation;

static void print_time(const Compilation *compilation, const char *phase, double seconds)
{
    if (compilation->options->verbose) fprintf(stderr, "%-36s %7.3f s\n", phase, seconds);
}

static void tell_time(Compilation *compilation, const char *phase)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    print_time(compilation, phase,
               (double)(now.tv_sec - compilation->last.tv_sec) +
                   1e-9 * (double)(now.tv_nsec - compilation->last.tv_nsec));
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
    clock_gettime(CLOCK_MONOTONIC, &compilation->last);
}

static bool emit_text(const CompileOptions *options, Buffer *text, Diagnostics *diagnostics)
{
    bool ok = file_write_all(options->output, buffer_text(text), text->size, diagnostics);
    buffer_free(text);
    return ok;
}

/* The phases that print one text. */
static bool emit_phase(Compilation *compilation, Diagnostics *diagnostics)
{
    const CompileOptions *options = compilation->options;
    Buffer text = {0};
    if (strcmp(options->emit, "costs") == 0)
        costs_print(&compilation->planned.costs, &text);
    else if (strcmp(options->emit, "plan") == 0)
        plan_print(&compilation->planned.plan, &text);
    else
        graph_print(&compilation->planned.model.graph, &text);
    return emit_text(options, &text, diagnostics);
}

static bool write_launch_files(Compilation *compilation, Diagnostics *diagnostics)
{
    const Cluster *cluster = &compilation->planned.cluster;
    const Pipeline *pipeline = &compilation->pipeline;
    LaunchRank *ranks = arena_new_array(&compilation->arena, LaunchRank, pipeline->rank_count);
    for (size_t r = 0; r < pipeline->rank_count; r++) {
        const ClusterDevice *device = pipeline_device(pipeline, cluster, r);
        ranks[r] = (LaunchRank){.program = arena_format(&compilation->arena, "stage-%02zu", r),
                                .host = device->host,
                                .threads = device->threads,
                                .prefix = cluster->targets[device->target].launch};
    }
    LaunchPlan plan = {.ranks = ranks, .rank_count = (int)pipeline->rank_count};
    return launch_files_write(&plan, compilation->directory.temporary, diagnostics);
}

static bool write_text(Compilation *compilation, const char *name, Buffer *text, Diagnostics *diagnostics)
{
    const char *path = arena_format(&compilation->arena, "%s/%s", compilation->directory.temporary, name);
    bool ok = file_write_all(path, buffer_text(text), text->size, diagnostics);
    buffer_free(text);
    return ok;
}

/* --report FILE: the form follows from the suffix. */
static bool write_chosen_report(const Report *report, const char *path, Diagnostics *diagnostics)
{
    if (!path) return true;
    Buffer text = {0};
    report_print(report, report_form(path), &text);
    bool ok = file_write_all(path, buffer_text(&text), text.size, diagnostics);
    buffer_free(&text);
    return ok;
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
           write_chosen_report(&report, compilation->options->report, diagnostics);
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
    const CompileOptions *options = compilation->options;
    if (!options->depfile) return true;
    Buffer text = {0};
    print_depfile_name(&text, options->output);
    buffer_print(&text, "/plan.json:");
    const char *inputs[] = {options->plan.model, options->plan.cluster, options->plan.profile};
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
        if (!inputs[i] || strcmp(inputs[i], "-") == 0) continue;
        buffer_print(&text, " ");
        print_depfile_name(&text, inputs[i]);
    }
    const ImportedModel *imported = &compilation->planned.model.imported;
    const char *last = options->plan.model; /* parameters of one file mostly follow each other */
    for (size_t i = 0; i < imported->parameter_count; i++) {
        const char *file = imported->parameters[i].file;
        if (!file || strcmp(file, last) == 0) continue;
        buffer_print(&text, " ");
        print_depfile_name(&text, last = file);
    }
    buffer_print(&text, "\n");
    bool ok = file_write_all(options->depfile, text.bytes, text.size, diagnostics);
    buffer_free(&text);
    return ok;
}

static bool emit_programs(Compilation *compilation, Diagnostics *diagnostics)
{
    const CompileOptions *options = compilation->options;
    PlannedModel *planned = &compilation->planned;
    if (!directory_create(&compilation->directory, options->output, "plan.json", diagnostics)) return false;
    WeightOptions weights = {compilation->directory.temporary, options->output, options->init};
    if (!pipeline_build(&compilation->pipeline, &planned->model, &planned->plan, &planned->cluster, &weights,
                        (uint64_t)options->seed, diagnostics))
        return false;
    tell_time(compilation, "stages and memory");
    EmitOptions emit = {compilation->directory.temporary, options->target_cpu, options->emit};
    EmitTimes times;
    if (!programs_emit(&compilation->pipeline, &planned->cluster, &emit, &times, diagnostics)) return false;
    tell_emission(compilation, &times);
    bool launches = !options->emit; /* else there is nothing to start */
    if ((launches && !write_launch_files(compilation, diagnostics)) || !write_reports(compilation, diagnostics))
        return false;
    bool ok = directory_commit(&compilation->directory, diagnostics) && write_depfile(compilation, diagnostics);
    tell_time(compilation, "reports");
    return ok;
}

static bool compile(Compilation *compilation, Diagnostics *diagnostics)
{
    const CompileOptions *options = compilation->options;
    PlannedModel *planned = &compilation->planned;
    clock_gettime(CLOCK_MONOTONIC, &compilation->last);
    ModelOptions load = options->plan.load;
    if (options->emit && strcmp(options->emit, "graph") == 0) load.train = false;
    if (!planned_model_load(planned, &options->plan, &load, diagnostics)) return false;
    tell_time(compilation, "import and differentiation");
    if (options->emit && (strcmp(options->emit, "graph") == 0 || strcmp(options->emit, "train") == 0))
        return emit_phase(compilation, diagnostics);
    if (!planned_model_costs(planned, &options->plan, diagnostics)) return false;
    tell_time(compilation, "costs");
    if (options->emit && strcmp(options->emit, "costs") == 0) return emit_phase(compilation, diagnostics);
    if (!planned_model_plan(planned, &options->plan, diagnostics) ||
        !planned_model_check_limit(planned, &options->plan, diagnostics))
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

int compile_main(int argc, char **argv)
{
    Diagnostics diagnostics = {0};
    CompileOptions options;
    int code = parse(&options, argc, argv, &diagnostics);
    if (code < 0) {
        Compilation compilation = {.options = &options};
        code = compile(&compilation, &diagnostics) ? EXIT_OK : diagnostics.exit_code;
        directory_abandon(&compilation.directory);
        pipeline_free(&compilation.pipeline);
        advice_free(&compilation.advice);
        planned_model_free(&compilation.planned);
        arena_free(&compilation.arena);
    }
    diagnostics_print(&diagnostics, stderr);
    diagnostics_free(&diagnostics);
    plan_model_options_free(&options.plan);
    return code;
}
