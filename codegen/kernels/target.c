#include "codegen/kernels/target.h"

#include <llvm-c/Core.h>
#include <llvm-c/Target.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/parts.h"
#include "runtime/program/tiles.h"

static pthread_once_t initialise_once = PTHREAD_ONCE_INIT;

static void initialise_llvm(void)
{
    LLVMInitializeAllTargetInfos();
    LLVMInitializeAllTargets();
    LLVMInitializeAllTargetMCs();
    LLVMInitializeAllAsmPrinters();
    LLVMInitializeAllAsmParsers();
}

LLVMTargetMachineRef target_machine(const Target *target)
{
    LLVMTargetRef description;
    char *message = NULL;
    if (LLVMGetTargetFromTriple(target->triple, &description, &message)) bug("target %s: %s", target->triple, message);
    /* Position-independent, for executables and for loading into this process alike. */
    return LLVMCreateTargetMachine(description, target->triple, target->cpu, target->features,
                                   LLVMCodeGenLevelAggressive, LLVMRelocPIC, LLVMCodeModelDefault);
}

static void set_attribute(LLVMContextRef context, LLVMValueRef function, const char *key, const char *value)
{
    LLVMAttributeRef attribute =
        LLVMCreateStringAttribute(context, key, (unsigned)strlen(key), value, (unsigned)strlen(value));
    LLVMAddAttributeAtIndex(function, LLVMAttributeFunctionIndex, attribute);
}

void target_set_attributes(const Target *target, LLVMContextRef context, LLVMValueRef function)
{
    char bits[16];
    snprintf(bits, sizeof bits, "%d", target->vector_bytes * 8);
    set_attribute(context, function, "target-cpu", target->cpu);
    set_attribute(context, function, "target-features", target->features);
    set_attribute(context, function, "prefer-vector-width", bits); /* Intel targets would default to 256 */
    const char *plain[] = {"nounwind", "willreturn"};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        unsigned kind = LLVMGetEnumAttributeKindForName(plain[i], strlen(plain[i]));
        LLVMAddAttributeAtIndex(function, LLVMAttributeFunctionIndex, LLVMCreateEnumAttribute(context, kind, 0));
    }
}

/* void probe(<lanes x float> *p): p[0] = bf16(fma(p[0], p[1], p[2])), compiled to assembly. */
static LLVMMemoryBufferRef compile_probe(const Target *target, LLVMTargetMachineRef machine, unsigned lanes)
{
    LLVMContextRef context = LLVMContextCreate();
    LLVMModuleRef module = LLVMModuleCreateWithNameInContext("probe", context);
    LLVMSetTarget(module, target->triple);
    LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(machine);
    LLVMSetModuleDataLayout(module, layout);
    LLVMDisposeTargetData(layout);
    LLVMTypeRef pointer = LLVMPointerTypeInContext(context, 0);
    LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(context), &pointer, 1, false);
    LLVMValueRef function = LLVMAddFunction(module, "probe", type);
    target_set_attributes(target, context, function);
    LLVMBuilderRef builder = LLVMCreateBuilderInContext(context);
    LLVMPositionBuilderAtEnd(builder, LLVMAppendBasicBlockInContext(context, function, ""));
    LLVMTypeRef vector = LLVMVectorType(LLVMFloatTypeInContext(context), lanes);
    LLVMValueRef value[3];
    for (unsigned i = 0; i < 3; i++) {
        LLVMValueRef index = LLVMConstInt(LLVMInt64TypeInContext(context), i, false);
        LLVMValueRef address = LLVMBuildGEP2(builder, vector, LLVMGetParam(function, 0), &index, 1, "");
        value[i] = LLVMBuildLoad2(builder, vector, address, "");
    }
    unsigned id = LLVMLookupIntrinsicID("llvm.fma", 8);
    LLVMValueRef fma = LLVMGetIntrinsicDeclaration(module, id, &vector, 1);
    LLVMValueRef result = LLVMBuildCall2(builder, LLVMGlobalGetValueType(fma), fma, value, 3, "");
    LLVMTypeRef rounded = LLVMVectorType(LLVMBFloatTypeInContext(context), lanes);
    LLVMBuildStore(builder, LLVMBuildFPTrunc(builder, result, rounded, ""), LLVMGetParam(function, 0));
    LLVMBuildRetVoid(builder);
    LLVMMemoryBufferRef text = NULL;
    char *message = NULL;
    if (LLVMTargetMachineEmitToMemoryBuffer(machine, module, LLVMAssemblyFile, &message, &text))
        bug("target %s, CPU %s: %s", target->triple, target->cpu, message);
    LLVMDisposeBuilder(builder);
    LLVMDisposeModule(module);
    LLVMContextDispose(context);
    return text;
}

/* Nothing that compiles everywhere shows whether a CPU has AMX: its features say so, or its name. */
static bool has_tiles(const Target *target)
{
    static const char *const known[] = {"sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d"};
    if (strstr(target->features, "-amx-bf16")) return false;
    return (strstr(target->features, "+amx-bf16") && strstr(target->features, "+amx-tile")) ||
           word_index(target->cpu, known, sizeof known / sizeof *known) >= 0;
}

