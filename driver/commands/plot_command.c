/* skycc plot: draws the log of a run or of a federation, or several runs in one picture. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "driver/commands/commands.h"
#include "driver/plot/plot_drawing.h"

bool plot_command(const Options *options, Diagnostics *diagnostics)
{
    static const char *const others[] = {".png", ".pdf", ".jpg", ".jpeg", ".html"};
    const char *suffix = options->output ? strrchr(options->output, '.') : NULL;
    for (size_t i = 0; suffix && i < sizeof others / sizeof *others; i++)
        if (strcasecmp(suffix, others[i]) == 0)
            return usage_error(diagnostics, "name it .svg: browsers show it, and rsvg-convert makes other forms of it",
                               "skycc plot writes SVG, not %s", suffix);
    size_t count = options->inputs.count;
    FREED PlotLog *logs = memory_allocate(count * sizeof *logs);
    FREED_WITH(buffer_free) Buffer svg = {0};
    bool ok = true;
    for (size_t i = 0; i < count; i++) {
        ok &= plot_log_read(&logs[i], options->inputs.items[i], diagnostics);
        if (ok && logs[i].federated != logs[0].federated)
            ok = input_error(diagnostics, options->inputs.items[i], "draw them one by one",
                             logs[0].federated ? "is the log of a run; the first log is of a federation"
                                               : "is the log of a federation; the first log is of a run");
    }
    if (ok && count == 1) plot_draw(&svg, &logs[0], NAN);
    if (ok && count > 1) plot_compare(&svg, logs, options->inputs.items, (int)count);
    ok = ok && file_write_all(options->output ? options->output : "-", svg.bytes, svg.size, diagnostics);
    for (size_t i = 0; i < count; i++) plot_log_free(&logs[i]);
    return ok;
}
