/* The passes between import and code: composites, layers, differentiation, stages and their memory. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "codegen/stage/memory_layout.h"
#include "codegen/stage/stage.h"
#include "frontend/onnx/import.h"
#include "graph/ops/autodiff.h"
#include "graph/ops/add_node.h"
#include "graph/ops/operator.h"
#include "graph/analysis/parameters.h"
#include "graph/passes/passes.h"
#include "tests/common/scratch.h"

typedef struct Model {
    Graph graph;
    ImportedModel imported;
    Diagnostics diagnostics;
    char path[1024]; /* graph and diagnostics point to it */
} Model;

static void load_with(Model *model, const char *name, ImportOptions options)
{
    static const DimensionBinding dimensions[] = {{"batch", 4}, {"seq", 16}};
    options.dimensions = dimensions;
    options.dimension_count = 2;
    *model = (Model){0};
    snprintf(model->path, sizeof model->path, "%s/bert/%s.onnx", SKY_TEST_DATA, name);
    graph_init(&model->graph, "model");
    assert_true(import_onnx(&model->graph, &model->imported, model->path, &options, &model->diagnostics));
    assert_true(attach_loss(&model->graph, &(PassOptions){.want_loss = true, .loss = NULL}, &model->diagnostics));
    graph_remove_dead(&model->graph);
}

static void load(Model *model, const char *name) { load_with(model, name, (ImportOptions){0}); }

static void unload(Model *model)
{
    graph_free(&model->graph);
    imported_model_free(&model->imported);
    diagnostics_free(&model->diagnostics);
}

static int count_nodes(const Graph *graph, Opcode op)
{
    int count = 0;
    for (NodeId n = 1; n < graph->node_count; n++) count += graph_node(graph, n)->op == op;
    return count;
}

static void spelled_out_composites_are_recognised(void **state)
{
    (void)state;
    static const char *const names[] = {"bert-nano-seqcls-opset11-dyn", "bert-nano-seqcls-opset13-dyn",
                                        "bert-nano-seqcls-opset17-fix"};
    for (size_t i = 0; i < 3; i++) {
        Model model;
        load(&model, names[i]);
        fuse_composites(&model.graph, &(PassOptions){0}, &model.diagnostics);
        graph_verify(&model.graph);
        assert_int_equal(count_nodes(&model.graph, OP_LayerNormalization), 5);
        assert_int_equal(count_nodes(&model.graph, OP_Gelu), 2);
        assert_int_equal(count_nodes(&model.graph, OP_Erf), 0);
        assert_int_equal(count_nodes(&model.graph, OP_ReduceMean), 0);
        unload(&model);
    }
}

static void layers_are_the_parts_of_a_bert(void **state)
{
    (void)state;
    static const char *const expected[] = {"bert.embeddings",
                                           "bert.encoder.layer.0.attention",
                                           "bert.encoder.layer.0.intermediate+output",
                                           "bert.encoder.layer.1.attention",
                                           "bert.encoder.layer.1.intermediate+output",
                                           "bert.pooler.dense",
                                           "classifier"};
    /* Of the second most biases are one initializer, and no matrix has a name. */
    static const char *const names[] = {"bert-nano-seqcls-opset17-dyn",
                                        "bert-nano-seqcls-opset17-dyn-dedup-trap-eval-fold"};
    for (int m = 0; m < 2; m++) {
        Model model;
        load(&model, names[m]);
        fuse_composites(&model.graph, &(PassOptions){0}, &model.diagnostics);
        prune_unread(&model.graph, &(PassOptions){0}, &model.diagnostics);
        assign_layers(&model.graph, &(PassOptions){0}, &model.diagnostics);
        assert_int_equal(model.graph.layer_count, 7);
        for (int i = 0; i < 7; i++) assert_string_equal(model.graph.layer_names[i], expected[i]);
        unload(&model);
    }
}

static void load_training_in(Model *model, const char *name, bool bf16)
{
    OptimizerSpec optimizer;
    const PassOptions rounding = {.bf16 = bf16, .bf16_cuts = bf16, .differentiate = true};
    load(model, name);
    Graph *graph = &model->graph;
    fuse_composites(graph, &(PassOptions){0}, &model->diagnostics);
    prune_unread(graph, &(PassOptions){0}, &model->diagnostics);
    assign_layers(graph, &(PassOptions){0}, &model->diagnostics);
    assert_true(round_cuts(graph, &rounding, &model->diagnostics));
    assert_true(differentiate(graph, &model->diagnostics));
    assert_true(store_bf16(graph, &rounding, &model->diagnostics));
    assert_true(optimizer_parse(&optimizer, "adamw:lr=1e-3", &model->diagnostics));
    assert_true(append_updates(graph, &(PassOptions){.optimizer = &optimizer}, &model->diagnostics));
    graph_remove_dead(graph);
    graph_verify(graph);
}

