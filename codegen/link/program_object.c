#include "codegen/link/program_object.h"

#include <stdlib.h>
#include <string.h>

#include <llvm-c/Core.h>

#include "codegen/kernels/emit.h"

/* What the pointers of a structure point to. Everything else in it is bytes, laid out alike on every target that is
 * little-endian with 64-bit pointers. */
typedef enum FieldKind {
    FIELD_NONE, /* ends the list */
    FIELD_NULL, /* meaningless in an emitted program */
    FIELD_STRING,
    FIELD_ARRAY,  /* of `record`, as many as the uint32_t at `count` says; of one element if count is ONE */
    FIELD_BYTES,  /* as many as the uint64_t at `count` says */
    FIELD_KERNEL, /* the function of the call's kernel */
} FieldKind;

typedef struct Record Record;

typedef struct Field {
    FieldKind kind;
    size_t offset;
    const Record *record;
    size_t count;
} Field;

struct Record {
    size_t size;
    const Field *fields; /* its pointers, by ascending offset */
};

#define ONE SIZE_MAX

/* ---- The fields of every structure, once, in their order ----
 *
 * X is what becomes of the list: ROW makes the fields that are pointers, SIZE adds up the bytes of all. So whoever adds
 * a field must say here what it is, or RECORD fails. `in` is where the structure stands inside of T, mostly nothing. */

// clang-format off
#define LOCATION_FIELDS(X, T, in) \
    X##_PLAIN(T, in space) X##_PLAIN(T, in block_bytes) X##_PLAIN(T, in offset) X##_PLAIN(T, in line_bytes)

#define CALL_FIELDS(X, T, in) \
    X##_KERNEL(T, in kernel) X##_ARRAY(T, in operands, location, in operand_count) \
    X##_ARRAY(T, in tails, location, in tail_count) X##_PLAIN(T, in operand_count) X##_PLAIN(T, in reserved) \
    X##_PLAIN(T, in layer) X##_PLAIN(T, in group_count) X##_PLAIN(T, in block_count) X##_PLAIN(T, in wave_count) \
    X##_PLAIN(T, in line_loops) X##_PLAIN(T, in line_axis) X##_PLAIN(T, in line_extent) \
    X##_PLAIN(T, in token_extent) X##_PLAIN(T, in tail_count) X##_PLAIN(T, in line_blocks) \
    X##_PLAIN(T, in unit_extent) X##_PLAIN(T, in unit_count) X##_PLAIN(T, in sum_extent) \
    X##_PLAIN(T, in device_kernel) \
    X##_PLAIN(T, in units) X##_PLAIN(T, in nanoseconds) X##_STRING(T, in name) \
    X##_NULL(T, in interpreted)

#define CALL_LIST_FIELDS(X, T, in) \
    X##_ARRAY(T, in calls, call, in count) X##_PLAIN(T, in count) X##_PLAIN(T, in reserved)

#define TENSOR_FIELDS(X, T, in) \
    X##_STRING(T, in name) X##_PLAIN(T, in dtype) X##_PLAIN(T, in rank) X##_PLAIN(T, in dim) X##_PLAIN(T, in bytes) \
    X##_PLAIN(T, in value_limit) X##_PLAIN(T, in fill) X##_PLAIN(T, in by_lines) LOCATION_FIELDS(X, T, in location.)

#define USE_FIELDS(X, T, in) \
    X##_PLAIN(T, in number) X##_PLAIN(T, in reserved) LOCATION_FIELDS(X, T, in gradient.)

#define TIED_NAME_FIELDS(X, T, in) \
    X##_STRING(T, in name) X##_PLAIN(T, in transposed) X##_PLAIN(T, in reserved)

