/* The style sheets of page and picture. */
#ifndef PARTITIONER_REPORT_REPORT_STYLE_H
#define PARTITIONER_REPORT_REPORT_STYLE_H

extern const char drawing_colours[]; /* variables for light and dark, and the classes of a drawn step */
extern const char html_style[];

#endif
