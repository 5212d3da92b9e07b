#include "driver/federate/federation_plans.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/join.h"
#include "driver/compile/local_program.h"
#include "driver/compile/plan_load.h"
#include "driver/federate/federation_steps.h"
#include "federation/planning/probed_links.h"

typedef struct Making {
    FederationPlans *plans;
    const char *file;
    const PlanModelOptions *options;
    Diagnostics *diagnostics;
} Making;

static Arena *arena_of(const Making *making) { return &making->plans->proposal.arena; }

/* ---- One group ---- */

/* Why there is no plan: the first error, with its hint. */
static const char *first_error(const Diagnostics *diagnostics, Arena *arena)
{
    for (const Diagnostic *d = diagnostics->first; d; d = d->next)
        if (d->is_error)
            return d->hint ? arena_format(arena, "%s (%s)", d->message, d->hint) : arena_string(arena, d->message);
    return "no plan was found";
}

/* Stands for a missing link, so slow that plans avoid it. */
static const ClusterLink no_link = {.latency_s = 1e4, .bandwidth_Bps = 1e3};

static bool keeps(const Cluster *cluster)
{
    return cluster->keep_inputs >= 0 || cluster->keep_labels >= 0 || cluster->keep_inputs_site >= 0 ||
           cluster->keep_labels_site >= 0;
}

/* Joins the clusters of the group's sites. False: why_not is set. */
static bool join_group(const Making *making, GroupPlan *group, Cluster *joined)
{
    FederationPlans *plans = making->plans;
    size_t count = (size_t)group->site_count;
    ClusterPart *parts = arena_new_array(arena_of(making), ClusterPart, count);
    ClusterLink *links = arena_new_array(arena_of(making), ClusterLink, count * count);
    for (size_t a = 0; a < count; a++) {
        const FederationSite *site = &plans->federation.sites[group->sites[a]];
        parts[a] = (ClusterPart){site->name, &plans->clusters[group->sites[a]]};
        if (keeps(parts[a].cluster)) {
            group->why_not =
                arena_format(arena_of(making), "site '%s' keeps inputs or labels on its own devices", site->name);
            return false;
        }
        for (size_t b = 0; b < count; b++) {
            const LinkRate *link = federation_link(&plans->federation, group->sites[a], group->sites[b]);
            links[a * count + b] = link ? *link : no_link;
        }
    }
    if (cluster_join(joined, parts, group->site_count, links)) return true;
    group->why_not = "it has too many devices or regions for one plan";
    return false;
}

static int site_of(const Making *making, const GroupPlan *group, const char *name)
{
    for (int s = 0; s < group->site_count; s++)
        if (strcmp(making->plans->federation.sites[group->sites[s]].name, name) == 0) return group->sites[s];
    bug("a plan has a site '%s' that is not of its group", name);
}

static void add_traffic(SiteTraffic *traffic, int *count, int from, int to, double bytes)
{
    int t = 0;
    while (t < *count && (traffic[t].from != from || traffic[t].to != to)) t++;
    if (t == *count) traffic[(*count)++] = (SiteTraffic){from, to, 0};
    traffic[t].bytes += bytes;
}

/* What crosses between the group's sites in a step. */
static void take_traffic(const Making *making, GroupPlan *group, const Plan *plan)
{
    SiteTraffic *traffic = arena_new_array(arena_of(making), SiteTraffic, (size_t)plan->site_crossing_count + 1);
    for (int c = 0; c < plan->site_crossing_count; c++) {
        const PlanSiteCrossing *crossing = &plan->site_crossings[c];
        if (!crossing->per_step) continue;
        int from = site_of(making, group, crossing->from_site), to = site_of(making, group, crossing->to_site);
        if (!federation_link(&making->plans->federation, from, to))
            group->why_not = arena_format(arena_of(making), "the best plan needs a link between %s and %s",
                                          crossing->from_site, crossing->to_site);
        add_traffic(traffic, &group->traffic_count, from, to, (double)crossing->wire_bytes * crossing->per_step);
    }
    group->traffic = traffic;
}

/* A group reaches the coordinator over its best link. The parts of an update travel to that site over the slowest
 * link within the group: at most the whole update, and the whole model back. */