#define PARAMETER_FIELDS(X, T, in) \
    TENSOR_FIELDS(X, T, in value.) LOCATION_FIELDS(X, T, in gradient.) \
    X##_ARRAY(T, in uses, use, in use_count) X##_ARRAY(T, in tied_names, tied_name, in tied_name_count) \
    X##_PLAIN(T, in use_count) X##_PLAIN(T, in tied_name_count) X##_PLAIN(T, in state_count) X##_PLAIN(T, in update) \
    X##_PLAIN(T, in update_stride) X##_PLAIN(T, in squares) X##_PLAIN(T, in square_parts) X##_PLAIN(T, in reads) \
    LOCATION_FIELDS(X, T, in states[0].) LOCATION_FIELDS(X, T, in states[1].) \
    X##_PLAIN(T, in frozen) X##_PLAIN(T, in block) X##_PLAIN(T, in decay_exempt_class) X##_PLAIN(T, in global_index) \
    X##_STRING(T, in alias) X##_STRING(T, in initial_file) \
    X##_PLAIN(T, in initial_offset) X##_PLAIN(T, in initial_check) X##_PLAIN(T, in initial_mean) \
    X##_PLAIN(T, in initial_deviation)

#define STAGE_FIELDS(X, T, in) \
    X##_PLAIN(T, in index) X##_PLAIN(T, in first_layer) X##_PLAIN(T, in last_layer) X##_PLAIN(T, in slot_count) \
    CALL_LIST_FIELDS(X, T, in lists[SKY_LIST_FORWARD].) CALL_LIST_FIELDS(X, T, in lists[SKY_LIST_BACKWARD].) \
    CALL_LIST_FIELDS(X, T, in lists[SKY_LIST_WEIGHT_GRADIENT].) CALL_LIST_FIELDS(X, T, in lists[SKY_LIST_UPDATE].) \
    CALL_LIST_FIELDS(X, T, in lists[SKY_LIST_SQUARES].) \
    X##_PLAIN(T, in input_count) X##_PLAIN(T, in parameter_count) X##_PLAIN(T, in output_count) \
    X##_PLAIN(T, in has_loss) X##_ARRAY(T, in inputs, tensor, in input_count) \
    X##_ARRAY(T, in outputs, tensor, in output_count) X##_ARRAY(T, in parameters, parameter, in parameter_count) \
    X##_ARRAY(T, in receive_forward, tensor, in receive_forward_count) \
    X##_ARRAY(T, in send_forward, tensor, in send_forward_count) \
    X##_ARRAY(T, in receive_backward, tensor, in receive_backward_count) \
    X##_ARRAY(T, in send_backward, tensor, in send_backward_count) \
    X##_PLAIN(T, in receive_forward_count) X##_PLAIN(T, in send_forward_count) \
    X##_PLAIN(T, in receive_backward_count) X##_PLAIN(T, in send_backward_count) LOCATION_FIELDS(X, T, in loss.) \
    X##_PLAIN(T, in space_bytes) X##_PLAIN(T, in thread_scratch_bytes) X##_PLAIN(T, in planned_s) \
    X##_BYTES(T, in constants, in space_bytes[SKY_SPACE_CONSTANT])

#define DEVICE_KERNEL_FIELDS(X, T, in) \
    X##_STRING(T, in name) X##_PLAIN(T, in operand_count) X##_PLAIN(T, in tile) X##_PLAIN(T, in reserved) \
    X##_PLAIN(T, in begin) X##_PLAIN(T, in bytes) X##_STRING(T, in label)

#define INSTRUCTION_FIELDS(X, T, in) \
    X##_PLAIN(T, in op) X##_PLAIN(T, in stage) X##_PLAIN(T, in microbatch) X##_PLAIN(T, in slot)

#define LINK_FIELDS(X, T, in) \
    X##_PLAIN(T, in latency_s) X##_PLAIN(T, in transfer_s)

#define LABELS_FIELDS(X, T, in) \
    X##_STRING(T, in name) X##_PLAIN(T, in ignore_index) X##_PLAIN(T, in classes) \
    X##_ARRAY(T, in weights, word, in weight_count) X##_PLAIN(T, in weight_count) X##_PLAIN(T, in kind) \
    X##_PLAIN(T, in shifted) X##_PLAIN(T, in reserved)

