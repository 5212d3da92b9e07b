#include "codegen/opencl/opencl_source.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/codec_rows.h"
#include "base/random.h"
#include "codegen/opencl/opencl_body.h"
#include "codegen/opencl/opencl_cut.h"
#include "codegen/opencl/opencl_product.h"
#include "opencl_templates.h"

OpenClUnits opencl_units(const Kernel *kernel)
{
    OpenClCut cut = opencl_cut(kernel);
    OpenClUnits units = {.count = opencl_cut_units(kernel, &cut, 0)};
    if (kernel->axis_count > 1 || cut.form == OPENCL_MAP) {
        units.step = (uint32_t)cut.step[0];
        units.per_step = (uint32_t)opencl_cut_units(kernel, &cut, 1);
    }
    if (cut.form == OPENCL_ROW) units.tile[0] = units.tile[1] = 1;
    if (cut.form == OPENCL_PRODUCT) {
        units.tile[0] = (uint32_t)cut.step[cut.gemm.row_axis];
        units.tile[1] = (uint32_t)cut.step[cut.gemm.column_axis];
    }
    return units;
}

bool opencl_uses_doubles(const Kernel *kernel)
{
    for (int i = 0; i < kernel->operand_count; i++)
        if (kernel->operands[i].dtype == DTYPE_F64) return true;
    for (Register r = 1; r <= kernel->instruction_count; r++)
        if (kernel_type(kernel, r) == DTYPE_F64) return true;
    return false;
}

/* ---- The function ---- */

static void print_parameters(const OpenClBody *body)
{
    buffer_print(body->text, "(");
    for (int k = 0; k < body->kernel->operand_count; k++)
        buffer_print(body->text, "__global uchar *b%d, long o%d, ", k, k);
    buffer_print(body->text, "long begin, long end, long limit)\n{\n");
}

/* The index of each axis, from the number of the unit: where the unit begins there. */
static void print_indices(const OpenClBody *body, const OpenClCut *cut)
{
    bool group = cut->form == OPENCL_ROW || cut->form == OPENCL_PRODUCT;
    buffer_print(body->text, "    long u = begin + (long)get_%s_id(0);\n    if (u >= end) return;\n",
                 group ? "group" : "global");
    if (group) buffer_print(body->text, "    const int item = (int)get_local_id(0);\n");
    for (int axis = body->kernel->axis_count - 1; axis >= 0; axis--) {
        if (cut->count[axis] <= 1)
            buffer_print(body->text, "    long i%d = 0;\n", axis);
        else if (axis > 0)
            buffer_print(body->text, "    long i%d = u %% %" PRId64 " * %" PRId64 "; u /= %" PRId64 ";\n", axis,
                         cut->count[axis], cut->step[axis], cut->count[axis]);
        else
            buffer_print(body->text, "    long i0 = u * %" PRId64 ";\n", cut->step[axis]);
    }
}

/* Where operands start at these indices, but for that of the inner axis, unless the kernel is a map. */
static void print_places(const OpenClBody *body)
{
    const Kernel *kernel = body->kernel;
    for (int k = 0; k < kernel->operand_count; k++) {
        bool blocks = dtype_in_blocks(kernel->operands[k].dtype);
        size_t size = blocks ? 1 : dtype_size(kernel->operands[k].dtype);
        buffer_print(body->text, blocks ? "    long q%d = 0" : "    long q%d = o%d", k, k);
        for (int axis = 0; axis < kernel->axis_count - !body->map; axis++)
            if (kernel->operands[k].stride[axis])
                buffer_print(body->text, " + i%d * %" PRId64, axis, kernel->operands[k].stride[axis] * (int64_t)size);
        buffer_print(body->text, ";\n");
    }
}

/* One tile of a row, or one channel where there are no tiles. */
static void print_coding(const OpenClBody *body)
{
    const KernelInstruction *coding = kernel_coding_of(body->kernel);
    Codec codec = kernel_coding_codec(coding);
    int bits = codec_bits(codec), bytes = kernel_coding_bytes(coding), inner = body->kernel->axis_count - 1;
    bool encodes = coding->op == KERNEL_ENCODE;
    buffer_print(body->text, "    long channel = i%d;\n", inner);
    for (int p = 0; p + 1 < body->kernel->phase_count; p++) opencl_print_phase(body, &body->kernel->phases[p]);
    buffer_print(body->text, "    %s_%s(b%d, q%d, b%d, q%d, channel", encodes ? "encode" : "decode",
                 bits ? "tile" : "bf16", coding->operand, coding->operand, bytes, bytes);
    if (bits) buffer_print(body->text, ", %" PRId64 ", %d", kernel_inner_extent(body->kernel), bits);
    if (encodes && coding->a)
        buffer_print(body->text, ", 1, r%d, r%d", coding->a, coding->b);
    else if (encodes)
        buffer_print(body->text, ", 0, 0, 0");
    buffer_print(body->text, ");\n");
}

