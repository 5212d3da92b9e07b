/* What links cost: per cut and pair of regions, with the codecs that suit it best. */
#include <stdlib.h>
#include <string.h>

#include "base/integers.h"
#include "partitioner/problem.h"

/* A link that would take weeks for a message is as good as closed. */
static const double MOST_NS = 1e15;
static const double MOST_BYTES = 0x1p30; /* of the table of links */

static int64_t nanoseconds(double seconds)
{
    double time = ceil(seconds * 1e9);
    return (int64_t)(time < MOST_NS ? time : MOST_NS);
}

/* The cut after a layer. */
typedef struct Width {
    const LayerCost *layer;
    int cut;
} Width;

/* 0: as much crosses the cuts after the two layers. */
static int compare_widths(const void *a, const void *b)
{
    const LayerCost *x = ((const Width *)a)->layer, *y = ((const Width *)b)->layer;
    int64_t back[2] = {costs_output_bytes(x, 1), costs_output_bytes(y, 1)};
    if (x->output_bytes != y->output_bytes) return x->output_bytes < y->output_bytes ? -1 : 1;
    if (back[0] != back[1]) return back[0] < back[1] ? -1 : 1;
    return memcmp(x->wire_bytes, y->wire_bytes, sizeof x->wire_bytes);
}

/* What the codecs of one direction cost on the way from a region to another. */
typedef struct Way {
    int64_t transfer[CODEC_COUNT], coding[CODEC_COUNT][2];
} Way;

static Way measure_way(const Costs *costs, unsigned codecs, const LayerCost *layer, int direction, int from, int to,
                       const int64_t (*coding)[CODEC_COUNT][2])
{
    Way way = {{0}, {{0}}};
    int regions = costs->region_count;
    for (int codec = 0; codec < CODEC_COUNT; codec++) {
        if (!(codecs >> codec & 1)) continue;
        if (regions > 0)
            way.transfer[codec] = nanoseconds((double)costs_wire_bytes(layer, direction, (Codec)codec) /
                                              costs->bandwidth_Bps[from * regions + to]);
        way.coding[codec][0] = coding[from][codec][0];
        way.coding[codec][1] = coding[to][codec][1];
    }
    return way;
}

static LinkCharge charge(const Way ways[2], const Codec codecs[2], bool half_duplex, int64_t latency)
{
    LinkCharge link = {.sum = latency};
    int64_t together = 0;
    for (int d = 0; d < 2; d++) {
        const Way *way = &ways[d];
        link.codecs[d] = (unsigned char)codecs[d];
        link.transfer_ns[d] = way->transfer[codecs[d]];
        together += link.transfer_ns[d];
        link.sum += link.transfer_ns[d];
        link.period = larger(link.period, link.transfer_ns[d]);
        for (int k = 0; k < 2; k++) {
            link.coding_ns[d][k] = way->coding[codecs[d]][k];
            link.sum += link.coding_ns[d][k];
            link.period = larger(link.period, link.coding_ns[d][k]);
        }
    }
    if (half_duplex) link.period = larger(link.period, together);
    return link;
}

/* The pair of codecs that adds least to what is minimised, then to the other time; of equal pairs the one that loses
 * least, forward first. */
static LinkCharge choose(const Way ways[2], unsigned codecs, bool half_duplex, int64_t latency, PlanObjective objective)
{
    LinkCharge best = {.period = -1};
    bool by_period = objective == PLAN_OBJECTIVE_PERIOD;
    for (int forward = 0; forward < CODEC_COUNT; forward++)
        for (int backward = 0; backward < CODEC_COUNT && codecs >> forward & 1; backward++) {
            if (!(codecs >> backward & 1)) continue;
            LinkCharge link = charge(ways, (Codec[]){(Codec)forward, (Codec)backward}, half_duplex, latency);
            int64_t first = by_period ? link.period - best.period : link.sum - best.sum;
            int64_t second = by_period ? link.sum - best.sum : link.period - best.period;
            if (best.period < 0 || first < 0 || (first == 0 && second < 0)) best = link;
        }
    return best;
}

