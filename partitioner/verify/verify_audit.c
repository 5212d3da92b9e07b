#include "partitioner/verify/verify_audit.h"

#include <stdarg.h>
#include <string.h>

#include "base/parts.h"
#include "partitioner/site_crossings.h"

typedef struct Audited {
    const Plan *plan;
    const Costs *costs;
    const WireAudit *audit;
    const char *path;
    Diagnostics *diagnostics;
} Audited;

static bool refuse_audit(const Audited *x, const char *object, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static bool refuse_audit(const Audited *x, const char *object, const char *format, ...)
{
    FREED_WITH(arena_free) Arena arena = {0};
    va_list arguments;
    va_start(arguments, format);
    const char *reason = arena_format_va(&arena, format, arguments);
    va_end(arguments);
    diagnostics_error(x->diagnostics, EXIT_BAD_INPUT, (Place){.file = x->path, .object = object}, NULL, "%s", reason);
    return false;
}

/* ---- Of the whole ---- */

static bool check_plan(const Audited *x)
{
    FREED_WITH(buffer_free) Buffer text = {0};
    char hash[33];
    plan_print(x->plan, &text);
    hash_format(hash_bytes(text.bytes, text.size), hash);
    return strcmp(hash, x->audit->plan) == 0 ||
           input_error(x->diagnostics, x->path,
                       "compare it with the plan.json in the directory that holds the folders of its sites",
                       "is the audit of another plan");
}

/* Steps have as many micro-batches as the plan says; with packed sequences at most. */
static bool check_steps(const Audited *x)
{
    const WireAudit *audit = x->audit;
    int64_t each = x->plan->microbatches;
    const struct {
        const char *what;
        int64_t count, microbatches;
    } both[] = {{"steps", audit->steps, audit->microbatches},
                {"evaluated_batches", audit->evaluated_batches, audit->evaluated_microbatches}};
    for (size_t i = 0; i < sizeof both / sizeof *both; i++) {
        bool packed = x->plan->rows.microbatch_kinds > 0;
        __int128 most = (__int128)both[i].count * each;
        if (both[i].microbatches > most || (!packed && both[i].microbatches < most))
            return refuse_audit(
                x, both[i].what, "%lld of them have %lld micro-batches, but the plan says %s%lld of each",
                (long long)both[i].count, (long long)both[i].microbatches, packed ? "at most " : "", (long long)each);
    }
    return audit->repeated_steps <= audit->steps || refuse_audit(x, "repeated_steps", "are more than there were steps");
}

/* ---- Tensors ---- */

/* "'tensor' (activation, stage 0 to 1, paris to oslo)" */
static const char *describe(const WireCrossing *crossing, Arena *arena)
{
    const char *stages = crossing->from_stage >= 0 && crossing->to_stage >= 0
                             ? arena_format(arena, ", stage %d to %d", crossing->from_stage, crossing->to_stage)
                             : "";
    return arena_format(arena, "'%s' (%s%s, %s to %s)", crossing->tensor, crossing->kind, stages, crossing->from_site,
                        crossing->to_site);
}

static bool is_of(const PlanSiteCrossing *planned, const WireCrossing *crossing)
{
    return strcmp(planned->tensor.name, crossing->tensor) == 0 &&
           strcmp(site_crossing_kind_name(planned->kind), crossing->kind) == 0 &&
           planned->from_stage == crossing->from_stage && planned->to_stage == crossing->to_stage &&
           strcmp(planned->from_site, crossing->from_site) == 0 && strcmp(planned->to_site, crossing->to_site) == 0;
}

static WireCrossing crossing_of(const PlanSiteCrossing *planned)
{
    return (WireCrossing){.what = WIRE_CLASS_TENSOR,
                          .tensor = planned->tensor.name,
                          .kind = site_crossing_kind_name(planned->kind),
                          .from_stage = planned->from_stage,
                          .to_stage = planned->to_stage,
                          .from_site = planned->from_site,
                          .to_site = planned->to_site};
}

static const PlanSiteCrossing *find_planned(const Audited *x, const WireCrossing *crossing)
{
    for (int i = 0; i < x->plan->site_crossing_count; i++)
        if (is_of(&x->plan->site_crossings[i], crossing)) return &x->plan->site_crossings[i];
    return NULL;
}

/* The plan may list a tensor twice, between the same stages under the same name: they count together. */
static int64_t planned_per_step(const Audited *x, const WireCrossing *crossing)
{
    int64_t count = 0;
    for (int i = 0; i < x->plan->site_crossing_count; i++)
        if (is_of(&x->plan->site_crossings[i], crossing)) count += x->plan->site_crossings[i].per_step;
    return count;
}

/* How often the steps and the evaluated batches of the audit need it. */
static __int128 needed(const Audited *x, const PlanSiteCrossing *planned, int64_t per_step)
{
    const WireAudit *audit = x->audit;
    __int128 uses = x->plan->microbatches ? per_step / x->plan->microbatches : 0; /* per micro-batch */
    switch (planned->kind) {
    case PLAN_CROSSING_ACTIVATION: return uses * ((__int128)audit->microbatches + audit->evaluated_microbatches);
    case PLAN_CROSSING_GRADIENT: return uses * audit->microbatches;
    case PLAN_CROSSING_SHARED: return (__int128)per_step * audit->steps;
    default: return 0;
    }
}

static bool check_count(const Audited *x, const WireCrossing *crossing, const PlanSiteCrossing *planned)
{
    const WireAudit *audit = x->audit;
    FREED_WITH(arena_free) Arena arena = {0};
    int64_t per_step = planned_per_step(x, crossing);
    __int128 expected = needed(x, planned, per_step);
    bool is_evaluated = planned->kind == PLAN_CROSSING_ACTIVATION && audit->evaluated_batches > 0;
    int64_t steps = AUDIT_LOOSE_STEPS + (is_evaluated ? audit->longest_evaluation : 0);
    __int128 loose = (__int128)steps * per_step * (audit->broken_off + audit->cut_short + audit->running);
    const char *object = describe(crossing, &arena);
    bool ok = true;
    if (crossing->messages > expected + loose || crossing->messages < expected - loose)
        ok = refuse_audit(x, object, "crossed %lld times, %s often than the %lld times that %lld steps%s need%s",
                          (long long)crossing->messages, crossing->messages > expected ? "more" : "less",
                          (long long)expected, (long long)audit->steps,
                          is_evaluated
                              ? arena_format(&arena, " and %lld evaluated batches", (long long)audit->evaluated_batches)
                              : "",
                          loose ? ", even with those that were broken off" : "");
    return ok;
}

/* The fewest bytes that a message of the tensor may have: with packed sequences the last micro-batch of a step may be
 * shorter than the others. */
static int64_t least_bytes(const Audited *x, const PlanSiteCrossing *planned)
{
    const RowSamples *rows = &x->plan->rows;
    bool crosses = planned->kind == PLAN_CROSSING_ACTIVATION || planned->kind == PLAN_CROSSING_GRADIENT;
    bool varies = rows->lines_computed && crosses && planned->wire_bytes % rows->packing.lines == 0;
    return varies ? planned->wire_bytes / rows->packing.lines : planned->wire_bytes;
}

static bool check_bytes(const Audited *x, const WireCrossing *crossing, const PlanSiteCrossing *planned)
{
    FREED_WITH(arena_free) Arena arena = {0};
    int64_t each = planned->wire_bytes, line = least_bytes(x, planned), messages = crossing->messages;
    bool whole =
        line == each || (crossing->least % line == 0 && crossing->most % line == 0 && crossing->bytes % line == 0);
    bool sizes = whole && crossing->least >= line && crossing->most <= each;
    bool ok = !messages || (sizes && (__int128)crossing->least * messages <= crossing->bytes &&
                            crossing->bytes <= (__int128)crossing->most * messages);
    if (!ok)
        refuse_audit(
            x, describe(crossing, &arena),
            "%lld messages had %lld bytes, of %lld to %lld each, but the plan says %s%lld", (long long)messages,
            (long long)crossing->bytes, (long long)crossing->least, (long long)crossing->most,
            line < each ? arena_format(&arena, "whole lines of %lld, at most ", (long long)line) : "", (long long)each);
    return ok;
}

static bool check_tensor(const Audited *x, const WireCrossing *crossing)
{
    const PlanSiteCrossing *planned = find_planned(x, crossing);
    FREED_WITH(arena_free) Arena arena = {0};
    if (!planned)
        return refuse_audit(x, describe(crossing, &arena),
                            "crossed %lld times, %lld bytes in all, and is not in the plan",
                            (long long)crossing->messages, (long long)crossing->bytes);
    bool ok = check_count(x, crossing, planned);
    return check_bytes(x, crossing, planned) && ok;
}

static bool is_listed(const Audited *x, const PlanSiteCrossing *planned)
{
    for (size_t i = 0; i < x->audit->crossing_count; i++)
        if (x->audit->crossings[i].what == WIRE_CLASS_TENSOR && is_of(planned, &x->audit->crossings[i])) return true;
    return false;
}

/* What the plan lists, this site has an end of, and the audit does not have: as if counted 0 times. */
static bool check_missing(const Audited *x)
{
    bool ok = true;
    for (int i = 0; i < x->plan->site_crossing_count; i++) {
        const PlanSiteCrossing *planned = &x->plan->site_crossings[i];
        const WireCrossing crossing = crossing_of(planned);
        bool ours = strcmp(planned->from_site, x->audit->site) == 0 || strcmp(planned->to_site, x->audit->site) == 0;
        if (ours && !is_listed(x, planned)) ok &= check_count(x, &crossing, planned);
    }
    return ok;
}

/* ---- Everything else ---- */

/* What a message of a class may carry at most, where that is little and known: nothing else can hide there. */
static int64_t most_bytes(WireClass what)
{
    switch (what) {
    case WIRE_CLASS_BARRIER:
    case WIRE_CLASS_LIVENESS:
    case WIRE_CLASS_GREETING:
    case WIRE_CLASS_ACKNOWLEDGEMENT: return 0;
    case WIRE_CLASS_STOP: return 4;
    case WIRE_CLASS_DECISION: return 8;
    case WIRE_CLASS_LOSS: return 128; /* the values of all metrics */
    case WIRE_CLASS_END: return 512;  /* a line that says why */
    default: return INT64_MAX;
    }
}

static bool check_other(const Audited *x, const WireCrossing *crossing)
{
    FREED_WITH(arena_free) Arena arena = {0};
    const char *object =
        arena_format(&arena, "%s, %s to %s", wire_class_name(crossing->what), crossing->from_site, crossing->to_site);
    bool ok = true;
    if (crossing->what == WIRE_CLASS_UNKNOWN)
        ok = refuse_audit(
            x, object,
            "%lld messages of %lld bytes are none that the programs of this plan send, the first with tag %d",
            (long long)crossing->messages, (long long)crossing->bytes, crossing->tag);
    else if (crossing->most > most_bytes(crossing->what))
        ok = refuse_audit(x, object, "a message had %lld bytes: such carry %lld at most", (long long)crossing->most,
                          (long long)most_bytes(crossing->what));
    return ok;
}

static bool is_site(const Audited *x, const char *name)
{
    return word_index(name, x->costs->sites.names, (size_t)x->costs->sites.count) >= 0;
}

static bool check_ends(const Audited *x, const WireCrossing *crossing)
{
    bool from = strcmp(crossing->from_site, x->audit->site) == 0, to = strcmp(crossing->to_site, x->audit->site) == 0;
    bool known = is_site(x, crossing->from_site) && is_site(x, crossing->to_site);
    return (from != to && known) ||
           refuse_audit(x, crossing->tensor ? crossing->tensor : wire_class_name(crossing->what),
                        "is said to have crossed from '%s' to '%s', which site '%s' cannot know", crossing->from_site,
                        crossing->to_site, x->audit->site);
}

bool plan_verify_audit(const Plan *plan, const Costs *costs, const WireAudit *audit, const char *path,
                       Diagnostics *diagnostics)
{
    const Audited x = {plan, costs, audit, path, diagnostics};
    if (!plan->has_sites) return input_error(diagnostics, path, NULL, "the plan knows no sites");
    if (!check_plan(&x)) return false;
    bool ok = check_steps(&x);
    for (size_t i = 0; i < audit->crossing_count; i++) {
        const WireCrossing *crossing = &audit->crossings[i];
        ok &= check_ends(&x, crossing);
        ok &= crossing->what == WIRE_CLASS_TENSOR ? check_tensor(&x, crossing) : check_other(&x, crossing);
    }
    return check_missing(&x) && ok;
}
