#include "codegen/program_object.h"

#include <stdlib.h>
#include <string.h>

#include <llvm-c/Core.h>

#include "codegen/emit.h"

/* What the pointers of a structure point to. Everything else in it is bytes, laid out alike on every target that is
 * little-endian with 64-bit pointers. */
typedef enum FieldKind {
    FIELD_NULL, /* meaningless in an emitted program */
    FIELD_STRING,
    FIELD_ARRAY,  /* of `record`, as many as the uint32_t at `count` says; of one element if count is ONE */
    FIELD_BYTES,  /* as many as the uint64_t at `count` says */
    FIELD_KERNEL, /* the function of the call's kernel */
} FieldKind;

typedef struct Record Record;

typedef struct Field {
    size_t offset;
    FieldKind kind;
    const Record *record;
    size_t count;
} Field;

struct Record {
    size_t size;
    const Field *fields; /* by ascending offset; the last has kind FIELD_NULL and offset `size` */
};

static const size_t ONE = SIZE_MAX;

#define END(type)                                                                                                      \
    {                                                                                                                  \
        sizeof(type), FIELD_NULL, NULL, 0                                                                              \
    }
#define STRING(type, member)                                                                                           \
    {                                                                                                                  \
        offsetof(type, member), FIELD_STRING, NULL, 0                                                                  \
    }
#define ARRAY(type, member, element, counter)                                                                          \
    {                                                                                                                  \
        offsetof(type, member), FIELD_ARRAY, &element, offsetof(type, counter)                                         \
    }

static const Record location_record = {sizeof(SkyLocation), (const Field[]){END(SkyLocation)}};
static const Record word_record = {sizeof(uint32_t), (const Field[]){END(uint32_t)}};
static const Record link_record = {sizeof(SkyLink), (const Field[]){END(SkyLink)}};
static const Record number_record = {sizeof(double), (const Field[]){END(double)}};
static const Record instruction_record = {sizeof(SkyInstruction), (const Field[]){END(SkyInstruction)}};
static const Record labels_record = {sizeof(SkyLabels), (const Field[]){STRING(SkyLabels, name), END(SkyLabels)}};
static const Record tensor_record = {sizeof(SkyTensor), (const Field[]){STRING(SkyTensor, name), END(SkyTensor)}};
static const Record tied_name_record = {sizeof(SkyTiedName),
                                        (const Field[]){STRING(SkyTiedName, name), END(SkyTiedName)}};
static const Record use_record = {sizeof(SkyUse), (const Field[]){END(SkyUse)}};
static const Record parameter_record = {
    sizeof(SkyParameter),
    (const Field[]){STRING(SkyParameter, value.name), ARRAY(SkyParameter, uses, use_record, use_count),
                    ARRAY(SkyParameter, tied_names, tied_name_record, tied_name_count),
                    STRING(SkyParameter, initial_file), END(SkyParameter)}};
static const Record call_record = {sizeof(SkyCall),
                                   (const Field[]){{offsetof(SkyCall, kernel), FIELD_KERNEL, NULL, 0},
                                                   ARRAY(SkyCall, operands, location_record, operand_count),
                                                   STRING(SkyCall, name),
                                                   {offsetof(SkyCall, interpreted), FIELD_NULL, NULL, 0},
                                                   END(SkyCall)}};
static const Record stage_record = {
    sizeof(SkyStage), (const Field[]){ARRAY(SkyStage, forward, call_record, forward_count),
                                      ARRAY(SkyStage, backward, call_record, backward_count),
                                      ARRAY(SkyStage, weight_gradient, call_record, weight_gradient_count),
                                      ARRAY(SkyStage, update, call_record, update_count),
                                      ARRAY(SkyStage, inputs, tensor_record, input_count),
                                      ARRAY(SkyStage, outputs, tensor_record, output_count),
                                      ARRAY(SkyStage, parameters, parameter_record, parameter_count),
                                      ARRAY(SkyStage, receive_forward, tensor_record, receive_forward_count),
                                      ARRAY(SkyStage, send_forward, tensor_record, send_forward_count),
                                      ARRAY(SkyStage, receive_backward, tensor_record, receive_backward_count),
                                      ARRAY(SkyStage, send_backward, tensor_record, send_backward_count),
                                      {offsetof(SkyStage, constants), FIELD_BYTES, NULL,
                                       offsetof(SkyStage, space_bytes) + SKY_SPACE_CONSTANT * sizeof(uint64_t)},
                                      END(SkyStage)}};
static const Record program_record = {
    sizeof(SkyProgram), (const Field[]){ARRAY(SkyProgram, stages, stage_record, stage_count),
                                        ARRAY(SkyProgram, instructions, instruction_record, instruction_count),
                                        ARRAY(SkyProgram, stage_rank, word_record, total_stage_count),
                                        ARRAY(SkyProgram, links, link_record, total_stage_count),
                                        ARRAY(SkyProgram, labels, labels_record, label_count),
                                        STRING(SkyProgram, device_name),
                                        STRING(SkyProgram, model_hash),
                                        STRING(SkyProgram, plan_hash),
                                        {offsetof(SkyProgram, predicted_step_s), FIELD_ARRAY, &number_record, SIZE_MAX},
                                        END(SkyProgram)}};

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
    const CompiledKernel *kernel = codegen_find(tables->compiled, call->interpreted);
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
        if (field->offset > done)
            array_push(*parts, *count, *capacity, bytes_constant(tables, base + done, field->offset - done));
        if (field->offset == record->size) return;
        array_push(*parts, *count, *capacity, field_pointer(tables, field, base));
        done = field->offset + sizeof(void *);
    }
}

static LLVMValueRef record_constant(const Tables *tables, const Record *record, const void *base, size_t records)
{
    LLVMValueRef *parts = NULL;
    size_t count = 0, capacity = 0;
    if (record->fields[0].offset == record->size)
        array_push(parts, count, capacity, bytes_constant(tables, base, records * record->size));
    else
        for (size_t i = 0; i < records; i++)
            append_record(tables, record, (const unsigned char *)base + i * record->size, &parts, &count, &capacity);
    LLVMValueRef constant = LLVMConstStructInContext(tables->context, parts, (unsigned)count, true);
    free(parts);
    return constant;
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
