#include "codegen/opencl/opencl_source.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "opencl_templates.h"

/* One kernel on its way into text. */
typedef struct Source {
    const Kernel *kernel;
    Buffer *text;
    bool map; /* a work item has one element */
} Source;

/* ---- Units ---- */

static int64_t product(const Kernel *kernel, int first, int end)
{
    int64_t all = 1;
    for (int axis = first; axis < end; axis++) all *= kernel->extent[axis];
    return all;
}

/* The axes by which a work item is numbered: all of a map, else the outer ones. */
static int unit_axes(const Kernel *kernel) { return kernel->axis_count - !kernel_is_map(kernel); }

OpenClUnits opencl_units(const Kernel *kernel)
{
    int axes = unit_axes(kernel);
    OpenClUnits units = {.count = product(kernel, 0, axes), .outermost = axes > 0 ? product(kernel, 1, axes) : 0};
    return units;
}

/* ---- What a device must have ---- */

const char *opencl_lacks(const Kernel *kernel)
{
    return kernel_coding_of(kernel) ? "a codec (compile with --codec none, or place its ends on other devices)" : NULL;
}

bool opencl_uses_doubles(const Kernel *kernel)
{
    for (int i = 0; i < kernel->operand_count; i++)
        if (kernel->operands[i].dtype == DTYPE_F64) return true;
    for (Register r = 1; r <= kernel->instruction_count; r++)
        if (kernel_type(kernel, r) == DTYPE_F64) return true;
    return false;
}

void opencl_symbol(const Kernel *kernel, char symbol[40])
{
    char digits[33];
    snprintf(symbol, 40, "sky_k_%s", hash_format(kernel_hash(kernel), digits));
}

/* ---- Types and constants ---- */

static const char *register_type(DType type)
{
    switch (type) {
    case DTYPE_F32: return "float";
    case DTYPE_F64: return "double";
    case DTYPE_I64: return "long";
    default: return "int"; /* truth values */
    }
}

/* What an element is in memory. */
static const char *memory_type(DType dtype)
{
    static const char *const names[DTYPE_COUNT] = {
        [DTYPE_F32] = "float", [DTYPE_F64] = "double", [DTYPE_F16] = "half",   [DTYPE_BF16] = "ushort",
        [DTYPE_I32] = "int",   [DTYPE_I64] = "long",   [DTYPE_BOOL] = "uchar", [DTYPE_I8] = "char",
        [DTYPE_U8] = "uchar",  [DTYPE_I16] = "short",  [DTYPE_U16] = "ushort", [DTYPE_U32] = "uint",
        [DTYPE_U64] = "ulong"};
    if (!names[dtype]) bug("%s in OpenCL", dtype_name(dtype));
    return names[dtype];
}

static void print_number(Buffer *text, double number, DType type)
{
    const char *suffix = type == DTYPE_F32 ? "f" : "";
    if (isnan(number))
        buffer_print(text, type == DTYPE_F32 ? "as_float(0x7fc00000)" : "as_double(0x7ff8000000000000L)");
    else if (isinf(number))
        buffer_print(text, type == DTYPE_F32 ? "%sINFINITY" : "%s(double)INFINITY", number < 0 ? "-" : "");
    else
        buffer_print(text, "%a%s", type == DTYPE_F32 ? (double)(float)number : number, suffix);
}

static void print_integer(Buffer *text, int64_t integer)
{
    if (integer == INT64_MIN)
        buffer_print(text, "LONG_MIN");
    else
        buffer_print(text, "%" PRId64 "L", integer);
}

static void print_constant(const Source *source, const KernelInstruction *instruction)
{
    DType type = (DType)instruction->type;
    if (dtype_is_float(type))
        print_number(source->text, instruction->constant.number, type);
    else if (type == DTYPE_BOOL)
        buffer_print(source->text, "%d", instruction->constant.integer != 0);
    else
        print_integer(source->text, instruction->constant.integer);
}

