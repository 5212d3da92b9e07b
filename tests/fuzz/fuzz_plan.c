/* costs.json, a zero byte, and plan.json: the target reads both and writes them again, verifies the plan against the
 * costs and makes a new plan from them. */
#include <stdlib.h>
#include <string.h>

#include "partitioner/planner/planner.h"
#include "partitioner/report/report.h"
#include "partitioner/verify/verify.h"
#include "tests/fuzz/fuzz.h"

static void print_costs(const Costs *costs)
{
    Buffer text = {0};
    costs_print(costs, &text);
    buffer_free(&text);
}

/* What is printed must be read again as the same. */
static void print_plan(const Plan *plan)
{
    Buffer first = {0}, second = {0};
    Diagnostics diagnostics = {0};
    Plan again;
    plan_print(plan, &first);
    fuzz_file("again.json", (const uint8_t *)first.bytes, first.size);
    if (!plan_read_verdict(&again, "again.json", &diagnostics)) {
        diagnostics_print(&diagnostics, stderr);
        bug("a printed plan is not read");
    }
    plan_print(&again, &second);
    if (strcmp(buffer_text(&first), buffer_text(&second)) != 0) bug("a plan changed by being printed and read");
    plan_free(&again);
    buffer_free(&first);
    buffer_free(&second);
}

/* The hash of the costs would keep every mutation of them from being verified. */
static bool verify(Plan *plan, const Costs *costs, Diagnostics *diagnostics)
{
    char hash[33];
    plan->costs_hash = arena_string(&plan->arena, hash_format(costs_hash(costs), hash));
    plan->model_hash = arena_string(&plan->arena, costs->model_hash);
    Verified verified;
    return plan_verify(&verified, plan, costs, false, diagnostics);
}

static bool make_plan(const Costs *costs, PlanAllocator allocator, Diagnostics *diagnostics)
{
    PlanRequest request = PLAN_REQUEST_DEFAULT;
    request.allocate = allocator;
    request.time_limit_s = 0.01;
    if (costs->layer_count > 64 || costs->device_count > 64 || costs->microbatches > 64) return true;
    Plan plan = {0};
    bool ok = plan_make(&plan, costs, &request, diagnostics);
    Verified verified;
    if (ok || plan.infeasible) {
        if (!plan_verify(&verified, &plan, costs, false, diagnostics)) {
            diagnostics_print(diagnostics, stderr);
            bug("a plan just made is not as it says");
        }
        print_plan(&plan);
    }
    plan_free(&plan);
    return ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_begin();
    Diagnostics diagnostics = {0};
    FuzzPart part = fuzz_part(&data, &size);
    fuzz_file("costs.json", part.data, part.size);
    fuzz_file("plan.json", data, size);
    Costs costs;
    Plan plan;
    bool read = costs_read(&costs, "costs.json", &diagnostics), ok = read;
    if (read) print_costs(&costs);
    if (plan_read_verdict(&plan, "plan.json", &diagnostics)) {
        print_plan(&plan);
        if (read) ok = verify(&plan, &costs, &diagnostics) && ok;
        plan_free(&plan);
    } else {
        ok = false;
    }
    if (read) {
        ok = make_plan(&costs, (PlanAllocator)(size % PLAN_ALLOCATOR_COUNT), &diagnostics) && ok;
        costs_free(&costs);
    }
    fuzz_end(ok, &diagnostics);
    return 0;
}