#define OPTIMIZER_FIELDS(X, T, in) \
    X##_PLAIN(T, in kind) X##_PLAIN(T, in reserved) X##_PLAIN(T, in learning_rate) X##_PLAIN(T, in beta1) \
    X##_PLAIN(T, in beta2) \
    X##_PLAIN(T, in epsilon) X##_PLAIN(T, in weight_decay)

#define NORM_FIELDS(X, T, in) \
    X##_PLAIN(T, in rank_count) X##_PLAIN(T, in zone_count) X##_PLAIN(T, in pair_count) X##_PLAIN(T, in reserved) \
    X##_ARRAY(T, in zones, word, in rank_count) X##_ARRAY(T, in sites, word, in rank_count) \
    X##_ARRAY(T, in message_ns, time, in pair_count)

#define PROGRAM_FIELDS(X, T, in) \
    X##_PLAIN(T, in version) X##_PLAIN(T, in rank) X##_PLAIN(T, in rank_count) X##_PLAIN(T, in stage_count) \
    X##_PLAIN(T, in total_stage_count) X##_PLAIN(T, in instruction_count) X##_PLAIN(T, in microbatch_count) \
    X##_PLAIN(T, in microbatch_size) X##_PLAIN(T, in sequence_length) X##_PLAIN(T, in threads) \
    X##_PLAIN(T, in uses_tiles) X##_PLAIN(T, in loss_is_summed) X##_PLAIN(T, in total_parameter_count) \
    X##_PLAIN(T, in label_count) X##_PLAIN(T, in block_count) X##_PLAIN(T, in site) X##_PLAIN(T, in site_count) \
    X##_PLAIN(T, in lines_vary) X##_PLAIN(T, in tokens_vary) X##_PLAIN(T, in whole_batches) \
    X##_PLAIN(T, in replica_count) X##_PLAIN(T, in sum_codec) X##_PLAIN(T, in summed_layers) \
    X##_PLAIN(T, in dealt_count) X##_PLAIN(T, in device_kernel_count) X##_PLAIN(T, in device_blocks) \
    X##_PLAIN(T, in packing) X##_PLAIN(T, in clip) \
    X##_PLAIN(T, in seed) X##_PLAIN(T, in spare_bytes) X##_PLAIN(T, in planned_microbatches) X##_PLAIN(T, in slowdown) \
    X##_ARRAY(T, in stages, stage, in stage_count) X##_ARRAY(T, in instructions, instruction, in instruction_count) \
    X##_ARRAY(T, in stage_rank, word, in total_stage_count) X##_ARRAY(T, in links, link, in total_stage_count) \
    X##_ELEMENT(T, in norm, norm) X##_ARRAY(T, in rank_replicas, word, in rank_count) \
    X##_ARRAY(T, in dealt, word, in dealt_count) X##_ARRAY(T, in sum_places, word, in summed_layers) \
    X##_PLAIN(T, in sum_s) X##_PLAIN(T, in sum_latency_s) \
    X##_ARRAY(T, in labels, labels, in label_count) X##_ARRAY(T, in site_names, text, in site_count) \
    X##_ARRAY(T, in rank_sites, word, in rank_count) X##_STRING(T, in device_name) \
    X##_STRING(T, in opencl_source) X##_STRING(T, in opencl_platform) X##_STRING(T, in opencl_device) \
    X##_ARRAY(T, in device_kernels, device_kernel, in device_kernel_count) X##_STRING(T, in low_rank) \
    X##_STRING(T, in model_hash) \
    X##_STRING(T, in plan_hash) X##_STRING(T, in recipe_hash) X##_STRING(T, in weights_hash) \
    X##_STRING(T, in settings) X##_STRING(T, in label_names) X##_STRING(T, in tokenizers) \
    X##_ELEMENT(T, in predicted_step_s, number) OPTIMIZER_FIELDS(X, T, in optimizer.)

