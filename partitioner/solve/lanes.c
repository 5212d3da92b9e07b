#include "partitioner/solve/lanes.h"

#include <stdlib.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>

#include "partitioner/sizes.h"
#define prefetch(address) _mm_prefetch((const char *)(address), _MM_HINT_T0)
#else
#define prefetch(address) (void)(address)
#endif

/* AHEAD: distance of prefetches, because there are more blocks to stream than a processor prefetches by itself. */
enum { WIDTH = 8, AHEAD = 6 };

typedef struct Reach {
    int first, shared; /* the lowest start of any lane; the lowest start of all lanes */
} Reach;

typedef struct Block {
    int zone;
    int class_of[WIDTH]; /* lanes without a class repeat the first */
    double *work;        /* [cut][lane]: a window is contiguous */
} Block;

struct Lanes {
    int block_count, chosen_count;
    Block *blocks;
    int *low;      /* [cut][block][lane]: the data of a cut is contiguous */
    Reach *reach;  /* [cut][block] */
    int *block_of; /* [class] */
    int *chosen;   /* blocks with active classes */
    bool *is_chosen;
};

typedef struct LaneOrder {
    int class_index, zone;
    int64_t reached;
} LaneOrder;

/* Orders classes so that the lanes of a block are in one zone and reach about as far. */
static int by_reach(const void *a, const void *b)
{
    const LaneOrder *x = a, *y = b;
    if (x->zone != y->zone) return x->zone - y->zone;
    if (x->reached != y->reached) return x->reached < y->reached ? -1 : 1;
    return x->class_index - y->class_index;
}

static void fill_block(Lanes *lanes, int index, const Relaxation *r, Arena *arena)
{
    const Problem *p = r->problem;
    Block *b = &lanes->blocks[index];
    size_t cuts = (size_t)p->layer_count + 1;
    b->work = arena_new_array(arena, double, (cuts + AHEAD) * WIDTH);
    for (size_t end = 0; end < cuts; end++) {
        Reach reach = {(int)end, 0};
        size_t at = end * (size_t)lanes->block_count + (size_t)index;
        for (size_t j = 0; j < WIDTH; j++) {
            int c = b->class_of[j], low = relaxation_low(r, 0, c)[end];
            b->work[end * WIDTH + j] = p->work_f[(size_t)r->class_type[c] * cuts + end];
            lanes->low[at * WIDTH + j] = low;
            if (low < reach.first) reach.first = low;
            if (low > reach.shared) reach.shared = low;
        }
        lanes->reach[at] = reach;
    }
}

Lanes *lanes_create(const Relaxation *r, Arena *arena)
{
    const Problem *p = r->problem;
    int classes = r->class_count;
    if (r->levels > 0 || r->high || classes < SIZE_LANE_CLASSES) return NULL;
    FREED LaneOrder *order = memory_allocate((size_t)classes * sizeof *order);
    int64_t all = 0;
    for (int c = 0; c < classes; c++) {
        const int *low = relaxation_low(r, 0, c);
        order[c] = (LaneOrder){c, r->class_zone[c], 0};
        for (int end = 1; end <= p->layer_count; end++) order[c].reached += end - low[end];
        all += order[c].reached;
    }
    Lanes *lanes = NULL;
    if (all <= (int64_t)SIZE_LANE_WINDOW * classes * p->layer_count) {
        qsort(order, (size_t)classes, sizeof *order, by_reach);
        lanes = arena_new(arena, Lanes);
        size_t room = (size_t)(classes / WIDTH + r->zone_count);
        lanes->blocks = arena_new_array(arena, Block, room);
        lanes->chosen = arena_new_array(arena, int, room);
        lanes->is_chosen = arena_new_array(arena, bool, room);
        lanes->block_of = arena_new_array(arena, int, (size_t)classes);
        for (int k = 0; k < classes;) {
            Block *b = &lanes->blocks[lanes->block_count++];
            int zone = b->zone = order[k].zone, first = k;
            for (int j = 0; j < WIDTH; j++) {
                bool own = k < classes && order[k].zone == zone;
                b->class_of[j] = order[own ? k : first].class_index;
                lanes->block_of[b->class_of[j]] = lanes->block_count - 1;
                k += own;
            }
        }
        size_t entries = ((size_t)p->layer_count + 1) * (size_t)lanes->block_count, lows = entries * WIDTH;
        lanes->low = arena_new_array(arena, int, lows);
        lanes->reach = arena_new_array(arena, Reach, entries);
        for (int k = 0; k < lanes->block_count; k++) fill_block(lanes, k, r, arena);
    }
    return lanes;
}

/* The starts that all lanes share. */
#ifdef __SSE2__
static inline void solve_shared(const double *potential, const double *work, int first, int end, double *least)
{
    __m128d best[WIDTH / 2];
    for (int j = 0; j < WIDTH / 2; j++) best[j] = _mm_set1_pd(RELAXATION_INFINITY);
    for (int a = first; a < end; a++) {
        __m128d before = _mm_set1_pd(potential[a]);
        for (int j = 0; j < WIDTH / 2; j++)
            best[j] = _mm_min_pd(best[j], _mm_sub_pd(before, _mm_loadu_pd(work + a * WIDTH + 2 * j)));
    }
    for (int j = 0; j < WIDTH / 2; j++) _mm_storeu_pd(least + 2 * j, best[j]);
}
#else
static inline void solve_shared(const double *potential, const double *work, int first, int end, double *least)
{
    for (int j = 0; j < WIDTH; j++) least[j] = RELAXATION_INFINITY;
    for (int a = first; a < end; a++)
        for (int j = 0; j < WIDTH; j++) {
            double value = potential[a] - work[a * WIDTH + j];
            least[j] = value < least[j] ? value : least[j];
        }
}
#endif

void lanes_choose(Lanes *lanes, const Relaxation *r)
{
    memset(lanes->is_chosen, 0, (size_t)lanes->block_count * sizeof *lanes->is_chosen);
    for (int k = 0; k < r->active_count; k++) lanes->is_chosen[lanes->block_of[r->active[k]]] = true;
    lanes->chosen_count = 0;
    for (int k = 0; k < lanes->block_count; k++)
        if (lanes->is_chosen[k]) lanes->chosen[lanes->chosen_count++] = k;
}

int64_t lanes_solve(Lanes *lanes, const Relaxation *r, int end, double *least)
{
    const int *lows = lanes->low + (size_t)end * (size_t)lanes->block_count * WIDTH;
    const Reach *reaches = lanes->reach + (size_t)end * (size_t)lanes->block_count;
    int64_t looked_at = 0;
    for (int k = 0; k < lanes->chosen_count; k++) {
        const Block *b = &lanes->blocks[lanes->chosen[k]];
        const double *potential = relaxation_potential(r, 0, b->zone), *work = b->work + end * WIDTH;
        const int *low = lows + lanes->chosen[k] * WIDTH;
        Reach reach = reaches[lanes->chosen[k]];
        double best[WIDTH];
        prefetch(work + AHEAD * WIDTH);
        looked_at += end - reach.first + 4;
        solve_shared(potential, b->work, reach.shared, end, best);
        for (int a = reach.first; a < reach.shared; a++)
            for (int j = 0; j < WIDTH; j++) {
                double value = potential[a] - b->work[a * WIDTH + j];
                if (a >= low[j] && value < best[j]) best[j] = value;
            }
        for (int j = 0; j < WIDTH; j++) least[b->class_of[j]] = best[j] + work[j];
    }
    return looked_at;
}