/* [region]: what coding takes there. To be freed. */
static int64_t (*coding_times(const Costs *costs, const LayerCost *layer, int direction, int regions))[CODEC_COUNT][2]
{
    int64_t(*times)[CODEC_COUNT][2] = memory_allocate((size_t)regions * sizeof *times);
    for (int region = 0; region < regions; region++)
        for (int codec = 1; codec < CODEC_COUNT; codec++)
            for (int k = 0; k < 2 && costs->codecs >> codec & 1; k++)
                times[region][codec][k] = nanoseconds(
                    costs_coding_s(costs, costs->region_count > 0 ? region : -1, layer, direction, (Codec)codec, k));
    return times;
}

static void fill_class(Problem *p, const LayerCost *layer, LinkCharge *links)
{
    const Costs *costs = p->costs;
    int regions = p->region_count;
    unsigned codecs = costs->codecs ? costs->codecs : CODECS_LOSSLESS;
    int64_t(*coding[2])[CODEC_COUNT][2] = {coding_times(costs, layer, 0, regions),
                                           coding_times(costs, layer, 1, regions)};
    for (int from = 0; from < regions; from++)
        for (int to = 0; to < regions; to++) {
            Way ways[2] = {measure_way(costs, codecs, layer, 0, from, to, coding[0]),
                           measure_way(costs, codecs, layer, 1, to, from, coding[1])};
            int64_t latency = problem_latency(p, from, to) + problem_latency(p, to, from);
            bool half = costs->half_duplex && costs->half_duplex[from * regions + to];
            LinkCharge *link = &links[from * regions + to];
            *link = choose(ways, codecs, half, latency, p->objective);
            p->free_links &= link->period == 0 && link->sum == 0;
        }
    free(coding[0]);
    free(coding[1]);
}

static bool check_size(const Problem *p, size_t pairs, Diagnostics *diagnostics)
{
    const Costs *costs = p->costs;
    double bytes = (double)pairs * p->width_count * (double)sizeof *p->charges;
    return bytes <= MOST_BYTES ||
           input_error(diagnostics, costs->name, "put devices whose links are alike in one region",
                       "the links between %d regions, each for %d sizes of what crosses them, would take %.1f "
                       "GiB: at most %.0f are allowed",
                       p->region_count, p->width_count, bytes / 0x1p30, MOST_BYTES / 0x1p30);
}

bool problem_fill_links(Problem *p, Diagnostics *diagnostics)
{
    const Costs *costs = p->costs;
    int n = p->layer_count, classes = 0;
    bool linked = costs->region_count > 0 || costs->codecs & ~CODECS_LOSSLESS;
    p->region_count = costs->region_count > 0 ? costs->region_count : 1;
    p->width_class = arena_new_array(&p->arena, int, (size_t)n + 1);
    Width *widths = arena_new_array(&p->arena, Width, (size_t)n + 1);
    int cuts = linked ? n - 1 : 0;
    for (int i = 0; i < cuts; i++) widths[i] = (Width){&costs->layers[i], i + 1};
    if (cuts > 0) qsort(widths, (size_t)cuts, sizeof *widths, compare_widths);
    for (int i = 0; i < cuts; i++) {
        if (i == 0 || compare_widths(&widths[classes - 1], &widths[i]) != 0) widths[classes++] = widths[i];
        p->width_class[widths[i].cut] = classes - 1;
    }
    p->width_count = classes > 0 ? classes : 1;
    size_t pairs = (size_t)p->region_count * (size_t)p->region_count;
    if (!check_size(p, pairs, diagnostics)) return false;
    p->latency = arena_new_array(&p->arena, int64_t, pairs);
    p->charges = arena_new_array(&p->arena, LinkCharge, pairs * (size_t)p->width_count);
    p->free_links = true;
    for (size_t i = 0; i < pairs && costs->region_count > 0; i++) {
        p->latency[i] = (int64_t)ceil(costs->latency_s[i] * 1e9);
        p->free_links &= p->latency[i] == 0;
    }
    for (int k = 0; k < classes; k++) fill_class(p, widths[k].layer, p->charges + (size_t)k * pairs);
    return true;
}