static void settle_replica(const Making *making, GroupPlan *group)
{
    const Federation *federation = &making->plans->federation;
    const MeetingRules *rules = &making->plans->proposal.rules;
    double least = INFINITY, update = 4 * ceil((double)rules->elements / (double)rules->fragments);
    for (int s = 0; s < group->site_count; s++) {
        const LinkRate *link = federation_link(federation, group->sites[s], federation->site_count);
        double seconds = link->latency_s + update / link->bandwidth_Bps;
        if (!(seconds < least)) continue;
        least = seconds;
        group->lead = group->sites[s];
        group->replica = (Replica){group->step_s, link->latency_s, link->bandwidth_Bps, 0};
    }
    for (int s = 0; s < group->site_count; s++) {
        const LinkRate *link = federation_link(federation, group->sites[s], group->lead);
        if (group->sites[s] == group->lead || !link) continue;
        group->replica.gather_s = fmax(group->replica.gather_s, 2 * (link->latency_s + update / link->bandwidth_Bps));
    }
}

static void take_plan(const Making *making, GroupPlan *group, const Plan *plan, const Cluster *cluster)
{
    group->step_s = (double)plan->simulated_step_ns / 1e9;
    group->proven = plan->proven_optimal;
    group->devices = cluster->device_count;
    group->used = plan->rank_count;
    for (int r = 0; r < plan->rank_count; r++)
        group->busy_s += (double)plan_rank_work(plan, r) * plan->microbatches / 1e9;
    take_traffic(making, group, plan);
    settle_replica(making, group);
}

static bool plan_cluster(const Making *making, GroupPlan *group, const Cluster *cluster, Diagnostics *diagnostics)
{
    PlannedModel *planned = &making->plans->planned;
    PlanRequest request = making->options->request;
    FREED_WITH(costs_free) Costs costs = {0};
    FREED_WITH(plan_free) Plan plan = {0};
    request.microbatches = (int)(group->rows / making->plans->proposal.microbatch_rows);
    bool ok = model_costs(&costs, &planned->model.graph, planned->model.precision, cluster, NULL,
                          making->plans->proposal.model, "", request.microbatches, request.microbatches, request.codecs,
                          making->options->clip > 0 ? program_norm_bytes(&planned->model.graph) : 0, diagnostics);
    ok = ok && plan_make(&plan, &costs, &request, diagnostics);
    if (ok) take_plan(making, group, &plan, cluster);
    return ok;
}

static void plan_group(const Making *making, GroupPlan *group)
{
    FREED_WITH(diagnostics_free) Diagnostics own = {0};
    FREED_WITH(cluster_free) Cluster joined = {0};
    bool single = group->site_count == 1, ok = true;
    if (group->rows / making->plans->proposal.microbatch_rows > COSTS_MAX_MICROBATCHES) {
        group->why_not = "its step has more micro-batches than a plan can have";
        return;
    }
    if (!single) ok = join_group(making, group, &joined);
    if (ok && !plan_cluster(making, group, single ? &making->plans->clusters[group->sites[0]] : &joined, &own))
        group->why_not = first_error(&own, arena_of(making));
}

/* ---- Groups of groupings ---- */

/* A site alone has the same plan as another with the same cluster file and rows. */
static const GroupPlan *find_alike(const Making *making, const GroupPlan *group)
{
    const FederationPlans *plans = making->plans;
    const FederationSite *sites = plans->federation.sites, *site = &sites[group->sites[0]];
    for (size_t k = 0; k < plans->known_count && group->site_count == 1; k++) {
        const GroupPlan *known = plans->known[k];
        const FederationSite *other = &sites[known->sites[0]];
        if (known->site_count == 1 && other->rows_per_step == site->rows_per_step &&
            strcmp(other->cluster, site->cluster) == 0)
            return known;
    }
    return NULL;
}

static const GroupPlan *group_plan(const Making *making, const Grouping *grouping, int number)
{
    FederationPlans *plans = making->plans;
    int *sites = arena_new_array(arena_of(making), int, (size_t)plans->federation.site_count), count = 0;
    int64_t rows = 0;
    for (int s = 0; s < plans->federation.site_count; s++) {
        if (grouping->group[s] != number) continue;
        sites[count++] = s;
        rows += plans->federation.sites[s].rows_per_step;
    }
    for (size_t k = 0; k < plans->known_count; k++)
        if (plans->known[k]->site_count == count &&
            memcmp(plans->known[k]->sites, sites, (size_t)count * sizeof *sites) == 0)
            return plans->known[k];
    GroupPlan *group = arena_new(arena_of(making), GroupPlan);
    *group = (GroupPlan){.sites = sites, .site_count = count, .rows = rows};
    const GroupPlan *alike = find_alike(making, group);
    if (alike) {
        *group = *alike;
        group->sites = sites;
        if (!group->why_not) settle_replica(making, group);
    } else {
        plan_group(making, group);
    }
    array_push(plans->known, plans->known_count, plans->known_capacity, group);
    return group;
}

