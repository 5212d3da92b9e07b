/* Where nothing fits, the message names what would be enough: is it, and would less do? Against every plan of small
 * instances, with a keeper, pins and devices left out. `test_remedies N` tries N instances. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "partitioner/planner/planner.h"
#include "tests/common/limits.h"
#include "tests/partitioner/brute_costs.h"
#include "tests/partitioner/random_costs.h"

enum { MOST_PINS = 4, MOST_DEVICES = 12, MOST_COPIES = 3 };

static int instances = ADDRESS_SANITIZER ? 500 : 2500;

/* ---- brute force: is there any plan? ---- */

typedef struct Brute {
    Costs costs; /* its devices are the array below */
    DeviceCost devices[MOST_DEVICES];
    const PlanRequest *request;
    PlanPin pins[MOST_PINS]; /* the request's, and what keep: implies */
    int pin_count, keeper;   /* -1: none */
    bool used[MOST_DEVICES];
} Brute;

static Brute brute_create(const Costs *costs, const PlanRequest *request)
{
    Brute b = {.costs = *costs, .request = request, .pin_count = request->pin_count, .keeper = -1};
    for (int d = 0; d < costs->device_count; d++) {
        b.devices[d] = costs->devices[d];
        for (int i = 0; i < request->without_count; i++)
            b.used[d] |= strcmp(costs->devices[d].name, request->without[i]) == 0;
    }
    for (int i = 0; i < request->pin_count; i++) b.pins[i] = request->pins[i];
    if (costs->keep_inputs) b.pins[b.pin_count++] = (PlanPin){0, 0, costs->keep_inputs};
    if (costs->keep_labels)
        b.pins[b.pin_count++] = (PlanPin){costs->layer_count - 1, costs->layer_count - 1, costs->keep_labels};
    if (costs_keeper(costs)) b.keeper = costs_find_device(costs, costs_keeper(costs));
    /* The planner takes as many as fit, and so one if need be. */
    if (request->microbatches == PLAN_MICROBATCHES_AUTO) b.costs.microbatches = 1;
    return b;
}

static bool may_have(const Brute *b, int device, int start, int end)
{
    for (int i = 0; i < b->pin_count; i++)
        if (b->pins[i].first_layer < end && b->pins[i].last_layer >= start &&
            strcmp(b->pins[i].device, b->devices[device].name) != 0)
            return false;
    return true;
}

/* The least that the wishes allow; a searched order manages with one micro-batch in flight. */
static int64_t least_bytes(const Brute *b, int start, int end, int to_end)
{
    const PlanRequest *request = b->request;
    PlanSchedule schedule = request->schedule == PLAN_GPIPE ? PLAN_GPIPE : PLAN_1F1B;
    int flights = request->schedule == PLAN_AUTO ? 1 : to_end;
    int64_t plain = brute_stage_bytes(&b->costs, schedule, start, end, flights, false),
            again = brute_stage_bytes(&b->costs, schedule, start, end, flights, true);
    if (request->recompute == PLAN_RECOMPUTE_NEVER) return plain;
    return request->recompute == PLAN_RECOMPUTE_ALWAYS || again < plain ? again : plain;
}

/* Whether the layers before `end` fit on devices, with `later` stages after them. */
static bool fits(Brute *b, int end, int later)
{
    if (end == 0) return true;
    for (int start = 0; start < end; start++) {
        int64_t bytes = least_bytes(b, start, end, later + 1);
        for (int d = 0; d < b->costs.device_count; d++) {
            bool keeps = d == b->keeper, again = keeps && start == 0 && later > 1;
            if (b->keeper >= 0 && keeps != (start == 0 || later == 0)) continue;
            if ((b->used[d] && !again) || bytes > b->devices[d].memory_bytes || !may_have(b, d, start, end)) continue;
            bool before = b->used[d];
            b->used[d] = true;
            b->devices[d].memory_bytes -= bytes;
            bool found = fits(b, start, later + 1);
            b->devices[d].memory_bytes += bytes;
            b->used[d] = before;
            if (found) return true;
        }
    }
    return false;
}

static bool fits_with(const Costs *costs, const PlanRequest *request, int device, int64_t extra, int copies)
{
    Brute b = brute_create(costs, request);
    b.devices[device].memory_bytes += extra;
    for (int i = 0; i < copies; i++) {
        b.devices[b.costs.device_count] = costs->devices[device];
        b.devices[b.costs.device_count++].name = "another";
    }
    return fits(&b, costs->layer_count, 0);
}

static bool is_left_out(const PlanRequest *request, const char *name)
{
    for (int i = 0; i < request->without_count; i++)
        if (strcmp(request->without[i], name) == 0) return true;
    return false;
}

static bool fits_with_any(const Costs *costs, const PlanRequest *request, int64_t extra, int copies)
{
    for (int d = 0; d < costs->device_count; d++)
        if (!is_left_out(request, costs->devices[d].name) && fits_with(costs, request, d, extra, copies)) return true;
    return false;
}