static void load_training(Model *model, const char *name) { load_training_in(model, name, false); }

static void a_decoder_that_is_not_the_embeddings_is_warned_of(void **state)
{
    (void)state;
    for (int untied = 0; untied < 2; untied++) {
        Model model;
        FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
        load_with(&model, "bert-nano-mlm-opset17-dyn", (ImportOptions){.untie = untied});
        warn_of_untied_decoders(&model.graph, &diagnostics);
        FREED char *text = diagnostics_text(&diagnostics);
        bool warned = strstr(text, "'logits' is decoded with 'onnx::MatMul_325', which is trained apart from the "
                                   "embeddings 'm.bert.embeddings.word_embeddings.weight'");
        assert_int_equal(warned, untied);
        unload(&model);
    }
}

/* Of a model whose decoder is its embeddings, a stage with both has one copy of them and two gradients; one with either
 * has its own. */
static void shared_parameters_lie_where_they_are_used(void **state)
{
    (void)state;
    Model model;
    load_training(&model, "bert-nano-mlm-opset17-dyn");
    int last = model.graph.layer_count - 1;
    assert_int_equal(last, 6);
    const int runs[][2] = {{0, last}, {0, 2}, {last, last}, {1, last - 1}};
    for (int r = 0; r < 4; r++) {
        StageCode code;
        stage_build(&code, &model.graph, runs[r][0], runs[r][1]);
        const SkyParameter *shared = NULL;
        for (uint32_t p = 0; p < code.stage.parameter_count; p++) {
            const SkyParameter *parameter = &code.stage.parameters[p];
            if (strcmp(parameter->value.name, "m.bert.embeddings.word_embeddings.weight") == 0)
                shared = parameter;
            else
                assert_int_equal(parameter->use_count, 0);
        }
        const uint32_t uses[] = {2, 1, 1, 0};
        assert_int_equal(shared ? shared->use_count : 0, uses[r]);
        if (shared) assert_int_equal(shared->uses[0].number, r == 2);
        if (shared) assert_int_equal(shared->uses[0].gradient.offset, shared->gradient.offset);
        if (r == 0) assert_int_equal(shared->uses[1].number, 1);
        if (r == 0) assert_int_not_equal(shared->uses[1].gradient.offset, shared->gradient.offset);
        assert_int_equal(code.stage.lists[SKY_LIST_UPDATE].count, code.stage.parameter_count);
        stage_free(&code);
    }
    unload(&model);
}

/* What the planner adds up for a run of layers is never less than what the layout of the run takes. */
static void check_sums_over_layers(bool bf16)
{
    Model model;
    load_training_in(&model, "bert-nano-seqcls-opset17-dyn", bf16);
    int layers = model.graph.layer_count;
    for (int first = 0; first < layers; first++) {
        uint64_t states = 0, slots = 0, scratch = 0, blocks = 0;
        for (int last = first; last < layers; last++) {
            StageCode layer, run;
            stage_build(&layer, &model.graph, last, last);
            stage_build(&run, &model.graph, first, last);
            const SkyStage *stage = &layer.stage;
            uint64_t boundary = 0;
            for (uint32_t i = 0; i < stage->receive_backward_count; i++) boundary += stage->receive_backward[i].bytes;
            for (uint32_t i = 0; i < stage->send_backward_count; i++) boundary += stage->send_backward[i].bytes;
            states += stage->space_bytes[SKY_SPACE_STATE] + stage->space_bytes[SKY_SPACE_CONSTANT];
            slots += stage->space_bytes[SKY_SPACE_SLOT];
            if (stage->space_bytes[SKY_SPACE_SCRATCH] + boundary > scratch)
                scratch = stage->space_bytes[SKY_SPACE_SCRATCH] + boundary;
            if (stage->space_bytes[SKY_SPACE_BLOCK] > blocks) blocks = stage->space_bytes[SKY_SPACE_BLOCK];
            for (uint32_t in_flight = 1; in_flight <= 4; in_flight++)
                assert_true(stage_bytes(&run.stage, in_flight, 2) <= states + in_flight * slots + scratch + 2 * blocks);
            stage_free(&layer);
            stage_free(&run);
        }
    }
    unload(&model);
}

static void sums_over_layers_bound_the_memory_of_every_stage(void **state)
{
    (void)state;
    check_sums_over_layers(false);
    check_sums_over_layers(true);
}

