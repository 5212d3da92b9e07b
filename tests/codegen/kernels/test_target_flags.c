/* What processors must have for a target's code. Of this machine's own CPU it must have, as Linux tells it, whatever is
 * said to be needed; of CPUs by name it is what the psABI and their makers say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/parts.h"
#include "codegen/kernels/target_flags.h"

static const char *flags_of(TargetOptions options, Arena *arena)
{
    Target target;
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    assert_true(target_init(&target, options, &diagnostics));
    const char *flags = target_flags(&target, arena);
    target_free(&target);
    return flags;
}

static void expect(const char *cpu, const char *features, const char *with, const char *without)
{
    FREED_WITH(arena_free) Arena arena = {0};
    const char *flags = flags_of((TargetOptions){"x86_64-linux-gnu", cpu, features}, &arena);
    const char *lists[] = {with, without};
    for (int l = 0; l < 2; l++) {
        char *rest = arena_string(&arena, lists[l]);
        for (char *flag; (flag = strtok_r(rest, " ", &rest));)
            if (text_has_part(flags, flag, " ") != (l == 0))
                fail_msg("%s with %s: %s is%s among '%s'", cpu, features ? features : "its own features", flag,
                         l == 0 ? " not" : "", flags);
    }
}

static void named(void **state)
{
    (void)state;
    expect("x86-64", NULL, "", "pni avx popcnt");
    expect("x86-64-v2", NULL, "pni ssse3 sse4_1 sse4_2 popcnt cx16 lahf_lm", "avx abm");
    expect("x86-64-v3", NULL, "sse4_2 avx avx2 bmi1 bmi2 f16c fma abm movbe", "avx512f");
    expect("x86-64-v4", NULL, "fma avx512f avx512bw avx512cd avx512dq avx512vl", "avx512_bf16 amx_tile");
    expect("haswell", NULL, "avx2 fma bmi2", "avx512f");
    expect("sandybridge", NULL, "avx sse4_2", "avx2 fma");
    expect("nehalem", NULL, "sse4_2", "avx");
    expect("cooperlake", NULL, "avx512f avx512_bf16", "amx_tile");
    expect("sapphirerapids", NULL, "avx512f avx512_bf16 amx_tile amx_bf16", "");
    expect("x86-64-v3", "+gfni,-movbe", "avx2 gfni", "movbe");
}

static void other_architecture(void **state)
{
    (void)state;
    FREED_WITH(arena_free) Arena arena = {0};
    assert_string_equal(flags_of((TargetOptions){"aarch64-linux-gnu", "cortex-a72", NULL}, &arena), "");
    Target target = {.triple = "aarch64-unknown-linux-gnu"};
    assert_string_equal(target_architecture(&target, &arena), "aarch64");
}

/* Its line of /proc/cpuinfo; "" where that has another form. */
static const char *own_flags(Arena *arena)
{
    static char line[1 << 14];
    FILE *file = fopen("/proc/cpuinfo", "r");
    const char *found = "";
    while (file && !*found && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "flags", 5) == 0 || strncmp(line, "Features", 8) == 0)
            found = arena_string(arena, strchr(line, ':') + 1);
    }
    if (file) fclose(file);
    return found;
}

static void own(void **state)
{
    (void)state;
    FREED_WITH(arena_free) Arena arena = {0};
    const char *here = own_flags(&arena);
    char *rest = arena_string(&arena, flags_of((TargetOptions){0}, &arena));
    if (!*here || !*rest) skip();
    for (char *flag; (flag = strtok_r(rest, " ", &rest));)
        if (!text_has_part(here, flag, " ")) fail_msg("this machine is said to need %s, which it has not", flag);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(named), cmocka_unit_test(other_architecture),
                                       cmocka_unit_test(own)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
