/* A plan for people: one screen of text, JSON for scripts, one self-contained HTML page for reviewers. The same plan
 * gives the same bytes. */
#ifndef PARTITIONER_REPORT_REPORT_H
#define PARTITIONER_REPORT_REPORT_H

#include "base/buffer.h"
#include "partitioner/plan.h"
#include "partitioner/planner/advice.h"

/* What a report tells of. `costs` are those the plan was made from: they name layers, regions and the devices that are
 * not used. Only the text can do without costs (NULL), all can do without advice. */
typedef struct Report {
    const Plan *plan;
    const Costs *costs;
    const Advice *advice;
} Report;

void report_text(const Report *report, Buffer *buffer);
void report_json(const Report *report, Buffer *buffer);
void report_html(const Report *report, Buffer *buffer);
/* `form` is "json", "html" or else text. */
void report_print(const Report *report, const char *form, Buffer *buffer);
/* The form that a file's name ends with: .html, .json, else text. */
const char *report_form(const char *path);

/* Fragments that the forms share. */
enum { REPORT_TEXT = 48, REPORT_SENTENCE = 512 };
const char *report_seconds(int64_t nanoseconds, char text[static REPORT_TEXT]); /* "3.65 s", "12.1 ms" */
const char *report_bytes(int64_t bytes, char text[static REPORT_TEXT]);         /* "1.5 GiB"; "-" for no limit */
/* "proven optimal", or the bound, the gap and what ended the search; in full sentences. */
const char *report_proof(const Plan *plan, char text[static 256]);
/* What the plan's certificate shows to anyone who does not trust the solver; "" without one. Full sentences. */
const char *report_unknown(PlanAllocator allocator); /* why a plan compares nothing of this allocator */
const char *report_certificate(const Plan *plan, char text[static 256]);
/* What of the plan's claims rests on the solver's word alone: a bound without certificate, or above it; kinds of plans
 * that were not searched. "" if nothing. Full sentences. */
const char *report_unproven(const Report *report, char text[static REPORT_SENTENCE]);
/* Raw inputs that leave the device that keeps them; "" if none does. Full sentences. */
const char *report_strays(const Report *report, char text[static REPORT_SENTENCE]);
/* "the step would be 812 ms (+23.3%)", "nothing would fit"; "at most" where that is all that is known. */
const char *report_replanned(const Plan *plan, const Replanned *replanned, char text[static REPORT_SENTENCE]);
/* "board-a twice as fast" */
const char *report_change(const AdviceChange *change, char text[static REPORT_SENTENCE]);
/* What is special about how the plan runs: the number of micro-batches if it was chosen, split backward, stages that
 * recompute. In full sentences; "" if nothing is. */
const char *report_running(const Plan *plan, char text[static REPORT_SENTENCE]);
/* What steps of rows that share lines come to: micro-batches, the expected and the worst step, padding, and what
 * padding to the longest would cost. In full sentences; "" where all steps are alike. */
const char *report_rows(const Plan *plan, char text[static REPORT_SENTENCE]);
/* The lengths of their rows in REPORT_BINS ranges of (nearly) equal width; share [range] of the rows. */
enum { REPORT_BINS = 8 };
typedef struct ReportBin {
    int first, last; /* tokens */
    double share;
} ReportBin;
int report_lengths(const Plan *plan, ReportBin bins[static REPORT_BINS]); /* how many; 0 without samples */
bool report_has_limit(const PlanStage *stage); /* on memory: a petabyte and more says that there is none */

#endif