/* Where the items of a group combine what they reduced. */
static void print_local(const OpenClBody *body)
{
    static const DType types[] = {DTYPE_F32, DTYPE_F64, DTYPE_I64};
    for (int t = 0; t < 3 && body->group; t++) {
        bool used = false;
        for (Register r = 1; r <= body->kernel->instruction_count; r++)
            used |= kernel_op_is_reduction(kernel_instruction(body->kernel, r)->op) &&
                    kernel_type(body->kernel, r) == types[t];
        const char *name = opencl_register_type(types[t]);
        if (used) buffer_print(body->text, "    __local %s all_%s[ROW_GROUP];\n", name, name);
    }
}

void opencl_emit_prelude(bool doubles, Buffer *text)
{
    if (doubles) buffer_print(text, "%s", template_prelude_double);
    buffer_print(text, "#define RANDOM_SPREAD %#xu\n#define RANDOM_MULTIPLIER1 %#xu\n#define RANDOM_MULTIPLIER2 %#xu\n",
                 RANDOM_SPREAD, RANDOM_MULTIPLIER1, RANDOM_MULTIPLIER2);
    buffer_print(text, "#define RANDOM_SHIFT1 %d\n#define RANDOM_SHIFT2 %d\n#define RANDOM_SHIFT3 %d\n", RANDOM_SHIFT1,
                 RANDOM_SHIFT2, RANDOM_SHIFT3);
    buffer_print(text, "#define RANDOM_ELEMENT_BITS %d\n#define RANDOM_ELEMENT_RANGE %d\n", RANDOM_ELEMENT_BITS,
                 RANDOM_ELEMENT_RANGE);
    buffer_print(text, "#define CODEC_TILE %d\n#define CODEC_LEAST_BITS %#xu\n#define CODEC_MOST_BITS %#xu\n",
                 CODEC_TILE, CODEC_LEAST_BITS, CODEC_MOST_BITS);
    buffer_print(text, "#define CODEC_NAN %#xu\n#define CODEC_ROUNDING %af\n%s%s", CODEC_NAN, CODEC_ROUNDING,
                 template_prelude, template_codecs);
}

static void print_function(const OpenClBody *body, const OpenClCut *cut)
{
    const Kernel *kernel = body->kernel;
    print_parameters(body);
    print_local(body);
    print_indices(body, cut);
    print_places(body);
    opencl_print_registers(body);
    if (cut->form == OPENCL_PRODUCT)
        opencl_print_product(body, cut);
    else if (cut->form == OPENCL_CODING)
        print_coding(body);
    else
        for (int p = 0; p < kernel->phase_count; p++) opencl_print_phase(body, &kernel->phases[p]);
    buffer_print(body->text, "}\n\n");
}

/* Makes the driver keep room for as many work items as opencl_group says. */
static void print_group(Buffer *text, const OpenClCut *cut)
{
    if (cut->form == OPENCL_ROW)
        buffer_print(text, "__attribute__((reqd_work_group_size(ROW_GROUP, 1, 1))) ");
    else if (cut->form == OPENCL_PRODUCT)
        buffer_print(text,
                     "__attribute__((reqd_work_group_size(%" PRId64 " / ITEM_ROWS * (%" PRId64 " / VECTOR), 1, 1))) ",
                     cut->step[cut->gemm.row_axis], cut->step[cut->gemm.column_axis]);
}

void opencl_emit_kernel(const Kernel *kernel, Buffer *text, char symbol[40])
{
    char digits[33];
    FREED_WITH(buffer_free) Buffer function = {0};
    OpenClCut cut = opencl_cut(kernel);
    OpenClBody body = {
        .kernel = kernel, .text = &function, .map = cut.form == OPENCL_MAP, .group = cut.form == OPENCL_ROW};
    print_function(&body, &cut);
    snprintf(symbol, 40, "sky_k_%s", hash_format(hash_bytes(function.bytes, function.size), digits));
    buffer_print(text, "/* ");
    for (const char *c = kernel->label; *c; c++) buffer_append(text, strchr("*\\?", *c) ? "_" : c, 1);
    buffer_print(text, " */\n__kernel ");
    print_group(text, &cut);
    buffer_print(text, "void %s%s", symbol, buffer_text(&function));
}