/* Register a, converted as KERNEL_CONVERT does. */
static void print_converted(const Source *source, DType to, Register a)
{
    DType from = kernel_type(source->kernel, a);
    if (from == to)
        buffer_print(source->text, "r%d", a);
    else if (to == DTYPE_BOOL)
        buffer_print(source->text, "(r%d != 0)", a);
    else if (to == DTYPE_I64 && dtype_is_float(from))
        buffer_print(source->text, "%sto_long(r%d)", from == DTYPE_F64 ? "double_" : "", a);
    else
        buffer_print(source->text, "(%s)r%d", register_type(to), a);
}

/* ---- Memory ---- */

/* Elements from where the operand starts in this unit. */
static void print_elements(const Source *source, const KernelInstruction *access, Register offset, bool inner)
{
    int axis = source->kernel->axis_count - 1;
    int64_t stride = source->kernel->operands[access->operand].stride[axis];
    if (inner && !source->map && stride)
        buffer_print(source->text, "i%d * %" PRId64, axis, stride);
    else
        buffer_print(source->text, "0");
    if (offset) buffer_print(source->text, " + r%d", offset);
}

/* AT(type, buffer, byte) of an access. */
static void print_place(const Source *source, const KernelInstruction *access, Register offset, bool inner)
{
    DType dtype = source->kernel->operands[access->operand].dtype;
    buffer_print(source->text, "AT(%s, b%d, q%d + %zu * (", memory_type(dtype), access->operand, access->operand,
                 dtype_size(dtype));
    print_elements(source, access, offset, inner);
    buffer_print(source->text, "))");
}

/* A loaded element in its register type. */
static void print_load(const Source *source, const KernelInstruction *access, Register offset, bool inner)
{
    DType dtype = source->kernel->operands[access->operand].dtype;
    Buffer *text = source->text;
    if (dtype_in_blocks(dtype)) {
        buffer_print(text, "block_load(b%d, o%d, q%d + ", access->operand, access->operand, access->operand);
        print_elements(source, access, offset, inner);
        buffer_print(text, ", %d)", dtype == DTYPE_Q8 ? 8 : 4);
    } else if (dtype == DTYPE_F16) {
        buffer_print(text, "vload_half(0, &");
        print_place(source, access, offset, inner);
        buffer_print(text, ")");
    } else if (dtype == DTYPE_BF16) {
        buffer_print(text, "bf16_load(");
        print_place(source, access, offset, inner);
        buffer_print(text, ")");
    } else {
        buffer_print(text, "(%s)", register_type(kernel_register_type(dtype)));
        print_place(source, access, offset, inner);
    }
}

static void print_store(const Source *source, const KernelInstruction *store, bool inner)
{
    DType dtype = source->kernel->operands[store->operand].dtype, wide = kernel_register_type(dtype);
    Buffer *text = source->text;
    buffer_print(text, "{ %s x = ", register_type(wide));
    print_converted(source, wide, store->a);
    if (store->op == KERNEL_STORE_ADD) {
        buffer_print(text, "; x = ");
        print_load(source, store, store->b, inner);
        buffer_print(text, wide == DTYPE_BOOL ? " | x" : " + x");
    }
    buffer_print(text, "; ");
    if (dtype == DTYPE_F16) {
        buffer_print(text, "vstore_half_rte(x, 0, &");
        print_place(source, store, store->b, inner);
        buffer_print(text, ")");
    } else {
        print_place(source, store, store->b, inner);
        buffer_print(text, dtype == DTYPE_BF16 ? " = bf16_store(x)" : " = (%s)x", memory_type(dtype));
    }
    buffer_print(text, "; }");
}

/* ---- Instructions ---- */

/* What an instruction computes, by the type of its argument. $ is the first argument, # the second, ~ the type. */
typedef struct Meaning {
    const char *of_floats, *of_integers, *of_truths;
} Meaning;