/* ---- what the message says ---- */

typedef struct Remedies {
    int memory_device, copied_device; /* -1: none is named */
    long long extra, mebibytes;
    int copies;
} Remedies;

static Remedies parse(const char *hint)
{
    Remedies r = {.memory_device = -1, .copied_device = -1};
    assert_non_null(hint);
    const char *like = strstr(hint, "like 'd"), *devices = like ? strstr(hint, " more device") : NULL;
    if (hint[0] == '+')
        assert_int_equal(
            sscanf(hint, "+%lld MiB on 'd%d' would be enough (%lld bytes)", &r.mebibytes, &r.memory_device, &r.extra),
            3);
    if (!devices) return r;
    while (devices > hint && devices[-1] >= '0' && devices[-1] <= '9') devices--;
    assert_int_equal(sscanf(devices, "%d more device", &r.copies), 1);
    assert_int_equal(sscanf(like, "like 'd%d'", &r.copied_device), 1);
    return r;
}

/* Does the planner find a plan once the cluster is changed as the message says? */
static bool replans(const Costs *costs, PlanRequest request, int device, int64_t extra, int copies)
{
    enum { ROOM = MOST_DEVICES + 64 };
    Plan plan = {0};
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    Costs changed = *costs;
    DeviceCost devices[ROOM];
    char names[ROOM][24];
    for (int d = 0; d < costs->device_count; d++) devices[d] = costs->devices[d];
    devices[device].memory_bytes += extra;
    for (int i = 0; i < copies; i++) {
        snprintf(names[i], sizeof names[i], "another%d", i);
        devices[changed.device_count] = costs->devices[device];
        devices[changed.device_count++].name = names[i];
    }
    changed.devices = devices;
    bool found = plan_make(&plan, &changed, &request, &diagnostics);
    plan_free(&plan);
    return found;
}

/* NULL, or what is wrong. */
static const char *judge(const Costs *costs, const PlanRequest *request, const Remedies *r)
{
    static const int64_t PLENTY = 1000000;
    if (fits_with_any(costs, request, 0, 0)) return "something fits as it is";
    if (r->memory_device >= 0) {
        if (r->extra > r->mebibytes << 20) return "rounded down";
        if (!replans(costs, *request, r->memory_device, r->extra, 0)) return "so much memory is not enough";
        if (fits_with_any(costs, request, r->extra - 1, 0)) return "less memory would be enough";
    } else if (fits_with_any(costs, request, PLENTY, 0)) {
        return "memory would help";
    }
    if (r->copied_device >= 0) {
        if (!replans(costs, *request, r->copied_device, 0, r->copies)) return "so many devices are not enough";
        if (r->copies <= MOST_COPIES + 1 && fits_with_any(costs, request, 0, r->copies - 1))
            return "fewer devices would be enough";
    } else if (fits_with_any(costs, request, 0, MOST_COPIES)) {
        return "devices would help";
    }
    return NULL;
}

/* ---- random questions ---- */

typedef struct Case {
    Costs costs;
    PlanRequest request;
    PlanPin pins[2];
    const char *without[1];
} Case;

static void random_pins(Case *c)
{
    const Costs *costs = &c->costs;
    PlanPin *pins = c->pins;
    for (int i = draw(3); i > 0 && c->request.pin_count < 2; i--) {
        int first = draw(costs->layer_count);
        PlanPin pin = {first, first + draw(costs->layer_count - first), costs->devices[draw(costs->device_count)].name};
        bool alone = !c->request.pin_count || pin.last_layer < pins[0].first_layer || pins[0].last_layer < first;
        bool first_free = first > 0 || !costs->keep_inputs || strcmp(costs->keep_inputs, pin.device) == 0;
        bool last_free = pin.last_layer < costs->layer_count - 1 || !costs->keep_labels ||
                         strcmp(costs->keep_labels, pin.device) == 0;
        if (alone && first_free && last_free) pins[c->request.pin_count++] = pin;
    }
    c->request.pins = pins;
}

static void random_without(Case *c)
{
    const char *name = c->costs.devices[draw(c->costs.device_count)].name;
    bool needed = (c->costs.keep_inputs && strcmp(name, c->costs.keep_inputs) == 0) ||
                  (c->costs.keep_labels && strcmp(name, c->costs.keep_labels) == 0);
    for (int i = 0; i < c->request.pin_count; i++) needed |= strcmp(name, c->pins[i].device) == 0;
    if (needed || c->costs.device_count < 2 || draw(3)) return;
    c->without[0] = name;
    c->request.without = c->without;
    c->request.without_count = 1;
}

