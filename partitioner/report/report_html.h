/* What the parts of the HTML report share. */
#ifndef PARTITIONER_REPORT_REPORT_HTML_H
#define PARTITIONER_REPORT_REPORT_HTML_H

#include "partitioner/report/report.h"

extern const char html_style[];

/* Text from files of strangers, inside HTML. */
void html_text(Buffer *buffer, const char *text);
/* One simulated step as a picture: a row per rank, forwards, backwards and updates. Of very many ranks and
 * micro-batches some are drawn. */
void html_time_line(Buffer *buffer, const Plan *plan);

#endif