static void check_neighbours(bool bf16)
{
    Model model;
    load_training_in(&model, "bert-nano-seqcls-opset17-dyn", bf16);
    for (int cut = 1; cut < model.graph.layer_count; cut++) {
        StageCode before, after;
        stage_build(&before, &model.graph, 0, cut - 1);
        stage_build(&after, &model.graph, cut, model.graph.layer_count - 1);
        assert_int_equal(before.stage.send_forward_count, 1);
        assert_int_equal(after.stage.receive_forward_count, 1);
        assert_int_equal(after.stage.send_backward_count, 1);
        assert_int_equal(before.stage.receive_backward_count, 1);
        assert_int_equal(before.stage.send_forward[0].bytes, after.stage.receive_forward[0].bytes);
        assert_int_equal(before.stage.receive_backward[0].bytes, after.stage.send_backward[0].bytes);
        assert_int_equal(before.stage.send_forward[0].dtype, bf16 ? DTYPE_BF16 : DTYPE_F32);
        assert_int_equal(after.stage.send_backward[0].dtype, bf16 ? DTYPE_BF16 : DTYPE_F32);
        assert_int_equal(before.stage.parameter_count + after.stage.parameter_count, 41);
        assert_false(before.stage.has_loss);
        assert_true(after.stage.has_loss);
        stage_free(&before);
        stage_free(&after);
    }
    unload(&model);
}

static void neighbouring_stages_agree_on_what_crosses(void **state)
{
    (void)state;
    check_neighbours(false);
    check_neighbours(true);
}

/* Of the last block, too, whose loss reads logits as they are. */
static void what_waits_for_backward_takes_half_in_bf16(void **state)
{
    (void)state;
    uint64_t slots[2][2];
    for (int bf16 = 0; bf16 < 2; bf16++) {
        Model model;
        load_training_in(&model, "bert-nano-seqcls-opset17-dyn", bf16);
        for (int whole = 0; whole < 2; whole++) {
            StageCode code;
            stage_build(&code, &model.graph, whole ? 0 : 1, whole ? model.graph.layer_count - 1 : 2);
            slots[bf16][whole] = code.stage.space_bytes[SKY_SPACE_SLOT];
            stage_free(&code);
        }
        unload(&model);
    }
    for (int whole = 0; whole < 2; whole++) assert_true((double)slots[1][whole] < 0.56 * (double)slots[0][whole]);
}

/* Whether it only widens a stored value, which products can read as it is. */
static bool is_widening(const Kernel *kernel)
{
    const KernelInstruction *load = kernel_instruction(kernel, 1), *store = kernel_instruction(kernel, 2);
    return kernel->instruction_count == 2 && load->op == KERNEL_LOAD && store->op == KERNEL_STORE &&
           kernel->operands[load->operand].dtype == DTYPE_BF16 && kernel->operands[store->operand].dtype == DTYPE_F32;
}

/* What products read of other calls is bf16, gradients too. */
static void products_read_bf16(void **state)
{
    (void)state;
    Model model;
    load_training_in(&model, "bert-nano-seqcls-opset17-dyn", true);
    StageCode code;
    stage_build(&code, &model.graph, 0, model.graph.layer_count - 1);
    int stored = 0, factors = 0;
    for (uint32_t c = 0; c < code.stage.lists[SKY_LIST_FORWARD].count + code.stage.lists[SKY_LIST_BACKWARD].count;
         c++) {
        const SkyCall *call = sky_call(&code.stage, c);
        const Kernel *kernel = call->interpreted;
        KernelGemm gemm;
        assert_false(is_widening(kernel));
        if (!kernel_match_gemm(kernel, &gemm)) continue;
        int factor[] = {gemm.a, gemm.b};
        for (int i = 0; i < 2; i++) {
            if (call->operands[factor[i]].space == SKY_SPACE_STATE) continue;
            factors++;
            stored += kernel->operands[factor[i]].dtype == DTYPE_BF16;
        }
    }
    assert_true(stored + 2 >= factors); /* two products read the logits' gradient, which is small */
    stage_free(&code);
    unload(&model);
}

static void equal_layers_share_their_kernels(void **state)
{
    (void)state;
    Model model;
    load_training(&model, "bert-nano24-seqcls-opset14-dyn-nofold");
    StageCode code;
    stage_build(&code, &model.graph, 0, model.graph.layer_count - 1);
    const SkyStage *stage = &code.stage;
    const void *distinct[512];
    size_t count = 0, calls = stage->lists[SKY_LIST_FORWARD].count + stage->lists[SKY_LIST_BACKWARD].count;
    for (size_t i = 0; i < calls; i++) {
        const SkyCall *call = sky_call(stage, (uint32_t)i);
        size_t k = 0;
        while (k < count && distinct[k] != call->interpreted) k++;
        if (k == count) distinct[count++] = call->interpreted;
        assert_true(count < 512);
    }
    assert_true(calls > 800);
    assert_true(count < 100);
    stage_free(&code);
    unload(&model);
}