static void random_case(Case *c, int seed)
{
    static const PlanSchedule schedules[] = {PLAN_1F1B, PLAN_GPIPE, PLAN_AUTO};
    static const PlanRecompute ways[] = {PLAN_RECOMPUTE_NEVER, PLAN_RECOMPUTE_AUTO, PLAN_RECOMPUTE_ALWAYS};
    *c = (Case){.request = PLAN_REQUEST_DEFAULT};
    Costs *costs = &c->costs;
    random_costs_sized(costs, seed % VARIANTS | WITH_MEMORY, 9000000 + (uint64_t)seed, 6, 4);
    for (int l = 0; l < costs->layer_count; l++) costs->layers[l].kept_bytes = costs->layers[l].resident ? 0 : draw(8);
    const char *keep = costs->devices[draw(costs->device_count)].name;
    switch (draw(4)) {
    case 0: break;
    case 1: costs->keep_inputs = keep; break;
    default: costs->keep_inputs = costs->keep_labels = keep; break;
    }
    c->request.schedule = schedules[draw(3)];
    c->request.recompute = ways[draw(3)];
    c->request.objective = draw(2) ? PLAN_OBJECTIVE_STEP : PLAN_OBJECTIVE_PERIOD;
    c->request.microbatches = draw(8) ? 0 : PLAN_MICROBATCHES_AUTO;
    random_pins(c);
    random_without(c);
}

static void remedies_are_enough_and_the_least(void **state)
{
    int misfits = 0, wrong = 0, kept = 0, by_memory = 0, by_devices = 0;
    (void)state;
    for (int seed = 0; seed < instances; seed++) {
        Case c;
        Plan plan = {0};
        FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
        random_case(&c, seed);
        if (!plan_make(&plan, &c.costs, &c.request, &diagnostics)) {
            assert_int_equal(diagnostics.exit_code, EXIT_NO_PLAN);
            Remedies remedies = parse(diagnostics.first->hint);
            const char *what = judge(&c.costs, &c.request, &remedies);
            misfits++;
            kept += costs_keeper(&c.costs) != NULL;
            by_memory += remedies.memory_device >= 0;
            by_devices += remedies.copied_device >= 0;
            wrong += what != NULL;
            if (what) print_message("seed %d: %s: %s\n", seed, what, diagnostics.first->hint);
        } else if (!fits_with(&c.costs, &c.request, 0, 0, 0)) {
            fail_msg("seed %d: planned, but nothing fits", seed);
        }
        plan_free(&plan);
        costs_free(&c.costs);
    }
    print_message("%d of %d do not fit, %d around a keeper; %d remedies by memory, %d by devices; %d wrong\n", misfits,
                  instances, kept, by_memory, by_devices, wrong);
    assert_int_equal(wrong, 0);
    assert_true(misfits > instances / 8 && kept > misfits / 4 && by_memory > misfits / 2 && by_devices > misfits / 8);
}

/* Three equal devices, one layer on each. With recomputation the middle one holds more than all layers do together:
 * buffers at two boundaries, and both boundaries again for every micro-batch. */
static void boundaries_of_every_micro_batch_count(void **state)
{
    (void)state;
    LayerCost layers[] = {{.name = "a", .memory_bytes = 10, .output_bytes = 20, .resident = true},
                          {.name = "b", .state_bytes = 10, .stash_bytes = 15, .output_bytes = 10},
                          {.name = "c", .state_bytes = 10, .stash_bytes = 15, .output_bytes = 20}};
    DeviceCost devices[] = {{.name = "d0", .slowdown = 1, .region = -1},
                            {.name = "d1", .slowdown = 1, .region = -1},
                            {.name = "d2", .slowdown = 1, .region = -1}};
    PlanPin pins[] = {{0, 0, "d0"}, {1, 1, "d1"}, {2, 2, "d2"}};
    Costs costs = {
        .name = "three", .layers = layers, .layer_count = 3, .devices = devices, .device_count = 3, .microbatches = 2};
    PlanRequest request = PLAN_REQUEST_DEFAULT;
    request.schedule = PLAN_GPIPE;
    request.recompute = PLAN_RECOMPUTE_ALWAYS;
    request.pins = pins;
    request.pin_count = 3;
    int64_t needed = brute_stage_bytes(&costs, PLAN_GPIPE, 1, 2, 2, true);
    for (int missing = 0; missing < 3; missing++) {
        Plan plan = {0};
        FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
        for (int d = 0; d < 3; d++) devices[d].memory_bytes = needed - missing;
        bool found = plan_make(&plan, &costs, &request, &diagnostics);
        assert_int_equal(found, missing == 0);
        if (!found) {
            Remedies remedies = parse(diagnostics.first->hint);
            assert_int_equal(remedies.memory_device, 1);
            assert_int_equal(remedies.extra, missing);
        }
        plan_free(&plan);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(remedies_are_enough_and_the_least),
                                       cmocka_unit_test(boundaries_of_every_micro_batch_count)};
    if (argc > 1) instances = atoi(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