static Candidate *add_candidate(const Making *making, const Grouping *grouping)
{
    Proposal *proposal = &making->plans->proposal;
    int sites = making->plans->federation.site_count;
    Candidate *candidate = &proposal->candidates[proposal->count++];
    Grouping copy = grouping_copy(grouping, sites);
    candidate->grouping =
        (Grouping){arena_copy(&proposal->arena, copy.group, (size_t)sites * sizeof *copy.group), copy.count};
    free(copy.group);
    candidate->groups = arena_new_array(&proposal->arena, const GroupPlan *, (size_t)grouping->count);
    for (int g = 0; g < grouping->count; g++) candidate->groups[g] = group_plan(making, grouping, g);
    candidate_settle(candidate, &making->plans->federation, &proposal->rules, MEETING_SHARE, &proposal->arena);
    return candidate;
}

/* The group to merge with one that does not fit: preferably another that does not fit either, so that most groups
 * remain. -1: it fits, or has no link to any. */
static int find_help(const Making *making, const Grouping *grouping, int group)
{
    int sites = making->plans->federation.site_count;
    FREED bool *lacking = memory_allocate((size_t)sites * sizeof *lacking);
    int nearest = -1;
    for (int g = 0; g < grouping->count; g++) lacking[g] = group_plan(making, grouping, g)->why_not;
    if (lacking[group]) {
        nearest = grouping_nearest(grouping, sites, making->plans->seconds, group, lacking);
        if (nearest < 0) nearest = grouping_nearest(grouping, sites, making->plans->seconds, group, NULL);
    }
    return nearest;
}

/* Merges sites whose memory is too small with others over the fastest links, until all fit. */
static void add_smallest_that_fit(const Making *making)
{
    Proposal *proposal = &making->plans->proposal;
    int sites = making->plans->federation.site_count;
    Grouping grouping = grouping_copy(&proposal->candidates[0].grouping, sites);
    for (int g = 0; g < grouping.count;) {
        int nearest = find_help(making, &grouping, g);
        if (nearest >= 0) grouping_merge(&grouping, sites, g, nearest);
        g = nearest >= 0 ? 0 : g + 1;
    }
    bool known = false;
    for (int c = 0; c < proposal->count; c++)
        known |= grouping_equal(&grouping, &proposal->candidates[c].grouping, sites);
    if (!known) add_candidate(making, &grouping);
    free(grouping.group);
}

/* Without the sites whose devices do not hold the model: the others, each a replica. */
static void add_without_those(const Making *making)
{
    int sites = making->plans->federation.site_count;
    const Candidate *apart = &making->plans->proposal.candidates[0];
    Grouping grouping = grouping_copy(&apart->grouping, sites);
    int kept = 0;
    for (int s = 0; s < sites; s++) grouping.group[s] = apart->groups[apart->grouping.group[s]]->why_not ? -1 : kept++;
    grouping.count = kept;
    if (apart->grouping.count == sites && kept && kept < sites) add_candidate(making, &grouping);
    free(grouping.group);
}

/* ---- All of them ---- */

static bool read_clusters(const Making *making)
{
    FederationPlans *plans = making->plans;
    const Federation *federation = &plans->federation;
    plans->clusters = arena_new_array(arena_of(making), Cluster, (size_t)federation->site_count);
    for (int s = 0; s < federation->site_count; s++) {
        const char *path = federation_cluster(arena_of(making), making->file, federation->sites[s].cluster);
        if (!cluster_read(&plans->clusters[s], path, making->diagnostics)) return false;
    }
    return true;
}

static int64_t trained_elements(const Graph *graph)
{
    int64_t elements = 0;
    for (ValueId v = 1; v < graph->value_count; v++) {
        const Value *value = graph_value(graph, v);
        if (value->role == ROLE_PARAMETER && !value->frozen && shared_parameter(graph, v) == v)
            elements += shape_elements(&value->shape);
    }
    return elements;
}

