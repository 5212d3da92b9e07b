/* A run's trace, compared with a plan of two stages. */
#include <string.h>

#include "driver/commands/commands.h"
#include "partitioner/planner/planner.h"
#include "tests/fuzz/fuzz.h"

static const char costs_text[] =
    "{\"format\":\"skycc.costs/1\",\"name\":\"two\",\"microbatches\":2,\"layers\":["
    "{\"name\":\"a\",\"forward_s\":1,\"backward_s\":2,\"update_s\":1,\"memory_bytes\":1,\"output_bytes\":8},"
    "{\"name\":\"b\",\"forward_s\":1,\"backward_s\":2,\"update_s\":1,\"memory_bytes\":1,\"output_bytes\":8}],"
    "\"devices\":[{\"name\":\"x\",\"slowdown\":1,\"memory_bytes\":9,\"region\":\"r\"},"
    "{\"name\":\"y\",\"slowdown\":1,\"memory_bytes\":9,\"region\":\"r\"}],"
    "\"links\":{\"regions\":[\"r\"],\"latency_s\":[[0]],\"bandwidth_Bps\":[[8]]}}";

/* The plan as a file; made once. */
static const Buffer *plan_file(void)
{
    static Buffer text;
    if (text.size) return &text;
    Diagnostics diagnostics = {0};
    Costs costs;
    Plan plan = {0};
    PlanRequest request = PLAN_REQUEST_DEFAULT;
    request.allocate = PLAN_EVEN;
    fuzz_file("costs.json", (const uint8_t *)costs_text, strlen(costs_text));
    if (!costs_read(&costs, "costs.json", &diagnostics) || !plan_make(&plan, &costs, &request, &diagnostics)) {
        diagnostics_print(&diagnostics, stderr);
        bug("no plan");
    }
    plan_print(&plan, &text);
    plan_free(&plan);
    costs_free(&costs);
    return &text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const Buffer *plan = plan_file();
    fuzz_begin();
    Diagnostics diagnostics = {0};
    fuzz_file("plan.json", (const uint8_t *)plan->bytes, plan->size);
    fuzz_file("trace.json", data, size);
    const Options options = {.plans = {"plan.json"}, .trace = "trace.json"};
    fuzz_end(explain_command(&options, &diagnostics), &diagnostics);
    return 0;
}
