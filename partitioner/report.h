/* A plan for people: one screen of text, JSON for scripts, one self-contained HTML page for reviewers. The same plan
 * gives the same bytes. */
#ifndef PARTITIONER_REPORT_H
#define PARTITIONER_REPORT_H

#include "base/buffer.h"
#include "partitioner/plan.h"

/* `costs` are those the plan was made from: they name layers and the devices that are not used. The text can do without
 * (NULL). */
void report_text(const Plan *plan, const Costs *costs, Buffer *buffer);
void report_json(const Plan *plan, const Costs *costs, Buffer *buffer);
void report_html(const Plan *plan, const Costs *costs, Buffer *buffer);
/* `form` is "json", "html" or else text. */
void report_print(const Plan *plan, const Costs *costs, const char *form, Buffer *buffer);
/* Writes the report to a file, in the form its name ends with (.html, .json, else text). */
bool report_write(const Plan *plan, const Costs *costs, const char *path, Diagnostics *diagnostics);

/* Fragments that both readable forms use. */
enum { REPORT_TEXT = 48 };
const char *report_seconds(int64_t nanoseconds, char text[static REPORT_TEXT]); /* "3.65 s", "12.1 ms" */
const char *report_bytes(int64_t bytes, char text[static REPORT_TEXT]);         /* "1.5 GiB"; "-" for no limit */
/* "proven optimal", or the bound, the gap and what ended the search; in full sentences. */
const char *report_proof(const Plan *plan, char text[static 256]);
int64_t report_rank_work(const Plan *plan, int rank);   /* forward + backward of one micro-batch, all its stages */
int64_t report_rank_memory(const Plan *plan, int rank); /* bytes, all its stages */

#endif