static bool load_model(const Making *making, const char *model, const ModelOptions *load)
{
    FederationPlans *plans = making->plans;
    PlanModelOptions options = *making->options;
    FREED_WITH(arena_free) Arena scratch = {0};
    SkyProgram program = {0};
    options.cluster = federation_cluster(arena_of(making), making->file, plans->federation.sites[0].cluster);
    options.batch = BATCH_BOUND;
    if (load->lengths.dimension)
        return usage_error(making->diagnostics, "give one length with --dim seq=N",
                           "federations cannot train rows of several lengths yet");
    if (!planned_model_load(&plans->planned, &options, model, load, making->diagnostics)) return false;
    program_describe(&program, &scratch, &plans->planned.model);
    plans->proposal.microbatch_rows = program.microbatch_size;
    plans->proposal.model = planned_model_name(arena_of(making), model);
    return true;
}

static int states_of(const TrainingModel *model)
{
    static const int states[] = {[SKY_SGD] = 0, [SKY_MOMENTUM] = 1, [SKY_ADAM] = 2, [SKY_ADAMW] = 2, [SKY_LAMB] = 2};
    return states[model->optimizer.numbers.kind];
}

/* The time that a cut in the middle of the model takes to cross each link. */
static bool time_links(const Making *making)
{
    FederationPlans *plans = making->plans;
    const Federation *federation = &plans->federation;
    size_t sites = (size_t)federation->site_count;
    FREED_WITH(costs_free) Costs costs = {0};
    if (!model_costs(&costs, &plans->planned.model.graph, plans->planned.model.precision, &plans->clusters[0], NULL,
                     plans->proposal.model, "", 1, 1, 0, 0, making->diagnostics))
        return false;
    double bytes = (double)costs_output_bytes(&costs.layers[(costs.layer_count - 1) / 2], 0);
    plans->seconds = arena_new_array(arena_of(making), double, sites *sites);
    for (size_t a = 0; a < sites; a++)
        for (size_t b = 0; b < sites; b++) {
            const LinkRate *link = federation_link(federation, (int)a, (int)b);
            plans->seconds[a * sites + b] = a == b ? 0
                                            : link ? link->latency_s + bytes / link->bandwidth_Bps
                                                   : INFINITY;
        }
    return true;
}

static void compare(const Making *making)
{
    FederationPlans *plans = making->plans;
    Proposal *proposal = &plans->proposal;
    FREED_WITH(groupings_free) Groupings groupings = {0};
    groupings_make(&groupings, plans->federation.site_count, plans->seconds);
    proposal->candidates = arena_new_array(&proposal->arena, Candidate, MOST_GROUPINGS + 2);
    proposal->all_tried = groupings.all_tried;
    proposal->left_out = groupings.left_out;
    for (int i = 0; i < groupings.count; i++) add_candidate(making, &groupings.items[i]);
    if (!groupings.all_tried) add_smallest_that_fit(making);
    add_without_those(making);
    proposal_choose(proposal);
}

bool federation_plans_make(FederationPlans *plans, const char *file, const FederationWishes *wishes, const char *model,
                           const PlanModelOptions *options, const ModelOptions *load, Diagnostics *diagnostics)
{
    *plans = (FederationPlans){0};
    const char *profile = options->profile;
    PlanModelOptions of_a_site = *options;
    of_a_site.profile = NULL; /* it is of links between sites */
    Making making = {plans, file, &of_a_site, diagnostics};
    Proposal *proposal = &plans->proposal;
    proposal->federation = &plans->federation;
    if (!federation_read(&plans->federation, file, wishes, diagnostics) ||
        !probed_links_take(&plans->federation, profile, diagnostics) ||
        !federation_check_links(&plans->federation, file, "a comparison", diagnostics) || !read_clusters(&making) ||
        !load_model(&making, model, load) ||
        !federation_settle_rows(&plans->federation, file, proposal->microbatch_rows, options->request.microbatches,
                                diagnostics))
        return false;
    proposal->elements = trained_elements(&plans->planned.model.graph);
    proposal->rules =
        federation_meeting_rules(&plans->federation, proposal->elements, states_of(&plans->planned.model));
    if (!time_links(&making)) return false;
    compare(&making);
    return true;
}

void federation_plans_free(FederationPlans *plans)
{
    for (int s = 0; s < plans->federation.site_count && plans->clusters; s++) cluster_free(&plans->clusters[s]);
    free(plans->known);
    planned_model_free(&plans->planned);
    arena_free(&plans->proposal.arena);
    federation_free(&plans->federation);
}