static const Meaning meanings[KERNEL_OP_COUNT] = {
    [KERNEL_NEGATE] = {"-$", "(long)(0 - (ulong)$)", NULL},
    [KERNEL_ABSOLUTE] = {"fabs($)", "(long)abs($)", NULL},
    [KERNEL_SIGN] = {"(isnan($) ? $ : (~)(($ > 0) - ($ < 0)))", "(long)(($ > 0) - ($ < 0))", NULL},
    [KERNEL_EXP] = {"exp($)", NULL, NULL},
    [KERNEL_LOG] = {"log($)", NULL, NULL},
    [KERNEL_SQRT] = {"sqrt($)", NULL, NULL},
    [KERNEL_RECIPROCAL] = {"(~)1 / $", NULL, NULL},
    [KERNEL_SIN] = {"sin($)", NULL, NULL},
    [KERNEL_COS] = {"cos($)", NULL, NULL},
    [KERNEL_ERF] = {"erf($)", NULL, NULL},
    [KERNEL_TANH] = {"tanh($)", NULL, NULL},
    [KERNEL_SIGMOID] = {"(~)1 / ((~)1 + exp(-$))", NULL, NULL},
    [KERNEL_NORMAL_BELOW] = {"(~)0.5f * erfc((~)-0x1.6a09e667f3bcdp-1 * $)", NULL, NULL},
    [KERNEL_NORMAL_DENSITY] = {"(~)0x1.9884533d43651p-2 * exp((~)-0.5f * $ * $)", NULL, NULL},
    [KERNEL_NOT] = {NULL, NULL, "!$"},
    [KERNEL_IS_NAN] = {"(isnan($) != 0)", "0", "0"},
    [KERNEL_ADD] = {"$ + #", "(long)((ulong)$ + (ulong)#)", NULL},
    [KERNEL_SUBTRACT] = {"$ - #", "(long)((ulong)$ - (ulong)#)", NULL},
    [KERNEL_MULTIPLY] = {"$ * #", "(long)((ulong)$ * (ulong)#)", NULL},
    [KERNEL_MULTIPLY_BF16] = {"bf16_round($) * bf16_round(#)", NULL, NULL},
    [KERNEL_MULTIPLY_BF16X3] = {"$ * #", NULL, NULL},
    [KERNEL_DIVIDE] = {"$ / #", "divide($, #)", NULL},
    [KERNEL_REMAINDER] = {"fmod($, #)", "remainder_of($, #)", NULL},
    [KERNEL_POWER] = {"pow($, #)", "power($, #)", NULL},
    [KERNEL_MINIMUM] = {"(isnan($) || $ < # ? $ : #)", "min($, #)", NULL},
    [KERNEL_MAXIMUM] = {"(isnan($) || $ > # ? $ : #)", "max($, #)", NULL},
    [KERNEL_EQUAL] = {"($ == #)", "($ == #)", "($ == #)"},
    [KERNEL_LESS] = {"($ < #)", "($ < #)", NULL},
    [KERNEL_LESS_EQUAL] = {"($ <= #)", "($ <= #)", NULL},
    [KERNEL_AND] = {NULL, NULL, "($ && #)"},
    [KERNEL_OR] = {NULL, NULL, "($ || #)"},
    /* $ is the result so far. */
    [KERNEL_SUM] = {"$ + #", "(long)((ulong)$ + (ulong)#)", NULL},
    [KERNEL_PRODUCT] = {"$ * #", "(long)((ulong)$ * (ulong)#)", NULL},
    [KERNEL_MAXIMUM_OF] = {"(isnan($) || $ > # ? $ : #)", "max($, #)", NULL},
    [KERNEL_MINIMUM_OF] = {"(isnan($) || $ < # ? $ : #)", "min($, #)", NULL},
};

static void print_meaning(const Source *source, int op, DType type, Register a, Register b)
{
    const Meaning *meaning = &meanings[op];
    const char *form = type == DTYPE_BOOL     ? meaning->of_truths
                       : dtype_is_float(type) ? meaning->of_floats
                                              : meaning->of_integers;
    if (!form) bug("kernel %s: instruction %d on %s in OpenCL", source->kernel->label, op, dtype_name(type));
    for (; *form; form++)
        if (*form == '$')
            buffer_print(source->text, "r%d", a);
        else if (*form == '#')
            buffer_print(source->text, "r%d", b);
        else if (*form == '~')
            buffer_print(source->text, "%s", register_type(type));
        else
            buffer_append(source->text, form, 1);
}

