/* A plan for people: text for a terminal, JSON for scripts, one HTML page for reviewers, one SVG picture. Pages and
 * pictures need no other file. The same plan gives the same bytes. */
#ifndef PARTITIONER_REPORT_REPORT_H
#define PARTITIONER_REPORT_REPORT_H

#include "partitioner/report/report_words.h"

void report_json(const Report *report, Buffer *buffer);
void report_html(const Report *report, Buffer *buffer);
void report_svg(const Report *report, Buffer *buffer);
/* `form` is "json", "html", "svg" or else text. */
void report_print(const Report *asked, const char *form, Buffer *buffer);
/* The form that a file's name ends with: .html, .json, .svg, else text. */
const char *report_form(const char *path);

#endif