static void find_bf16(Target *target, const char *assembly, bool native)
{
    if (target->vector_bytes < 64 || !strstr(assembly, "vcvtneps2bf16")) return;
    bool tiles = has_tiles(target) && (!native || tiles_request());
    target->bf16 = tiles ? BF16_TILES : BF16_PAIRS;
}

static void probe_vectors(Target *target, bool native)
{
    LLVMTargetMachineRef machine = target_machine(target);
    target->vector_bytes = 64; /* prefer what there is */
    LLVMMemoryBufferRef text = compile_probe(target, machine, 16);
    const char *assembly = LLVMGetBufferStart(text);
    target->fused_multiply_add = !strstr(assembly, "fmaf");
    target->vector_bytes = strstr(assembly, "%zmm") ? 64 : strstr(assembly, "%ymm") ? 32 : 16;
    target->avx = strstr(assembly, "\tvmov") != NULL;
    bool x86 = strstr(assembly, "%xmm") || target->vector_bytes > 16;
    target->vector_registers = x86 && target->vector_bytes < 64 ? 16 : 32;
    find_bf16(target, assembly, native);
    LLVMDisposeMemoryBuffer(text);
    LLVMDisposeTargetMachine(machine);
}

static void find_caches(Target *target, bool native)
{
    target->level1_bytes = 32 << 10;
    target->level2_bytes = 512 << 10;
    if (!native) return;
    long level1 = sysconf(_SC_LEVEL1_DCACHE_SIZE), level2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
    if (level1 >= 8 << 10) target->level1_bytes = (size_t)level1;
    if (level2 >= 64 << 10) target->level2_bytes = (size_t)level2;
}

/* LLVM reports an unknown CPU on standard error only, and goes on with a generic one: a wrong name must not pass. */
static bool cpu_is_known(const Target *target, LLVMTargetRef description)
{
    if (strcmp(target->cpu, "generic") == 0) return true;
    fflush(stderr);
    int saved = dup(2);
    FILE *capture = tmpfile();
    if (saved < 0 || !capture) {
        if (saved >= 0) close(saved);
        if (capture) fclose(capture);
        return true; /* cannot be asked */
    }
    dup2(fileno(capture), 2);
    LLVMTargetMachineRef machine = LLVMCreateTargetMachine(description, target->triple, target->cpu, target->features,
                                                           LLVMCodeGenLevelDefault, LLVMRelocPIC, LLVMCodeModelDefault);
    fflush(stderr);
    dup2(saved, 2);
    close(saved);
    if (machine) LLVMDisposeTargetMachine(machine);
    rewind(capture);
    char text[4096];
    size_t length = fread(text, 1, sizeof text - 1, capture);
    text[length] = 0;
    fclose(capture);
    return !strstr(text, "is not a recognized");
}

static char *take_message(Target *target, char *message)
{
    char *copy = arena_string(&target->arena, message ? message : "");
    LLVMDisposeMessage(message);
    return copy;
}

bool target_init(Target *target, TargetOptions options, Diagnostics *diagnostics)
{
    pthread_once(&initialise_once, initialise_llvm);
    *target = (Target){0};
    const char *own = take_message(target, LLVMGetDefaultTargetTriple());
    target->triple = options.triple ? take_message(target, LLVMNormalizeTargetTriple(options.triple)) : own;
    bool same_architecture = strncmp(own, target->triple, strcspn(own, "-") + 1) == 0;
    target->foreign = !same_architecture;
    bool native = same_architecture && (!options.cpu || strcmp(options.cpu, "native") == 0);
    target->cpu = native ? take_message(target, LLVMGetHostCPUName())
                         : arena_string(&target->arena, options.cpu ? options.cpu : "generic");
    const char *features = options.features ? options.features : "";
    if (native) {
        const char *host = take_message(target, LLVMGetHostCPUFeatures());
        features = *features ? arena_format(&target->arena, "%s,%s", host, features) : host;
    }
    target->features = arena_string(&target->arena, features);

    LLVMTargetRef description;
    char *message = NULL;
    if (LLVMGetTargetFromTriple(target->triple, &description, &message)) {
        diagnostics_error(diagnostics, EXIT_TOOLCHAIN, PLACE_NONE, NULL, "target %s: %s", target->triple, message);
        LLVMDisposeMessage(message);
        target_free(target);
        return false;
    }
    if (!cpu_is_known(target, description)) {
        diagnostics_error(diagnostics, EXIT_TOOLCHAIN, PLACE_NONE, "clang --print-supported-cpus lists those it knows",
                          "target %s: LLVM knows no CPU '%s', or not one of its features '%s'", target->triple,
                          target->cpu, target->features);
        target_free(target);
        return false;
    }
    probe_vectors(target, native);
    find_caches(target, native);
    const char *text =
        arena_format(&target->arena, "%s/%s/%s/%d/%d/%zu/%zu", target->triple, target->cpu, target->features,
                     target->vector_bytes, target->bf16, target->level1_bytes, target->level2_bytes);
    target->hash = hash_bytes(text, strlen(text));
    return true;
}

void target_free(Target *target)
{
    arena_free(&target->arena);
    *target = (Target){0};
}
