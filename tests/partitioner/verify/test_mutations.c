/* Every member of plan.json is changed, one at a time, and left out, and every list is made shorter and longer: verify
 * refuses what it then reads, or the change does no harm. `harmless` says which are accepted, and why. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "partitioner/planner/replicated.h"
#include "partitioner/schedule/simulate.h"
#include "partitioner/verify/verify.h"
#include "tests/common/limits.h"
#include "tests/partitioner/random_sites.h"

/* Paths without indices, or their beginnings; after '!' only of plans that say that nothing fits, after '=' in full. */
static const struct {
    const char *path, *why;
} harmless[] = {
    {"!microbatches", "another question, which the proof answers as well"},
    {"objective", "a question: named in every sentence, and the proof holds for it"},
    {"rows.longest", "absent means as long as a line"},
    {"schedule_kind", "a name for the instructions, which are checked one by one"},
    {"schedule_forced", "gpipe is named without it, and all other schedules answer one question"},
    {"allocate", "another allocator that reached the same: its row is checked"},
    {"recompute", "a question, as well"},
    {"codecs", "a question, as well"},
    {"without", "a question, as well"},
    {"pins", "a question, as well; what the costs keep stays at home without a pin"},
    {"in_flight_limit", "a question, as well"},
    {"microbatches_gain", "what doubling the micro-batches would bring: nothing of this plan"},
    {"timed_out", "why the search ended"},
    {"certificate", "another proof of the same bound"},
    {"=replicas", "a plan that does not name its one replica has it all the same"},
    {"replicas[].plan.schedule_kind", "as of a plan of one pipeline: those of the following lines"},
    {"replicas[].plan.without", "a question"},
    {"replicas[].plan.microbatches_gain", "nothing of this plan"},
    {"replicas[].plan.timed_out", "why the search ended"},
    {"replicas[].plan.certificate", "another proof of the same bound"},
    {"=groupings", "left out: a plan of one pipeline need not say what it was compared with"},
};

typedef struct Mutator {
    json_t *root;
    const Costs *costs;
    Diagnostics diagnostics;
    const char *only; /* this member of the plan; NULL: all */
    bool infeasible;
    int tried, accepted, harmful;
} Mutator;

static bool is_harmless(const Mutator *m, const char *path)
{
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++) {
        const char *start = harmless[i].path + (m->infeasible && *harmless[i].path == '!');
        if (*start == '=' ? strcmp(path, start + 1) == 0 : strncmp(path, start, strlen(start)) == 0) return true;
    }
    return false;
}

static bool is_accepted(const Mutator *m)
{
    Plan plan;
    Verified verified;
    FREED_WITH(diagnostics_free) Diagnostics ignored = {0};
    FREED char *text = json_dumps(m->root, JSON_REAL_PRECISION(17));
    int file = memfd_create("plan.json", 0); /* tens of thousands of files take long on a disk */
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    assert_int_equal(write(file, text, strlen(text)), strlen(text));
    bool ok = plan_read_verdict(&plan, path, &ignored);
    close(file);
    if (ok) {
        ok = plan_verify(&verified, &plan, m->costs, false, &ignored);
        plan_free(&plan);
    }
    return ok;
}

static void try(Mutator *m, const char *path, const char *change)
{
    m->tried++;
    if (!is_accepted(m)) return;
    m->accepted++;
    if (is_harmless(m, path)) return;
    char *text = json_dumps(m->root, 0);
    fprintf(stderr, "accepted: %s %s in %s\n", path, change, text);
    free(text);
    m->harmful++;
}

/* Names of devices, regions and sites, and words of every kind. Only some are tried in instructions, which are many. */
static const char *const words[] = {"forward",  "backward", "send-forward", "update", "x",         "d0",
                                    "d1",       "even",     "sky",          "step",   "heuristic", "period",
                                    "zb",       "1f1b",     "gpipe",        "auto",   "never",     "searched",
                                    "optimal",  "always",   "f32",          "bf16",   "q6",        "r0",
                                    "identity", "lyon",     "gradient",     "r1",     "kyoto",     "activation"};