/* Small whole exponents are products, as on the CPU. */
static bool print_power(const Source *source, const KernelInstruction *power)
{
    if (power->op != KERNEL_POWER || !dtype_is_float((DType)power->type)) return false;
    const KernelInstruction *exponent = kernel_instruction(source->kernel, power->b);
    if (exponent->op != KERNEL_CONSTANT) return false;
    double number = exponent->constant.number;
    if (number != 1 && number != 2 && number != 3) return false;
    for (int i = 0; i < (int)number; i++) buffer_print(source->text, "%sr%d", i ? " * " : "", power->a);
    return true;
}

static void print_random(const Source *source, const KernelInstruction *random)
{
    const KernelOperand *at = &source->kernel->operands[random->operand];
    buffer_print(source->text, "below(r%d, r%d", random->a, random->b);
    for (int axis = 0; axis < source->kernel->axis_count; axis++)
        if (at->stride[axis]) buffer_print(source->text, " + i%d * %" PRId64, axis, at->stride[axis]);
    buffer_print(source->text, ", r%d)", random->c);
}

static void print_value(const Source *source, Register r, bool inner)
{
    const KernelInstruction *instruction = kernel_instruction(source->kernel, r);
    Buffer *text = source->text;
    switch (instruction->op) {
    case KERNEL_CONSTANT: print_constant(source, instruction); break;
    case KERNEL_AXIS: buffer_print(text, "i%d", instruction->operand); break;
    case KERNEL_LOAD: print_load(source, instruction, instruction->a, inner); break;
    case KERNEL_RANDOM: print_random(source, instruction); break;
    case KERNEL_CONVERT: print_converted(source, (DType)instruction->type, instruction->a); break;
    case KERNEL_SELECT: buffer_print(text, "r%d ? r%d : r%d", instruction->a, instruction->b, instruction->c); break;
    default:
        if (kernel_op_is_reduction(instruction->op))
            print_meaning(source, instruction->op, (DType)instruction->type, r, instruction->a);
        else if (!print_power(source, instruction))
            print_meaning(source, instruction->op, kernel_type(source->kernel, instruction->a), instruction->a,
                          instruction->b);
    }
}

static void print_instruction(const Source *source, Register r, bool inner)
{
    const KernelInstruction *instruction = kernel_instruction(source->kernel, r);
    buffer_print(source->text, "    ");
    if (kernel_op_is_store(instruction->op)) {
        print_store(source, instruction, inner);
    } else {
        buffer_print(source->text, "r%d = ", r);
        print_value(source, r, inner);
        buffer_print(source->text, ";");
    }
    buffer_print(source->text, "\n");
}

/* What a reduction of nothing is. */
static void print_identity(const Source *source, Register r)
{
    const KernelInstruction *reduction = kernel_instruction(source->kernel, r);
    bool least = reduction->op == KERNEL_MAXIMUM_OF, most = reduction->op == KERNEL_MINIMUM_OF;
    DType type = (DType)reduction->type;
    buffer_print(source->text, "    r%d = ", r);
    if (dtype_is_float(type))
        print_number(source->text, least ? -INFINITY : most ? INFINITY : reduction->op == KERNEL_PRODUCT, type);
    else
        print_integer(source->text, least ? INT64_MIN : most ? INT64_MAX : reduction->op == KERNEL_PRODUCT);
    buffer_print(source->text, ";\n");
}

static void print_phase(const Source *source, const KernelPhase *phase)
{
    bool loop = phase->inner && !source->map;
    Register first = (Register)phase->first, end = (Register)(phase->first + phase->count);
    int axis = source->kernel->axis_count - 1;
    for (Register r = first; r < end; r++)
        if (kernel_op_is_reduction(kernel_instruction(source->kernel, r)->op)) print_identity(source, r);
    if (loop)
        buffer_print(source->text, "    for (i%d = 0; i%d < %" PRId64 "; i%d++) {\n", axis, axis,
                     kernel_inner_extent(source->kernel), axis);
    else if (!source->map)
        buffer_print(source->text, "    i%d = 0;\n", axis);
    for (Register r = first; r < end; r++) print_instruction(source, r, phase->inner);
    if (loop) buffer_print(source->text, "    }\n");
}

