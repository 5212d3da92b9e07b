/* What pages and pictures draw: text from strangers' files, bars, and one simulated step. It is well-formed XML, so
 * that a picture stands alone and a page can hold it. */
#ifndef PARTITIONER_REPORT_REPORT_DRAWING_H
#define PARTITIONER_REPORT_REPORT_DRAWING_H

#include "partitioner/report/report_words.h"
#include "partitioner/schedule/simulate.h"

/* Escaped, control characters too. */
void drawing_bytes(Buffer *buffer, const char *text, size_t size);
void drawing_text(Buffer *buffer, const char *text);
/* As much of a name as there is room for, in characters; the whole of it as a <title> where it was cut. */
void drawing_name(Buffer *buffer, const char *name, int room);

/* A table that scrolls by itself, also by keyboard. `heads`, `count` of them, are escaped; a '#' in front marks
 * numbers. `rows` is about how many follow. */
void drawing_open_table(Buffer *buffer, const char *caption, int rows, const char *const *heads, int count);
void drawing_close_table(Buffer *buffer);
/* An entry of a list of facts (dl): at most 127 bytes of text, which is escaped, as is not the name. */
void drawing_fact(Buffer *buffer, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* One step as bars: a row per rank, forwards, backwards and updates over time. Of very many ranks and micro-batches
 * some are drawn. Names stand left of `left`, time goes from there to `right`; the first row is at y = 0. */
typedef struct StepDrawing {
    const Plan *plan;
    Simulation simulation;
    int left, right, rows, row_height;
    int microbatches, of; /* the first so many are drawn, of those of the step */
} StepDrawing;

/* False if the schedule does not run, or takes no time. Free it if true. */
bool step_drawing_create(StepDrawing *drawing, const Plan *plan, int left, int right, int most_rows);
int step_drawing_height(const StepDrawing *drawing);
void step_drawing_print(const StepDrawing *drawing, Buffer *buffer);
void step_drawing_free(StepDrawing *drawing);
/* Whether some stage splits its backward: then there are bars for the gradient of the weights. */
bool step_drawing_splits(const Plan *plan);
/* "Drawn: ..." where something is left out, else "". */
const char *step_drawing_rest(const StepDrawing *drawing, char text[static REPORT_SENTENCE]);

#endif