#define ROW(kind, type, member, record, count) {kind, offsetof(type, member), record, count},
#define ROW_PLAIN(type, member)
#define ROW_NULL(type, member) ROW(FIELD_NULL, type, member, NULL, 0)
#define ROW_STRING(type, member) ROW(FIELD_STRING, type, member, NULL, 0)
#define ROW_KERNEL(type, member) ROW(FIELD_KERNEL, type, member, NULL, 0)
#define ROW_BYTES(type, member, size) ROW(FIELD_BYTES, type, member, NULL, offsetof(type, size))
#define ROW_ARRAY(type, member, of, size) ROW(FIELD_ARRAY, type, member, &of##_record, offsetof(type, size))
#define ROW_ELEMENT(type, member, of) ROW(FIELD_ARRAY, type, member, &of##_record, ONE)

#define SIZE_PLAIN(type, member) + sizeof(((type *)NULL)->member)
#define SIZE_NULL(type, member) + sizeof(void *)
#define SIZE_STRING(type, member) + sizeof(void *)
#define SIZE_KERNEL(type, member) + sizeof(void *)
#define SIZE_BYTES(type, member, size) + sizeof(void *)
#define SIZE_ARRAY(type, member, of, size) + sizeof(void *)
#define SIZE_ELEMENT(type, member, of) + sizeof(void *)

#define RECORD(name, type, FIELDS) \
    _Static_assert(sizeof(type) == 0 FIELDS(SIZE, type, ), #FIELDS " lacks a field of " #type " or it has padding"); \
    static const Record name##_record = {sizeof(type), (const Field[]){FIELDS(ROW, type, ){FIELD_NONE, 0, NULL, 0}}}

static const Record word_record = {sizeof(uint32_t), (const Field[]){{FIELD_NONE, 0, NULL, 0}}};
static const Record text_record = {sizeof(char *),
                                   (const Field[]){{FIELD_STRING, 0, NULL, 0}, {FIELD_NONE, 0, NULL, 0}}};
static const Record number_record = {sizeof(double), (const Field[]){{FIELD_NONE, 0, NULL, 0}}};
static const Record time_record = {sizeof(int64_t), (const Field[]){{FIELD_NONE, 0, NULL, 0}}};
RECORD(location, SkyLocation, LOCATION_FIELDS);
RECORD(call, SkyCall, CALL_FIELDS);
RECORD(tensor, SkyTensor, TENSOR_FIELDS);
RECORD(use, SkyUse, USE_FIELDS);
RECORD(tied_name, SkyTiedName, TIED_NAME_FIELDS);
RECORD(parameter, SkyParameter, PARAMETER_FIELDS);
RECORD(stage, SkyStage, STAGE_FIELDS);
RECORD(instruction, SkyInstruction, INSTRUCTION_FIELDS);
RECORD(link, SkyLink, LINK_FIELDS);
RECORD(labels, SkyLabels, LABELS_FIELDS);
RECORD(norm, SkyNormRound, NORM_FIELDS);
RECORD(device_kernel, SkyDeviceKernel, DEVICE_KERNEL_FIELDS);
RECORD(program, SkyProgram, PROGRAM_FIELDS);
// clang-format on

typedef struct Tables {
    const CompiledKernels *compiled;
    LLVMContextRef context;
    LLVMModuleRef module;
    LLVMTypeRef pointer;
} Tables;

static LLVMValueRef bytes_constant(const Tables *tables, const void *bytes, size_t size)
{
    return LLVMConstStringInContext2(tables->context, bytes, size, true);
}

static LLVMValueRef constant_global(const Tables *tables, LLVMValueRef value, unsigned alignment)
{
    LLVMValueRef global = LLVMAddGlobal(tables->module, LLVMTypeOf(value), "");
    LLVMSetInitializer(global, value);
    LLVMSetGlobalConstant(global, true);
    LLVMSetLinkage(global, LLVMPrivateLinkage);
    LLVMSetAlignment(global, alignment);
    return global;
}

static LLVMValueRef kernel_pointer(const Tables *tables, const SkyCall *call)
{
    if (call->device_kernel) return LLVMConstNull(tables->pointer);
    const CompiledKernel *kernel = kernels_find(tables->compiled, call->interpreted);
    if (!kernel) bug("%s was not compiled", call->name);
    LLVMValueRef function = LLVMGetNamedFunction(tables->module, kernel->symbol);
    if (function) return function;
    LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(tables->context), NULL, 0, false);
    return LLVMAddFunction(tables->module, kernel->symbol, type);
}

