/* What all forms of the report, and the commands, say about a plan: numbers with units, and full sentences. */
#ifndef PARTITIONER_REPORT_REPORT_WORDS_H
#define PARTITIONER_REPORT_REPORT_WORDS_H

#include "base/buffer.h"
#include "partitioner/plan.h"
#include "partitioner/planner/advice.h"
#include "partitioner/report/report_use.h"

/* `costs` are those that the plan was made from: they name layers, regions and the devices that are not used. Text, SVG
 * and sentences can do without costs (NULL), everything can do without advice. */
typedef struct Report {
    const Plan *plan;
    const Costs *costs;
    const Advice *advice;
    const ReportUse *use; /* made by report_print from plan and costs */
} Report;

enum { REPORT_TEXT = 48, REPORT_SENTENCE = 1024 };
const char *report_seconds(int64_t nanoseconds, char text[static REPORT_TEXT]); /* "3.65 s", "12.1 ms" */
const char *report_bytes(int64_t bytes, char text[static REPORT_TEXT]);         /* "1.5 GiB"; "-" for no limit */

/* The plans that the bound is about: "plan for these devices", or "plan asked for (b alone; all layers pinned; schedule
 * gpipe)". It names everything that was asked for beyond the costs, and what the costs keep at home. */
const char *report_subject(const Report *report, char text[static REPORT_SENTENCE]);
/* "proven optimal: no plan for these devices has a smaller step", or the bound, the gap and what ended the search. */
const char *report_proof(const Report *report, char text[static REPORT_SENTENCE]);
/* Whether the optimum of the objective is certified: the plan's own, or that of a plan which it is faster than. */
bool report_is_proven(const Plan *plan);
/* Why the simulated step is another than the objective, where that is the step. */
const char *report_objective(const Plan *plan, char text[static REPORT_SENTENCE]);
/* What the certificate shows to anyone who does not trust the solver; "" without one. */
const char *report_certificate(const Plan *plan, char text[static REPORT_SENTENCE]);
/* Who shares a step, and which groupings of devices were compared; or why only one pipeline could be. */
const char *report_replicas(const Report *report, char text[static REPORT_SENTENCE]);
/* What of the bound rests on the solver's word alone; "" if nothing does. */
const char *report_unproven(const Plan *plan, char text[static REPORT_SENTENCE]);

/* "6 layers in 2 stages on 2 of 3 devices, 4 micro-batches per step" */
const char *report_head(const Report *report, char text[static REPORT_SENTENCE]);
/* "In use: 46% of the devices' speed. ...": that, and how much a step takes above the bound of any division; "" without
 * costs. */
const char *report_speed(const Report *report, char text[static REPORT_SENTENCE]);
/* "Not used: a, b (memory); c (left out as asked)" */
void report_idle(const Report *report, Buffer *buffer);
/* How the plan runs: chosen micro-batches, schedule, memory limits, recomputation, peak memory of a process. */
const char *report_running(const Plan *plan, char text[static REPORT_SENTENCE]);
/* Packed sequences, expected step time, padding; "" where all steps are alike. */
const char *report_rows(const Plan *plan, char text[static REPORT_SENTENCE]);
/* Of the pipeline that the stage is in: a full bar of load. */
int64_t report_period_ns(const Plan *plan, int stage);
/* Which device or link sets the period; of several replicas, that of the slowest. */
const char *report_bottleneck(const Plan *plan, char text[static REPORT_SENTENCE]);
/* Raw inputs that leave the device that keeps them; "" if none does. */
const char *report_strays(const Report *report, char text[static REPORT_SENTENCE]);
/* Why the comparison has no row of this allocator. */
const char *report_unknown(const Plan *plan, PlanAllocator allocator);

/* "812 ms (+23.3%)", "nothing would fit"; "at most" where that is all that is known. */
const char *report_replanned(const Plan *plan, const Replanned *replanned, char text[static REPORT_SENTENCE]);
/* "board-a twice as fast" */
const char *report_change(const AdviceChange *change, char text[static REPORT_SENTENCE]);

/* The lengths of rows in REPORT_BINS ranges of (nearly) equal width; share [range] of the rows. */
enum { REPORT_BINS = 8 };
typedef struct ReportBin {
    int first, last; /* tokens */
    double share;
} ReportBin;
int report_lengths(const Plan *plan, ReportBin bins[static REPORT_BINS]); /* how many; 0 without samples */
bool report_has_limit(const PlanStage *stage); /* on memory: a petabyte and more says that there is none */

#endif
