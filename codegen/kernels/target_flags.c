#include "codegen/kernels/target_flags.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"

/* Only what the code generator may use unasked: of the rest (keys of memory, locks, random numbers) code for a CPU that
 * has it is the same. `level`: the psABI's that has it (https://gitlab.com/x86-psABIs/x86-64-ABI); 0: none. AMX stands
 * apart, since kernels use it only where Target.bf16 says so. */
static const struct {
    const char *llvm, *linux_name;
    int level;
} flags[] = {
    {"sse3", "pni", 2},
    {"ssse3", "ssse3", 2},
    {"sse4.1", "sse4_1", 2},
    {"sse4.2", "sse4_2", 2},
    {"popcnt", "popcnt", 2},
    {"cx16", "cx16", 2},
    {"sahf", "lahf_lm", 2},
    {"avx", "avx", 3},
    {"avx2", "avx2", 3},
    {"bmi", "bmi1", 3},
    {"bmi2", "bmi2", 3},
    {"f16c", "f16c", 3},
    {"fma", "fma", 3},
    {"lzcnt", "abm", 3},
    {"movbe", "movbe", 3},
    {"avx512f", "avx512f", 4},
    {"avx512bw", "avx512bw", 4},
    {"avx512cd", "avx512cd", 4},
    {"avx512dq", "avx512dq", 4},
    {"avx512vl", "avx512vl", 4},
    {"avx512bf16", "avx512_bf16", 0},
    {"avx512fp16", "avx512_fp16", 0},
    {"avx512ifma", "avx512ifma", 0},
    {"avx512vbmi", "avx512vbmi", 0},
    {"avx512vbmi2", "avx512_vbmi2", 0},
    {"avx512vnni", "avx512_vnni", 0},
    {"avx512bitalg", "avx512_bitalg", 0},
    {"avx512vpopcntdq", "avx512_vpopcntdq", 0},
    {"avxvnni", "avx_vnni", 0},
    {"gfni", "gfni", 0},
    {"fma4", "fma4", 0},
    {"xop", "xop", 0},
    {"tbm", "tbm", 0},
    {"neon", "asimd", 0},
    {"fullfp16", "asimdhp", 0},
    {"dotprod", "asimddp", 0},
    {"lse", "atomics", 0},
    {"sve", "sve", 0},
    {"sve2", "sve2", 0},
    {"i8mm", "i8mm", 0},
};

static bool is_x86(const Target *target) { return strncmp(target->triple, "x86_64", 6) == 0; }

/* Of a CPU by name; of one whose features are listed in full none is needed. */
static int level_of(const Target *target)
{
    static const char levels[] = "x86-64-v";
    size_t length = sizeof levels - 1;
    if (!is_x86(target)) return 0;
    if (strncmp(target->cpu, levels, length) == 0) return atoi(target->cpu + length);
    if (strcmp(target->cpu, "x86-64") == 0 || strcmp(target->cpu, "generic") == 0) return 1;
    if (target->vector_bytes == 64) return 4;
    return target->vector_bytes == 32 && target->fused_multiply_add ? 3 : 2;
}

/* What a list such as "+avx2,-fma" says of a feature last: '+' or '-'; 0: nothing. */
static char said_of(const char *features, const char *feature)
{
    char said = 0;
    size_t length = strlen(feature);
    for (const char *at = features; *at; at += strcspn(at, ","), at += *at == ',') {
        size_t size = strcspn(at, ",");
        if (size == length + 1 && strncmp(at + 1, feature, length) == 0) said = *at;
    }
    return said;
}

static void add(Buffer *text, const char *flag) { buffer_print(text, "%s%s", text->size ? " " : "", flag); }

const char *target_flags(const Target *target, Arena *arena)
{
    FREED_WITH(buffer_free) Buffer text = {0};
    int level = level_of(target);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        char said = said_of(target->features, flags[i].llvm);
        bool avx = strcmp(flags[i].llvm, "avx") == 0 && is_x86(target) && target->avx;
        bool pairs = strcmp(flags[i].llvm, "avx512bf16") == 0 && target->bf16 != BF16_NONE;
        bool implied = (flags[i].level && flags[i].level <= level) || avx || pairs;
        if (said ? said == '+' : implied) add(&text, flags[i].linux_name);
    }
    if (target->bf16 == BF16_TILES) {
        add(&text, "amx_tile");
        add(&text, "amx_bf16");
    }
    return arena_string(arena, buffer_text(&text));
}

const char *target_architecture(const Target *target, Arena *arena)
{
    return arena_string_n(arena, target->triple, strcspn(target->triple, "-"));
}