/* What may stand in place of a value; NULL: no more. */
static json_t *other_value(const json_t *value, int which, const char *path)
{
    int most = strncmp(path, "schedule[", 9) == 0 ? 5 : (int)(sizeof words / sizeof *words);
    json_int_t integer = json_integer_value(value);
    double real = json_real_value(value);
    switch (json_typeof(value)) {
    case JSON_STRING: return which < most ? json_string(words[which]) : NULL;
    case JSON_INTEGER:
        return which == 0   ? json_integer(integer + 1)
               : which == 1 ? json_integer(integer - 1)
               : which == 2 ? json_integer(0)
               : which == 3 ? json_integer(2 * integer + 7)
                            : NULL;
    case JSON_REAL:
        return which == 0   ? json_real(real + 1e-9)
               : which == 1 ? json_real(real > 2e-9 ? real / 2 : real)
               : which == 2 ? json_real(0)
               : which == 3 ? json_real(2 * real + 1)
                            : NULL;
    case JSON_TRUE: return which == 0 ? json_false() : NULL;
    case JSON_FALSE: return which == 0 ? json_true() : NULL;
    case JSON_NULL: return which == 0 ? json_pack("{s:b,s:f,s:f}", "fits", 1, "period_s", 1e-9, "step_s", 1e-9) : NULL;
    default: return NULL;
    }
}

static void mutate(Mutator *m, json_t *value, const char *path);

static void mutate_object(Mutator *m, json_t *object, const char *path)
{
    const char *key;
    json_t *value, *keys = json_array();
    json_object_foreach(object, key, value) json_array_append_new(keys, json_string(key));
    for (size_t k = 0; k < json_array_size(keys); k++) {
        char there[256];
        key = json_string_value(json_array_get(keys, k));
        if (!*path && m->only && strcmp(key, m->only) != 0) continue;
        value = json_incref(json_object_get(object, key));
        snprintf(there, sizeof there, "%s%s%s", path, *path ? "." : "", key);
        json_t *other;
        for (int which = 0; (other = other_value(value, which, there)); which++) {
            json_object_set_new(object, key, other);
            if (!json_equal(other, value)) try(m, there, "changed");
        }
        json_object_del(object, key);
        bool empty = json_is_null(value) || (json_is_array(value) && json_array_size(value) == 0);
        if (!empty) try(m, there, "left out");
        json_object_set(object, key, value);
        mutate(m, value, there);
        json_decref(value);
    }
    json_decref(keys);
}

static void mutate_array(Mutator *m, json_t *array, const char *path)
{
    char there[256];
    snprintf(there, sizeof there, "%s[]", path);
    for (size_t i = 0; i < json_array_size(array); i++) {
        json_t *value = json_incref(json_array_get(array, i)), *other;
        for (int which = 0; (other = other_value(value, which, there)); which++) {
            json_array_set_new(array, i, other);
            if (!json_equal(other, value)) try(m, there, "changed");
        }
        json_array_remove(array, i);
        try(m, there, "left out");
        json_array_insert(array, i, value);
        json_array_insert_new(array, i, json_deep_copy(value));
        try(m, there, "there twice");
        json_array_remove(array, i);
        mutate(m, value, there);
        json_decref(value);
    }
}

static void mutate(Mutator *m, json_t *value, const char *path)
{
    if (json_is_object(value)) mutate_object(m, value, path);
    if (json_is_array(value)) mutate_array(m, value, path);
}

/* Whether there was a plan, or a proof that there is none. */
static bool mutate_plan(const Costs *costs, const PlanRequest *request, const char *only, int *tried, int *accepted)
{
    Plan plan = {0};
    Mutator m = {.costs = costs, .only = only};
    bool ok = plan_make_replicas(&plan, costs, request, &m.diagnostics) || plan.infeasible;
    if (ok) {
        Buffer text = {0};
        plan_print(&plan, &text);
        m.root = json_loads(buffer_text(&text), 0, NULL);
        if (!is_accepted(&m)) {
            Verified verified;
            plan_verify(&verified, &plan, costs, false, &m.diagnostics);
            diagnostics_print(&m.diagnostics, stderr);
            fail_msg("an honest plan is refused: %s", buffer_text(&text));
        }
        m.infeasible = plan.infeasible;
        mutate(&m, m.root, "");
        assert_int_equal(m.harmful, 0);
        json_decref(m.root);
        buffer_free(&text);
        *tried += m.tried;
        *accepted += m.accepted;
    }
    plan_free(&plan);
    diagnostics_free(&m.diagnostics);
    return ok;
}

enum {
    PLANS = ADDRESS_SANITIZER ? 2 : 15,
    KIND_STEP = ADDRESS_SANITIZER ? 3 : 1, /* of plans of several pipelines */
    SEED_STEP = ADDRESS_SANITIZER ? 9 : 1  /* of plans with codecs */
};

