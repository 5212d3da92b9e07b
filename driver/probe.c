/* skycc probe: times the kernels of a model on this machine, for plans that rest on measurements. */
#include <getopt.h>
#include <stdlib.h>

#include "driver/commands.h"
#include "driver/plan_model.h"
#include "driver/program.h"
#include "profiler/measure.h"

static const char usage[] =
    "usage: skycc probe MODEL.onnx -d CLUSTER.yaml -o PROFILE.json [options]\n"
    "\n"
    "Measures the compiled kernels of the model on one thread of this machine. With the profile, skycc plan and "
    "compile use\n"
    "these times, multiplied by each device's slowdown, instead of estimates from the device specifications.\n"
    "\n"
    "  -d, --cluster FILE    the devices (cluster.yaml)\n"
    "  -o, --output FILE     the profile\n"
    "  --dim NAME=VALUE      bind a symbolic dimension, as for compile\n"
    "  --loss SPEC, --optimizer SPEC, --dropout P|off, --keep-ties, --untie   as for compile\n"
    "  --target-cpu NAME     code for this CPU (default: this machine's)\n"
    "  -h, --help            this text\n";

enum { OPTION_TARGET_CPU = 2048 };

static const struct option long_options[] = {
    PLAN_LONG_OPTIONS,
    {"output", required_argument, NULL, 'o'},
    {"target-cpu", required_argument, NULL, OPTION_TARGET_CPU},
    {"help", no_argument, NULL, 'h'},
    {0},
};

typedef struct ProbeOptions {
    PlanModelOptions plan;
    const char *output, *target_cpu;
} ProbeOptions;

static int parse(ProbeOptions *options, int argc, char **argv, Diagnostics *diagnostics)
{
    *options = (ProbeOptions){0};
    plan_model_defaults(&options->plan);
    options->plan.load.train = true;
    options->plan.load.import.no_weights = true; /* their values do not matter here */
    optind = 1;
    for (int option; (option = getopt_long(argc, argv, "-o:d:h", long_options, NULL)) != -1;) {
        if (option == 'h') return fputs(usage, stdout), EXIT_OK;
        if (option == '?') return option_refused("probe");
        if (option == 'o')
            options->output = optarg;
        else if (option == OPTION_TARGET_CPU)
            options->target_cpu = optarg;
        else if (option == 1 && !options->plan.model)
            options->plan.model = optarg;
        else if (option == 1 ? !option_unexpected(optarg, diagnostics)
                             : !plan_model_option(&options->plan, option, optarg, diagnostics))
            return EXIT_USAGE;
    }
    if (options->plan.model && options->plan.cluster && options->output) return -1;
    diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, "skycc probe --help lists the options",
                      "a model, a cluster (-d) and an output (-o) are needed");
    return EXIT_USAGE;
}

/* All layers, each as a stage of its own: the kernels that any plan may use. */
static bool probe_layers(Profile *profile, TrainingModel *model, const char *cpu, Diagnostics *diagnostics)
{
    Graph *graph = &model->graph;
    for (int layer = 0; layer < graph->layer_count; layer++) {
        StageCode code;
        Program program;
        stage_build(&code, graph, layer, layer);
        program_for_run(&program, model, &code);
        bool ok = program_compile(&program, cpu, diagnostics);
        if (ok) {
            measure_kernels(profile, program.kernels, program.jit);
            if (!profile->target) profile->target = arena_string(&profile->arena, program.target.cpu);
        }
        program_free(&program);
        stage_free(&code);
        if (!ok) return false;
    }
    return true;
}

int probe_main(int argc, char **argv)
{
    Diagnostics diagnostics = {0};
    ProbeOptions options;
    int code = parse(&options, argc, argv, &diagnostics);
    if (code < 0) {
        PlannedModel planned = {0};
        Profile profile = {0};
        bool ok = planned_model_load(&planned, &options.plan, &options.plan.load, &diagnostics) &&
                  probe_layers(&profile, &planned.model, options.target_cpu, &diagnostics) &&
                  profile_write(&profile, options.output, &diagnostics);
        code = ok ? EXIT_OK : diagnostics.exit_code;
        profile_free(&profile);
        planned_model_free(&planned);
    }
    diagnostics_print(&diagnostics, stderr);
    diagnostics_free(&diagnostics);
    plan_model_options_free(&options.plan);
    return code;
}
