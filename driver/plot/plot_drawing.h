/* Logs as SVG pictures in the reader's light or dark colours: losses and metrics over steps, or over rounds. */
#ifndef DRIVER_PLOT_PLOT_DRAWING_H
#define DRIVER_PLOT_PLOT_DRAWING_H

#include "base/buffer.h"
#include "driver/plot/plot_log.h"

/* One run, or one federation with a line for every site. `best_step`: where to mark the best checkpoint; NAN: nowhere.
 */
void plot_draw(Buffer *svg, const PlotLog *log, double best_step);
/* The same below a heading of a page (html_style): for a desk and for a phone, of which the page shows what fits. */
void plot_draw_in_page(Buffer *page, const char *heading, const PlotLog *log, double best_step);
/* The losses of several runs, one line each, under their names. */
void plot_compare(Buffer *svg, const PlotLog *logs, const char *const *names, int count);

#endif