static void every_member_counts(void **state)
{
    (void)state;
    int plans = 0, tried = 0, accepted = 0;
    for (int seed = 0; plans < PLANS; seed++) {
        Costs costs;
        PlanRequest request = PLAN_REQUEST_DEFAULT;
        request.replicas = 1;
        const char *without[1];
        PlanPin pin;
        random_costs(&costs, seed % VARIANTS, (uint64_t)seed + 900000);
        if (seed % 3 == 0) random_sites(&costs);
        if (seed % 5 == 0) random_samples(&costs);
        BatchTrial tried_sizes[] = {{8, 2000000}, {4, 1500000}, {1, 0}};
        if (seed % 4 == 3) costs.batch = (BatchChoice){8, 4, tried_sizes, 3};
        if (seed % 4 == 1 && seed % 3) costs.keep_inputs = costs.keep_labels = costs.devices[0].name;
        if (seed % 4 == 2 && seed % 3) costs.keep_inputs = costs.devices[0].name;
        request.objective = (PlanObjective)(seed / 2 % 2);
        request.schedule = (PlanSchedule)(seed % (PLAN_AUTO + 1));
        request.recompute = (PlanRecompute)(seed % PLAN_RECOMPUTE_COUNT);
        request.allocate = seed % 7 == 6 ? PLAN_HEURISTIC : PLAN_OPTIMAL;
        if (seed % 6 == 3) request.time_limit_s = 1e9;
        if (seed % 6 == 4) assert_true(codecs_parse("auto:q6", &request.codecs));
        if (seed % 8 == 7 && costs.device_count > 1) {
            without[0] = costs.devices[costs.device_count - 1].name;
            request.without = without;
            request.without_count = 1;
        }
        if (seed % 9 == 5) {
            pin = (PlanPin){0, 0, costs.devices[0].name};
            request.pins = &pin;
            request.pin_count = 1;
        }
        plans += mutate_plan(&costs, &request, NULL, &tried, &accepted);
        costs_free(&costs);
    }
    printf("%d plans, %d changes tried, %d accepted\n", plans, tried, accepted);
    assert_true(tried > 100 * plans && accepted < tried / 10);
}

/* Plans of several pipelines, and of one with the groupings that it was compared with. */
static void every_member_of_replicas_counts(void **state)
{
    (void)state;
    int tried = 0, accepted = 0;
    for (int kind = 0; kind < 4; kind += KIND_STEP) {
        Costs costs;
        PlanRequest request = PLAN_REQUEST_DEFAULT;
        random_costs_sized(&costs, WITH_LINKS, 77, 6, 6);
        costs.layer_count = 3;
        costs.microbatches = 4;
        costs.device_count = 3;
        costs.devices = arena_new_array(&costs.arena, DeviceCost, 3);
        for (int d = 0; d < 3; d++)
            costs.devices[d] = (DeviceCost){arena_format(&costs.arena, "d%d", d), 1 + d, COSTS_NO_LIMIT, .region = 0};
        for (int l = 0; l < 3; l++) costs.layers[l].gradient_bytes = kind == 2 ? 100000 : 1;
        if (kind < 2) costs.norm_bytes = 8;
        BatchTrial tried_sizes[] = {{8, 2000000}, {4, 1500000}};
        if (kind == 0) costs.batch = (BatchChoice){8, 4, tried_sizes, 2};
        request.replicas = kind == 0 || kind == 3 ? 2 : PLAN_REPLICAS_AUTO;
        if (kind == 3) random_samples(&costs);
        if (kind == 3) costs.batch = (BatchChoice){8, 3, NULL, 0}; /* packed, so that 3 of unequal size are no fault */
        costs.microbatch_rows = 2;
        request.rows = 8;
        assert_true(mutate_plan(&costs, &request, NULL, &tried, &accepted));
        costs_free(&costs);
    }
    printf("%d changes of plans with groupings tried, %d accepted\n", tried, accepted);
}

/* A plan whose sums are not in the order from the last layer to the first. */
static void the_order_of_sums_counts(void **state)
{
    (void)state;
    Costs costs;
    PlanRequest request = PLAN_REQUEST_DEFAULT;
    int tried = 0, accepted = 0;
    random_costs_sized(&costs, WITH_LINKS | WITH_OWN_TIMES, 41, 4, 5);
    costs.microbatches = 4;
    for (int l = 0; l < costs.layer_count; l++) costs.layers[l].gradient_bytes = 1 + draw(100);
    costs.microbatch_rows = 2;
    request.rows = 8;
    request.replicas = 2;
    assert_true(mutate_plan(&costs, &request, "sum_order", &tried, &accepted));
    assert_true(tried > 3 && accepted == 0);
    costs_free(&costs);
}