static LLVMValueRef record_array(const Tables *tables, const Record *record, const void *base, size_t count);

static LLVMValueRef field_pointer(const Tables *tables, const Field *field, const unsigned char *base)
{
    const void *target;
    memcpy(&target, base + field->offset, sizeof target);
    if (field->kind == FIELD_KERNEL) return kernel_pointer(tables, (const SkyCall *)(const void *)base);
    if (field->kind == FIELD_NULL || !target) return LLVMConstNull(tables->pointer);
    if (field->kind == FIELD_STRING)
        return constant_global(tables, bytes_constant(tables, target, strlen(target) + 1), 1);
    if (field->kind == FIELD_BYTES) {
        uint64_t size;
        memcpy(&size, base + field->count, sizeof size);
        return size ? constant_global(tables, bytes_constant(tables, target, size), 64)
                    : LLVMConstNull(tables->pointer);
    }
    uint32_t count = 1;
    if (field->count != ONE) memcpy(&count, base + field->count, sizeof count);
    return record_array(tables, field->record, target, count);
}

/* Appends the constants that make up one record: runs of bytes, and pointers between them. */
static void append_record(const Tables *tables, const Record *record, const unsigned char *base, LLVMValueRef **parts,
                          size_t *count, size_t *capacity)
{
    size_t done = 0;
    for (const Field *field = record->fields;; field++) {
        size_t next = field->kind == FIELD_NONE ? record->size : field->offset;
        if (next > done) array_push(*parts, *count, *capacity, bytes_constant(tables, base + done, next - done));
        if (field->kind == FIELD_NONE) return;
        array_push(*parts, *count, *capacity, field_pointer(tables, field, base));
        done = next + sizeof(void *);
    }
}

static LLVMValueRef record_constant(const Tables *tables, const Record *record, const void *base, size_t records)
{
    FREED LLVMValueRef *parts = NULL;
    size_t count = 0, capacity = 0;
    if (record->fields[0].kind == FIELD_NONE)
        array_push(parts, count, capacity, bytes_constant(tables, base, records * record->size));
    else
        for (size_t i = 0; i < records; i++)
            append_record(tables, record, (const unsigned char *)base + i * record->size, &parts, &count, &capacity);
    return LLVMConstStructInContext(tables->context, parts, (unsigned)count, true);
}

static LLVMValueRef record_array(const Tables *tables, const Record *record, const void *base, size_t count)
{
    if (!count) return LLVMConstNull(tables->pointer);
    return constant_global(tables, record_constant(tables, record, base, count), 16);
}

void program_object(const SkyProgram *program, const CompiledKernels *compiled, Buffer *object)
{
    LLVMTargetMachineRef machine = target_machine(compiled->target);
    Emit emit;
    emit_init(&emit, compiled->target, machine);
    Tables tables = {compiled, LLVMGetModuleContext(emit.module), emit.module, NULL};
    tables.pointer = LLVMPointerTypeInContext(tables.context, 0);
    LLVMValueRef value = record_constant(&tables, &program_record, program, 1);
    LLVMValueRef global = LLVMAddGlobal(tables.module, LLVMTypeOf(value), "sky_program");
    LLVMSetInitializer(global, value);
    LLVMSetGlobalConstant(global, true);
    LLVMSetAlignment(global, 16);
    char *message = NULL;
    LLVMMemoryBufferRef code = NULL;
    if (LLVMTargetMachineEmitToMemoryBuffer(machine, tables.module, LLVMObjectFile, &message, &code))
        bug("LLVM: %s", message);
    buffer_append(object, LLVMGetBufferStart(code), LLVMGetBufferSize(code));
    LLVMDisposeMemoryBuffer(code);
    emit_free(&emit);
    LLVMDisposeTargetMachine(machine);
}