/* ---- The function ---- */

static void print_head(const Source *source)
{
    char symbol[40];
    opencl_symbol(source->kernel, symbol);
    buffer_print(source->text, "/* ");
    for (const char *c = source->kernel->label; *c; c++) buffer_append(source->text, strchr("*\\?", *c) ? "_" : c, 1);
    buffer_print(source->text, " */\n__kernel void %s(", symbol);
    for (int k = 0; k < source->kernel->operand_count; k++)
        buffer_print(source->text, "__global uchar *b%d, long o%d, ", k, k);
    buffer_print(source->text, "long begin, long end)\n{\n");
}

/* The index of each axis, from the number of the unit; and where operands start there: in bytes, of weights in blocks
 * in elements. */
static void print_places(const Source *source)
{
    const Kernel *kernel = source->kernel;
    int axes = unit_axes(kernel);
    buffer_print(source->text, "    long u = begin + (long)get_global_id(0);\n    if (u >= end) return;\n");
    for (int axis = axes - 1; axis >= 0; axis--)
        if (axis > 0)
            buffer_print(source->text, "    long i%d = u %% %" PRId64 "; u /= %" PRId64 ";\n", axis,
                         kernel->extent[axis], kernel->extent[axis]);
        else
            buffer_print(source->text, "    long i0 = u;\n");
    if (!source->map) buffer_print(source->text, "    long i%d = 0;\n", kernel->axis_count - 1);
    for (int k = 0; k < kernel->operand_count; k++) {
        bool blocks = dtype_in_blocks(kernel->operands[k].dtype);
        size_t size = blocks ? 1 : dtype_size(kernel->operands[k].dtype);
        buffer_print(source->text, "    long q%d = ", k);
        buffer_print(source->text, blocks ? "0" : "o%d", k);
        for (int axis = 0; axis < axes; axis++)
            if (kernel->operands[k].stride[axis])
                buffer_print(source->text, " + i%d * %" PRId64, axis, kernel->operands[k].stride[axis] * (int64_t)size);
        buffer_print(source->text, ";\n");
    }
}

void opencl_emit_prelude(bool doubles, Buffer *text)
{
    if (doubles) buffer_print(text, "%s", template_prelude_double);
    buffer_print(text, "#define RANDOM_SPREAD %#xu\n#define RANDOM_MULTIPLIER1 %#xu\n#define RANDOM_MULTIPLIER2 %#xu\n",
                 RANDOM_SPREAD, RANDOM_MULTIPLIER1, RANDOM_MULTIPLIER2);
    buffer_print(text, "#define RANDOM_SHIFT1 %d\n#define RANDOM_SHIFT2 %d\n#define RANDOM_SHIFT3 %d\n", RANDOM_SHIFT1,
                 RANDOM_SHIFT2, RANDOM_SHIFT3);
    buffer_print(text, "#define RANDOM_ELEMENT_BITS %d\n#define RANDOM_ELEMENT_RANGE %d\n%s", RANDOM_ELEMENT_BITS,
                 RANDOM_ELEMENT_RANGE, template_prelude);
}

void opencl_emit_kernel(const Kernel *kernel, Buffer *text)
{
    Source source = {.kernel = kernel, .text = text, .map = kernel_is_map(kernel)};
    if (opencl_lacks(kernel)) bug("kernel %s is not for OpenCL", kernel->label);
    print_head(&source);
    print_places(&source);
    for (Register r = 1; r <= kernel->instruction_count; r++)
        if (!kernel_op_is_store(kernel_instruction(kernel, r)->op))
            buffer_print(text, "    %s r%d;\n", register_type(kernel_type(kernel, r)), r);
    for (int p = 0; p < kernel->phase_count; p++) print_phase(&source, &kernel->phases[p]);
    buffer_print(text, "}\n\n");
}
