#include "driver/compile/local_program.h"

#include <stdlib.h>
#include <string.h>

#include "codegen/opencl/opencl_program.h"
#include "driver/compile/model_origin.h"
#include "graph/ops/cross_entropy.h"
#include "graph/analysis/blocks.h"

/* The limit of label input `number`: the fewest classes of the losses that read it. */
static int64_t label_classes(const Graph *graph, int number)
{
    int64_t least = 0;
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        int64_t classes = cross_entropy_classes(graph, node);
        if (!classes || node_integer(node, "labels", 0) != number) continue;
        if (!least || classes < least) least = classes;
    }
    return least;
}

static const SkyLabels *describe_labels(const Graph *graph, Arena *arena)
{
    SkyLabels *all = arena_new_array(arena, SkyLabels, (size_t)graph->label_count);
    for (int i = 0; i < graph->label_count; i++) {
        const Labels *labels = &graph->labels[i];
        const Value *weights = graph_value(graph, labels->weights);
        all[i] = (SkyLabels){.name = arena_string(arena, graph_value(graph, labels->input)->name),
                             .kind = labels->kind,
                             .ignore_index = labels->ignore_index,
                             .classes = label_classes(graph, i),
                             .shifted = labels->shifted};
        if (!labels->weights) continue;
        all[i].weight_count = (uint32_t)weights->shape.dim[0];
        all[i].weights = arena_copy(arena, weights->data, all[i].weight_count * sizeof(float));
    }
    return all;
}

static uint32_t count_parameters(const Graph *graph)
{
    uint32_t count = 0;
    for (ValueId v = 1; v < graph->value_count; v++)
        count += graph_value(graph, v)->role == ROLE_PARAMETER && shared_parameter(graph, v) == v;
    return count;
}

int64_t program_norm_bytes(const Graph *graph) { return (int64_t)(count_parameters(graph) * sizeof(double)); }

void program_describe(SkyProgram *program, Arena *arena, const TrainingModel *model)
{
    const Graph *graph = &model->graph;
    program->version = SKY_PROGRAM_VERSION;
    program->low_rank = arena_string(arena, model->low_rank_text ? model->low_rank_text : "");
    FREED uint32_t *blocks = memory_allocate(graph->value_count * sizeof *blocks);
    program->block_count = blocks_number(graph, blocks);
    program->total_parameter_count = count_parameters(graph);
    program->loss_is_summed = graph->loss_is_summed;
    program->whole_batches = graph->whole_batches;
    program->label_count = (uint32_t)graph->label_count;
    program->labels = describe_labels(graph, arena);
    /* Rows and sequence length are those of the first input, by convention [batch, sequence]. */
    if (graph->input_count) {
        const Shape *shape = &graph_value(graph, graph->inputs[0])->shape;
        program->microbatch_size = shape->rank > 0 ? (uint32_t)shape->dim[0] : 1;
        program->sequence_length = shape->rank > 1 ? (uint32_t)shape->dim[1] : 1;
    }
    program->packing = graph->packing;
    const DataOrigin origin = model_origin(&model->imported.onnx, graph->file, arena);
    program->label_names = origin.labels;
    program->tokenizers = origin.tokenizers;
    program->optimizer = model->optimizer.numbers;
}

void local_program_create(LocalProgram *program, const TrainingModel *model, const StageCode *code)
{
    *program = (LocalProgram){0};
    SkyProgram *run = &program->program;
    program_describe(run, &program->arena, model);
    run->rank_count = run->stage_count = run->total_stage_count = run->microbatch_count = 1;
    run->slowdown = 1;
    run->device_name = "local";
    run->model_hash = run->plan_hash = run->recipe_hash = run->weights_hash = run->settings = "";
    run->lines_vary = code->lines_vary;
    run->tokens_vary = code->bears_zeros;
    run->stages = arena_copy(&program->arena, &code->stage, sizeof code->stage);
    run->stage_rank = arena_new(&program->arena, uint32_t);
    run->predicted_step_s = arena_new(&program->arena, double);
}

void local_program_build(LocalProgram *program, StageCode *code, TrainingModel *model)
{
    StageIndex *index = stage_index_create(&model->graph, model->precision);
    stage_build_indexed(code, index, 0, model->graph.layer_count - 1, STAGE_PLAIN);
    stage_index_free(index);
    code->stage.slot_count = 1;
    local_program_create(program, model, code);
}

void local_program_free(LocalProgram *program)
{
    jit_free(program->jit);
    if (program->kernels) kernels_free(program->kernels);
    target_free(&program->target);
    arena_free(&program->arena);
}

bool local_program_compile(LocalProgram *program, const char *cpu, Diagnostics *diagnostics)
{
    if (!target_init(&program->target, (TargetOptions){.cpu = cpu}, diagnostics)) return false;
    program->kernels = kernels_compile_program(&program->program, &program->target,
                                               kernel_cache_defaults(&program->arena), diagnostics);
    if (!program->kernels) return false;
    program->jit = jit_load(program->kernels, diagnostics);
    if (!program->jit) return false;
    kernels_bind(program->kernels, program->jit, &program->program);
    return true;
}

void local_program_bind_opencl(LocalProgram *program, const ClusterDevice *device)
{
    program->program.device_name = device->name;
    program->program.opencl_platform = device->opencl_platform;
    program->program.opencl_device = device->opencl_device;
    program->program.device_blocks = (uint32_t)cluster_blocks(device);
    opencl_bind(&program->program, &program->arena);
}

bool local_program_interpret(const void *kernel, void *const *operands, int64_t block, int64_t limit)
{
    return block == EXECUTE_ALL_BLOCKS ? kernel_interpret_until(kernel, operands, limit)
                                       : kernel_interpret_block(kernel, operands, block);
}

void program_make_up_inputs(const Execution *execution)
{
    const SkyStage *stage = &execution->program->stages[0];
    for (uint32_t i = 0; i < stage->input_count; i++) {
        const SkyTensor *input = &stage->inputs[i];
        void *data = execution_address(execution, 0, 0, input->location);
        int64_t elements = (int64_t)(input->bytes / dtype_size((DType)input->dtype));
        int64_t limit = input->value_limit ? input->value_limit : 2;
        bool mask = strstr(input->name, "mask");
        for (int64_t k = 0; k < elements; k++)
            element_store_double((DType)input->dtype, data, k, mask ? 1 : (double)(k * 7919 % limit));
        execution_hand(execution, 0, 0, input->location, input->bytes);
    }
}

const SkyTensor *program_labels(const SkyProgram *program, uint32_t number)
{
    const SkyStage *stage = &program->stages[program->stage_count - 1];
    for (uint32_t i = 0; i < stage->input_count; i++)
        if (strcmp(stage->inputs[i].name, program->labels[number].name) == 0) return &stage->inputs[i];
    return NULL;
}

void program_count_labels(const SkyProgram *program, const Execution *execution, LabelCount counts[SKY_MOST_LABELS])
{
    for (uint32_t l = 0; l < program->label_count; l++) {
        const SkyTensor *labels = program_labels(program, l);
        counts[l] = (LabelCount){0};
        if (!labels) continue;
        Shape shape = {.rank = (int)labels->rank};
        memcpy(shape.dim, labels->dim, sizeof shape.dim);
        const void *data = execution_address(execution, program->stage_count - 1, 0, labels->location);
        labels_count(&program->labels[l], (DType)labels->dtype, &shape, data, 0, shape.rank ? shape.dim[0] : 1,
                     &counts[l]);
    }
}