/* Where links may use codecs each micro-batch in flight takes memory, also of layers that keep nothing for backward. */
static void honest_plans_with_codecs_verify(void **state)
{
    (void)state;
    for (int seed = 0; seed < 200; seed += SEED_STEP) {
        Costs costs;
        Plan plan = {0};
        Verified verified;
        Diagnostics diagnostics = {0};
        PlanRequest request = PLAN_REQUEST_DEFAULT;
        request.schedule = PLAN_1F1B;
        request.objective = (PlanObjective)(seed % 2);
        assert_true(codecs_parse(seed & 2 ? "auto:q4" : "q8", &request.codecs));
        random_costs(&costs, WITH_MEMORY | WITH_LINKS, (uint64_t)seed + 400000);
        for (int l = 0; l < costs.layer_count; l++) costs.layers[l].resident = false;
        for (int d = 0; d < costs.device_count; d++) costs.devices[d].memory_bytes += 3000;
        if (plan_make(&plan, &costs, &request, &diagnostics) || plan.infeasible) {
            diagnostics_free(&diagnostics);
            if (!plan_verify(&verified, &plan, &costs, false, &diagnostics)) {
                diagnostics_print(&diagnostics, stderr);
                fail_msg("seed %d", seed);
            }
        }
        plan_free(&plan);
        costs_free(&costs);
        diagnostics_free(&diagnostics);
    }
}

/* Whether verify accepts the plan if instruction `from` of a list stands at `to`, and its times are those of that
 * order. */
static bool accepts_moved(Plan *plan, const Costs *costs, PlanInstruction *list, int from, int to)
{
    FREED_WITH(diagnostics_free) Diagnostics ignored = {0};
    Verified verified;
    PlanInstruction moved = list[from];
    int64_t step = plan->simulated_step_ns;
    double bubble = plan->bubble;
    int low = from < to ? from : to, high = from < to ? to : from;
    size_t bytes = (size_t)(high - low) * sizeof *list;
    memmove(list + low + (from > to), list + low + (from < to), bytes);
    list[to] = moved;
    bool ok = plan_simulate_samples(plan, &plan->simulated_step_ns, &plan->bubble, &ignored) &&
              plan_verify(&verified, plan, costs, true, &ignored);
    memmove(list + low + (from < to), list + low + (from > to), bytes);
    list[from] = moved;
    plan->simulated_step_ns = step;
    plan->bubble = bubble;
    return ok;
}

/* A message is received into a slot only once the micro-batch before it has left, and sent before the next one is
 * there. */
static void slots_hold_one_micro_batch(void **state)
{
    (void)state;
    int received = 0, sent = 0;
    for (int seed = 0; seed < 20; seed++) {
        Costs costs;
        Plan plan = {0};
        PlanRequest request = PLAN_REQUEST_DEFAULT;
        random_costs(&costs, WITH_STASH, (uint64_t)seed + 120000);
        request.schedule = seed % 2 ? PLAN_1F1B : PLAN_ZB;
        assert_true(plan_make(&plan, &costs, &request, &(Diagnostics){0}));
        int last = plan.rank_count - 1, count = plan.ranks[last].instruction_count;
        PlanInstruction *list = plan.ranks[last].instructions;
        for (int i = 0, before = -1; i < count && last > 0; i++) { /* of the last stage */
            if (list[i].op == SKY_FORWARD) before = i;
            for (int k = i + 1; k < count && before == i; k++) {
                if (list[k].op != SKY_RECEIVE_FORWARD || list[k].slot != list[i].slot) continue;
                assert_false(accepts_moved(&plan, &costs, list, k, i));
                received++;
                break;
            }
            if (list[i].op != SKY_SEND_BACKWARD) continue;
            for (int k = i + 1; k < count; k++) {
                if (list[k].op != SKY_BACKWARD || list[k].slot != list[i].slot) continue;
                assert_false(accepts_moved(&plan, &costs, list, i, k));
                sent++;
                break;
            }
        }
        plan_free(&plan);
        costs_free(&costs);
    }
    assert_true(received > 10 && sent > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_hold_one_micro_batch),      cmocka_unit_test(every_member_counts),
        cmocka_unit_test(every_member_of_replicas_counts), cmocka_unit_test(the_order_of_sums_counts),
        cmocka_unit_test(honest_plans_with_codecs_verify),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