static void packed_buffers_never_overlap_while_alive(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (int round = 0; round < 200; round++) {
        BufferLifetime buffers[40];
        size_t count = 1 + (size_t)round % 40;
        uint64_t sum = 0;
        for (size_t i = 0; i < count; i++) {
            uint64_t bits = random_draw(&seed);
            size_t first = bits >> 33 & 31, length = bits >> 40 & 15;
            buffers[i] = (BufferLifetime){(bits >> 45 & 1023) + 1, first, first + length, 0};
            sum += align_bytes(buffers[i].bytes);
        }
        uint64_t total = memory_pack(buffers, count);
        assert_true(total <= sum);
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(buffers[i].offset % BUFFER_ALIGNMENT, 0);
            assert_true(buffers[i].offset + buffers[i].bytes <= total);
            for (size_t k = 0; k < i; k++) {
                bool alive = buffers[i].first <= buffers[k].last && buffers[k].first <= buffers[i].last;
                bool apart = buffers[i].offset + buffers[i].bytes <= buffers[k].offset ||
                             buffers[k].offset + buffers[k].bytes <= buffers[i].offset;
                assert_true(!alive || apart);
            }
        }
    }
}

static void malformed_losses_and_optimizers_are_usage_errors(void **state)
{
    (void)state;
    static const char *const optimizers[] = {
        "adagrad",     "adamw:lr", "adamw:lr=", "adamw:lr=x", "adamw:beta1=1", "sgd:lr=-1", "adamw:lr=1e-3,bogus=2",
        "adamw:lr=nan"};
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++) {
        FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
        OptimizerSpec spec;
        assert_false(optimizer_parse(&spec, optimizers[i], &diagnostics));
        assert_int_equal(diagnostics.exit_code, EXIT_USAGE);
    }
    static const struct {
        const char *spec;
        int code;
    } losses[] = {{"hinge", EXIT_USAGE},
                  {"cross-entropy:nothing", EXIT_BAD_INPUT},
                  {"output:logits", EXIT_BAD_INPUT},
                  {"output:nothing", EXIT_BAD_INPUT},
                  {"output", EXIT_USAGE}};
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++) {
        Model model;
        load(&model, "bert-nano-seqcls-opset17-fix");
        assert_false(
            attach_loss(&model.graph, &(PassOptions){.want_loss = true, .loss = losses[i].spec}, &model.diagnostics));
        assert_int_equal(model.diagnostics.exit_code, losses[i].code);
        unload(&model);
    }
}

/* A node that a pass replaced by an earlier one still names its output: that is the other's, whatever the order. */
static void dead_nodes_make_nothing(void **state)
{
    (void)state;
    Graph graph;
    const Shape shape = {.rank = 1, .dim = {4}};
    const DType dtype = DTYPE_F32;
    graph_init(&graph, "dead");
    ValueId input = graph_add_input(&graph, "x", dtype, &shape), unused = 0, result = 0;
    Node node = {.op = OP_Neg, .input_count = 1, .output_count = 1, .inputs = &input, .outputs = &unused, .name = "n"};
    NodeId live = graph_append(&graph, &node, &dtype, &shape), dead = graph_append(&graph, &node, &dtype, &shape);
    node.inputs = &result;
    result = graph_node(&graph, live)->outputs[0];
    NodeId reader = graph_append(&graph, &node, &dtype, &shape);
    graph_node(&graph, dead)->outputs[0] = result;
    graph_node(&graph, dead)->op = OP_NONE;
    graph_reorder(&graph, (NodeId[]){live, dead, reader});
    assert_int_equal(graph_value(&graph, result)->producer, 1);
    graph_verify(&graph);
    graph_free(&graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spelled_out_composites_are_recognised),
        cmocka_unit_test(layers_are_the_parts_of_a_bert),
        cmocka_unit_test(sums_over_layers_bound_the_memory_of_every_stage),
        cmocka_unit_test(neighbouring_stages_agree_on_what_crosses),
        cmocka_unit_test(what_waits_for_backward_takes_half_in_bf16),
        cmocka_unit_test(products_read_bf16),
        cmocka_unit_test(equal_layers_share_their_kernels),
        cmocka_unit_test(packed_buffers_never_overlap_while_alive),
        cmocka_unit_test(a_decoder_that_is_not_the_embeddings_is_warned_of),
        cmocka_unit_test(shared_parameters_lie_where_they_are_used),
        cmocka_unit_test(dead_nodes_make_nothing),
        cmocka_unit_test(malformed_losses_and_optimizers_are_usage_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
