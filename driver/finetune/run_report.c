#include "driver/finetune/run_report.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/input_files.h"
#include "base/json.h"
#include "base/live_file.h"
#include "base/order.h"
#include "base/safetensors.h"
#include "base/text.h"
#include "driver/plot/plot_drawing.h"
#include "partitioner/report/report_drawing.h"
#include "partitioner/report/report_style.h"

typedef struct RunReport {
    Settings *settings;
    const char *run, *part;
    RunState state;
    bool logged; /* `log` has a loss */
    PlotLog log;
    json_t *plan, *metrics; /* NULL: not yet */
    double best_step;       /* NAN: none is kept */
    int64_t steps;          /* of the whole run; 0: not known */
    Buffer *page;
} RunReport;

/* ---- What is there ---- */

/* A file that may be missing, or half-written: then this is said the next time. */
static json_t *read_json(const RunReport *report, const char *folder, const char *name)
{
    FREED_WITH(diagnostics_free) Diagnostics ignored = {0};
    const char *path = arena_format(&report->settings->arena, "%s/%s", folder, name);
    json_t *json = access(path, R_OK) == 0 ? json_read(path, &ignored) : NULL;
    input_files_release_path(path);
    return json;
}

static void read_log(RunReport *report)
{
    FREED_WITH(diagnostics_free) Diagnostics ignored = {0};
    const char *path = arena_format(&report->settings->arena, "%s/log.csv", report->part);
    report->logged = access(path, R_OK) == 0 && plot_log_read(&report->log, path, &ignored);
    input_files_release_path(path);
}

static double find_best(const RunReport *report)
{
    DIR *directory = opendir(arena_format(&report->settings->arena, "%s/checkpoints/best", report->part));
    double best = NAN;
    long long step;
    for (const struct dirent *entry; directory && (entry = readdir(directory));)
        if (sscanf(entry->d_name, "step-%lld", &step) == 1) best = (double)step;
    if (directory) closedir(directory);
    return best;
}

static int64_t count_steps(const RunReport *report)
{
    FREED_WITH(diagnostics_free) Diagnostics ignored = {0};
    FREED_WITH(safetensors_close) SafeTensors data = {0};
    const char *path = arena_format(&report->settings->arena, "%s/data/train.safetensors", report->run);
    int64_t batch = atoll(report->settings->of[SETTING_BATCH].value), steps = 0;
    if (access(path, R_OK) == 0 && safetensors_open(&data, path, &ignored)) {
        const SafeTensor *ids = safetensors_find(&data, "input_ids");
        if (ids && batch > 0)
            steps = (ids->shape.dim[0] + batch - 1) / batch * atoll(report->settings->of[SETTING_EPOCHS].value);
    }
    input_files_release_path(path);
    return steps;
}

static double number_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static double last_value(const RunReport *report, int series)
{
    for (size_t i = report->logged ? report->log.count : 0; i-- > 0;)
        if (!isnan(plot_value(&report->log, i, series))) return plot_value(&report->log, i, series);
    return NAN;
}

/* The median of the seconds between two rows of the log; NAN: there are too few. */
static double measured_step(const RunReport *report)
{
    FREED double *times = memory_allocate((report->logged ? report->log.count : 1) * sizeof *times);
    size_t count = 0;
    for (size_t i = 1; report->logged && i < report->log.count; i++) {
        double steps = report->log.steps[i] - report->log.steps[i - 1];
        double time = plot_value(&report->log, i, SECONDS) - plot_value(&report->log, i - 1, SECONDS);
        if (time > 0) times[count++] = time / steps; /* a resumed run counts from 0 again */
    }
    return median(times, count);
}

/* The median of the steps' tokens per second: single steps wait for other programs, or for none. */
static double measured_throughput(const RunReport *report)
{
    FREED double *speeds = memory_allocate(report->log.count * sizeof *speeds);
    size_t count = 0;
    for (size_t i = 0; i < report->log.count; i++) {
        double speed = plot_value(&report->log, i, TOKENS_PER_SECOND);
        if (!isnan(speed)) speeds[count++] = speed;
    }
    return median(speeds, count);
}

/* ---- The page ---- */

static void print_text(const RunReport *report, const char *text) { drawing_text(report->page, text); }

static void print_cell(const RunReport *report, const char *tag, const char *text)
{
    buffer_print(report->page, "<%s>", tag);
    print_text(report, text);
    buffer_print(report->page, "</%.2s>", tag);
}

/* A live page loads itself again: what had the focus, and how far tables were scrolled, stays. The server allows this
 * script and no other (RUN_REPORT_SCRIPT). */
static const char keeps_place[] =
    "<script>\nconst all = [...document.querySelectorAll('a,[tabindex]')], key = 'skycc' + location.pathname;\n"
    "addEventListener('pagehide', () => sessionStorage.setItem(key,\n"
    "  JSON.stringify([all.indexOf(document.activeElement), ...all.map(e => e.scrollLeft)])));\n"
    "const [focused, ...left] = JSON.parse(sessionStorage.getItem(key) || '[-1]');\n"
    "all.forEach((e, i) => e.scrollLeft = left[i] || 0);\n"
    "if (all[focused]) all[focused].focus({preventScroll: true});\n</script>\n";

static bool is_live(const RunReport *report) { return report->state == RUN_PREPARES || report->state == RUN_TRAINS; }

static void print_head(const RunReport *report)
{
    static const char *const states[] = {[RUN_PREPARES] = "Preparing",
                                         [RUN_TRAINS] = "Training",
                                         [RUN_ENDED] = "Finished",
                                         [RUN_DIVERGED] = "Diverged: train again with a lower --lr",
                                         [RUN_BROKE_OFF] = "Interrupted: go on with skycc finetune --resume "};
    const Setting *task = &report->settings->of[SETTING_TASK];
    const char *model = setting_base_name(report->settings->of[SETTING_MODEL].value);
    buffer_print(report->page, "<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n<meta name=viewport "
                               "content=\"width=device-width,initial-scale=1\">\n<link rel=icon href=\"data:,\">\n");
    if (is_live(report)) buffer_print(report->page, "<meta http-equiv=refresh content=4>\n");
    buffer_print(report->page, "<title>");
    print_text(report, model);
    buffer_print(report->page, ": ");
    print_text(report, task->value);
    buffer_print(report->page, "</title>\n<style>\n%s%s", drawing_colours, html_style);
    buffer_print(report->page,
                 "td.h{background:color-mix(in srgb,var(--forward) var(--p),transparent)}"
                 "abbr{text-decoration:underline dotted;cursor:help}abbr:focus::after{content:\" (\" attr(title) \")\";"
                 "font-size:.87rem;color:var(--soft)}.wide+.wide{margin-top:1.2rem}.long{white-space:normal;"
                 "overflow-wrap:anywhere;min-width:16rem}.term,thead th{white-space:normal;overflow-wrap:break-word;"
                 "max-width:14rem}@media screen and (max-width:40rem){.long{min-width:7rem}"
                 ".term,thead th{max-width:7rem}"
                 "th,td{padding-right:.5rem}}</style>\n</head>\n<body>\n<main>\n<h1>");
    print_text(report, model);
    const char *reason = task->reason ? task->reason : task->value, *why = strstr(reason, ": ");
    buffer_print(report->page, ": ");
    drawing_bytes(report->page, reason, why ? (size_t)(why - reason) : strlen(reason));
    const bool failed = report->state == RUN_DIVERGED || report->state == RUN_BROKE_OFF;
    buffer_print(report->page, "</h1>\n<p class=\"proof%s\" role=status><strong>%s", failed ? " open" : "",
                 states[report->state]);
    if (report->state == RUN_BROKE_OFF) print_text(report, text_word(&report->settings->arena, report->run));
    buffer_print(report->page, "</strong>");
    double step = report->logged ? report->log.steps[report->log.count - 1] : 0;
    if (report->logged) {
        buffer_print(report->page, failed ? ". The last step was %.15g" : ", step %.15g", step);
        if (report->steps) buffer_print(report->page, " of %lld", (long long)report->steps);
    }
    if (report->state == RUN_ENDED && step < (double)report->steps)
        buffer_print(report->page, ": evaluations did not get better any more");
    buffer_print(report->page, ".");
    int64_t rows = (int64_t)number_of(report->metrics, "rows");
    if (rows) buffer_print(report->page, " Measured on the %lld rows for evaluation.", (long long)rows);
    buffer_print(report->page, "</p>\n");
}

/* The word of a fact, with what it means for those who point at it, tap it or reach it by keyboard. */
static const char *explained(const RunReport *report, const char *word)
{
    static const struct {
        const char *word, *meaning;
    } words[] = {{"accuracy", "the share of predictions that are right"},
                 {"exact", "the share of answers that are right to the word"},
                 {"f1", "from 0 to 1: how many labels are found, and how few of those found are wrong"},
                 {"matthews", "from -1 to 1: how far labels are predicted better than by chance, which gives 0"},
                 {"pearson", "from -1 to 1: how well predictions and labels rise together along a line"},
                 {"spearman", "from -1 to 1: how well predictions are in the order of the labels"},
                 {"perplexity", "among how many tokens the model hesitates; smaller is better"},
                 {"training loss", "what training makes smaller, in the last step"},
                 {"evaluation loss",
                  "the same on rows that are not trained on: if it rises while the training loss falls, the "
                  "model learns its rows by heart"},
                 {"learning rate", "how far a step moves the weights"},
                 {"step time", "one step trains the model on one batch of rows"},
                 {"best checkpoint", "the saved weights that did best in evaluation, which became the model"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t length = strlen(words[i].word);
        if (strncmp(word, words[i].word, length) == 0 && strchr("-", word[length]))
            return arena_format(&report->settings->arena, "<abbr tabindex=0 title=\"%s\">%s</abbr>", words[i].meaning,
                                word);
    }
    return word;
}

static void print_measured(const RunReport *report, const char *metric, const json_t *measured)
{
    bool share = strcmp(metric, "accuracy") == 0 || strcmp(metric, "exact") == 0;
    double value = json_number_value(measured);
    if (json_is_number(measured))
        drawing_fact(report->page, explained(report, metric), share ? "%.2f%%" : "%.4f", share ? 100 * value : value);
}

static void print_seconds(const RunReport *report, const char *name, double seconds)
{
    char text[32];
    drawing_fact(report->page, name, "%s", seconds_format(seconds, text));
}

/* The one that decides first. */
static void print_metrics(const RunReport *report, json_t *metrics, const char *loss)
{
    const char *metric = report->settings->of[SETTING_METRIC].value, *name;
    json_t *value;
    for (int first = 1; first >= 0; first--) json_object_foreach(metrics, name, value)
        {
            bool counts = strcmp(name, "rows") == 0 || strcmp(name, "windows") == 0;
            if (!counts && (strcmp(name, metric) == 0) == first)
                print_measured(report, strcmp(name, "loss") == 0 ? loss : name, value);
        }
}

static void print_test(const RunReport *report)
{
    json_t *metrics = report->metrics ? read_json(report, report->part, "test.json") : NULL;
    if (!metrics) return;
    buffer_print(report->page, "<h2>Test set</h2>\n<p>Measured on %.0f rows of ", number_of(metrics, "rows"));
    print_text(report, settings_joined(report->settings, SETTING_TEST, ','));
    buffer_print(report->page, ", which did not choose the checkpoint.</p>\n<dl>\n");
    print_metrics(report, metrics, "test loss");
    buffer_print(report->page, "</dl>\n");
    json_decref(metrics);
}

static void print_summary(const RunReport *report)
{
    double step = measured_step(report), planned, seconds = last_value(report, SECONDS);
    planned = json_number_value(json_object_get(report->plan, "simulated_step_s"));
    buffer_print(report->page, "<dl>\n");
    print_metrics(report, report->metrics, "evaluation loss");
    if (report->logged) {
        drawing_fact(report->page, explained(report, "training loss"), "%.4g", last_value(report, LOSS));
        if (!report->metrics && !isnan(last_value(report, EVAL_LOSS)))
            drawing_fact(report->page, explained(report, "evaluation loss"), "%.4g", last_value(report, EVAL_LOSS));
        drawing_fact(report->page, explained(report, "learning rate"), "%.3g", last_value(report, LEARNING_RATE));
        drawing_fact(report->page, "throughput", "%.0f tokens/s", measured_throughput(report));
        drawing_fact(report->page, "trained for", "%.0f:%02.0f", floor(seconds / 60), floor(fmod(seconds, 60)));
    }
    if (!isnan(step)) print_seconds(report, explained(report, "step time"), step);
    if (planned > 0) print_seconds(report, "planned step time", planned);
    double left = report->logged ? ((double)report->steps - report->log.steps[report->log.count - 1]) * step : NAN;
    if (report->state == RUN_TRAINS && left > 0)
        drawing_fact(report->page, "time left, at most", "%.0f:%02.0f", floor(left / 60), floor(fmod(left, 60)));
    if (!isnan(report->best_step))
        drawing_fact(report->page, explained(report, "best checkpoint"), "step %.0f", report->best_step);
    buffer_print(report->page, "</dl>\n");
}

/* How much the result depends on chance. */
static void print_seeds(const RunReport *report)
{
    const char *metric = report->settings->of[SETTING_METRIC].value, *seeds = report->settings->of[SETTING_SEEDS].value;
    const char *heads[] = {"seed", arena_format(&report->settings->arena, "#%s", metric), "#loss"};
    double sums[2] = {0}, squares[2] = {0}, count = 0;
    if (!seeds) return;
    buffer_print(report->page,
                 "<h2>Seeds</h2>\n<p>Each seed draws another new head and another order of the rows. This "
                 "page shows <strong>%s</strong>; below are all that have ended.</p>\n",
                 setting_base_name(report->part));
    drawing_open_table(report->page, "Evaluation of the best checkpoint of every seed", 0, heads, 3);
    long long first = atoll(report->settings->of[SETTING_SEED].value);
    for (long long seed = first; seed < first + atoll(seeds); seed++) {
        const char *part = arena_format(&report->settings->arena, "%s/seed-%lld", report->run, seed);
        json_auto_t *metrics = read_json(report, part, "metrics.json");
        double values[2] = {number_of(metrics, metric), number_of(metrics, "loss")};
        if (metrics) {
            buffer_print(report->page, "<tr><th>%lld</th><td class=n>%.4f</td><td class=n>%.4f</td></tr>\n", seed,
                         values[0], values[1]);
            for (int k = 0; k < 2; k++) sums[k] += values[k], squares[k] += values[k] * values[k];
            count++;
        }
    }
    buffer_print(report->page, count > 1 ? "<tr class=best><th>mean (standard error)</th>" : "");
    for (int k = 0; k < 2 && count > 1; k++)
        buffer_print(report->page, "<td class=n>%.4f (%.4f)</td>", sums[k] / count,
                     sqrt(fmax(squares[k] - sums[k] * sums[k] / count, 0) / (count - 1) / count));
    buffer_print(report->page, count > 1 ? "</tr>\n" : "");
    drawing_close_table(report->page);
}

static void print_curves(const RunReport *report)
{
    if (report->logged) plot_draw_in_page(report->page, "Losses and metrics", &report->log, report->best_step);
}

/* What the model gets right, by label. */
static void print_classes(const RunReport *report)
{
    static const char *const heads[] = {"label", "#precision", "#recall", "#F1", "#rows"}, *const keys[] = {"precision",
                                                                                                            "recall",
                                                                                                            "f1"};
    const json_t *classes = json_object_get(report->metrics, "classes"), *class;
    size_t i;
    if (!json_array_size(classes)) return;
    buffer_print(report->page, "<h2>Labels of the evaluation set</h2>\n");
    drawing_open_table(report->page, "How well each label is found", 0, heads, 5);
    json_array_foreach(classes, i, class)
    {
        buffer_print(report->page, "<tr>");
        print_cell(report, "th class=term", json_string_value(json_object_get(class, "label")));
        for (int k = 0; k < 3; k++)
            buffer_print(report->page, "<td class=n>%.1f%%</td>",
                         100 * json_number_value(json_object_get(class, keys[k])));
        buffer_print(report->page, "<td class=n>%lld</td></tr>\n",
                     (long long)json_integer_value(json_object_get(class, "rows")));
    }
    drawing_close_table(report->page);
}

/* Of more classes than a table has room for. */
static void print_confused(const RunReport *report, const json_t *rows, const json_t *classes)
{
    static const char *const heads[] = {"label", "predicted", "#rows"};
    enum { MOST = 20 };
    struct {
        json_int_t rows;
        size_t label, predicted;
    } most[MOST + 1];
    const json_t *row, *cell;
    size_t count = 0, i, k;
    json_array_foreach(rows, i, row) json_array_foreach(row, k, cell)
    {
        size_t at = count;
        if (i == k || !json_integer_value(cell)) continue;
        for (; at > 0 && most[at - 1].rows < json_integer_value(cell); at--) most[at] = most[at - 1];
        most[at].rows = json_integer_value(cell), most[at].label = i, most[at].predicted = k;
        if (count < MOST) count++;
    }
    if (!count) return;
    drawing_open_table(report->page, "Labels that are confused most", 0, heads, 3);
    for (i = 0; i < count; i++) {
        buffer_print(report->page, "<tr>");
        print_cell(report, "th class=term",
                   json_string_value(json_object_get(json_array_get(classes, most[i].label), "label")));
        print_cell(report, "td class=term",
                   json_string_value(json_object_get(json_array_get(classes, most[i].predicted), "label")));
        buffer_print(report->page, "<td class=n>%lld</td></tr>\n", (long long)most[i].rows);
    }
    drawing_close_table(report->page);
}

static void print_confusion(const RunReport *report)
{
    enum { MOST = 40 };
    const json_t *rows = json_object_get(report->metrics, "confusion"), *row, *cell;
    const json_t *classes = json_object_get(report->metrics, "classes");
    size_t count = json_array_size(rows), i, k;
    const char *heads[MOST + 1] = {"label"};
    if (!count || json_array_size(classes) != count) return;
    if (count > MOST) {
        print_confused(report, rows, classes);
        return;
    }
    for (i = 0; i < count; i++) {
        const char *name = json_string_value(json_object_get(json_array_get(classes, i), "label"));
        heads[i + 1] = arena_format(&report->settings->arena, "#%s", name ? name : "");
    }
    drawing_open_table(report->page, "Confusion: rows with the label at the left, by the label that was predicted", 0,
                       heads, (int)count + 1);
    json_array_foreach(rows, i, row)
    {
        int64_t sum = 0;
        json_array_foreach(row, k, cell) sum += json_integer_value(cell);
        buffer_print(report->page, "<tr>");
        print_cell(report, "th class=term", heads[i + 1] + 1);
        json_array_foreach(row, k, cell) buffer_print(report->page, "<td class=\"n h\" style=\"--p:%lld%%\">%lld</td>",
                                                      (long long)(sum ? 60 * json_integer_value(cell) / sum : 0),
                                                      (long long)json_integer_value(cell));
        buffer_print(report->page, "</tr>\n");
    }
    drawing_close_table(report->page);
}

static void print_lines(const RunReport *report, const char *text)
{
    for (size_t length; *text; text += length + (text[length] == '\n')) {
        length = strcspn(text, "\n");
        drawing_bytes(report->page, text, length);
        if (text[length]) buffer_print(report->page, "<br>");
    }
}

static void print_worst(const RunReport *report)
{
    const json_t *worst = json_object_get(report->metrics, "worst"), *item;
    bool labelled = json_object_get(json_array_get(worst, 0), "label");
    const char *heads[] = {"text", "label", "predicted", "#loss", "#row"}, *rows_heads[] = {"text", "#loss", "#row"};
    size_t i;
    if (!json_array_size(worst)) return;
    buffer_print(report->page, "<h2>Worst errors</h2>\n<p class=soft>Texts as the tokenizer sees them. "
                               "<code>skycc finetune --no-texts</code> leaves them out.</p>\n");
    drawing_open_table(report->page, "Rows of the evaluation set with the largest losses", 0,
                       labelled ? heads : rows_heads, labelled ? 5 : 3);
    json_array_foreach(worst, i, item)
    {
        static const char *const keys[] = {"label", "predicted"};
        const char *question = json_string_value(json_object_get(item, "question"));
        buffer_print(report->page, "<tr><td class=long>%s", question ? "<strong>" : "");
        if (question) print_text(report, question);
        buffer_print(report->page, "%s", question ? "</strong><br>" : "");
        print_lines(report, json_string_value(json_object_get(item, "text")));
        buffer_print(report->page, "</td>");
        for (int k = 0; k < 2 && labelled; k++) {
            const json_t *value = json_object_get(item, keys[k]), *score = json_object_get(item, "score");
            if (json_is_number(value))
                buffer_print(report->page, "<td>%.4g</td>", json_number_value(value));
            else
                print_cell(report, score ? "td class=term" : "td class=long",
                           k && score ? arena_format(&report->settings->arena, "%s (%.0f%%)", json_string_value(value),
                                                     100 * json_number_value(score))
                           : json_string_length(value) ? json_string_value(value)
                                                       : "none");
        }
        buffer_print(report->page, "<td class=n>%.3g</td><td class=n>%lld</td></tr>\n",
                     json_number_value(json_object_get(item, "loss")),
                     (long long)json_integer_value(json_object_get(item, "row")));
    }
    drawing_close_table(report->page);
}

/* ---- Devices ---- */

static void print_device(const RunReport *report, const json_t *rank)
{
    double step = number_of(report->plan, "simulated_step_s"), microbatches = number_of(report->plan, "microbatches");
    double busy = 0, memory = number_of(rank, "process_bytes"), limit = 0;
    const json_t *stages = json_object_get(rank, "stages"), *number;
    FREED_WITH(buffer_free) Buffer layers = {0};
    size_t i;
    json_array_foreach(stages, i, number)
    {
        const json_t *stage =
            json_array_get(json_object_get(report->plan, "stages"), (size_t)json_integer_value(number));
        busy += (number_of(stage, "forward_s") + number_of(stage, "backward_s")) * microbatches;
        busy += number_of(stage, "update_s");
        memory += number_of(stage, "memory_bytes");
        limit = fmax(limit, number_of(stage, "memory_limit_bytes"));
        buffer_print(&layers, "%s%.0f-%.0f", i ? ", " : "", number_of(stage, "first_layer"),
                     number_of(stage, "last_layer"));
    }
    double load = step > 0 ? fmin(busy / step, 1) : 0;
    buffer_print(report->page, "<tr>");
    print_cell(report, "th", json_string_value(json_object_get(rank, "device")));
    buffer_print(report->page,
                 "<td>%s</td><td><span class=bar aria-hidden=true><i class=fb style=\"width:%.1f%%\"></i></span>"
                 "%.0f%%</td><td class=n>%.0f MiB</td><td class=n>%.0f MiB</td></tr>\n",
                 buffer_text(&layers), 100 * load, 100 * load, memory / 1048576, limit / 1048576);
}

static void print_devices(const RunReport *report)
{
    static const char *const heads[] = {"device", "layers", "busy, of a step", "#peak memory", "#memory limit"};
    const json_t *ranks = json_object_get(report->plan, "ranks"), *rank;
    size_t i;
    if (!json_array_size(ranks)) return;
    buffer_print(report->page,
                 "<h2>Devices</h2>\n<p>Each step's rows are cut into %.0f <abbr tabindex=0 title=\"The rows that go "
                 "through the model together. A step adds up the gradients of all of them.\">micro-batches</abbr>. ",
                 number_of(report->plan, "microbatches"));
    buffer_print(
        report->page,
        json_array_size(ranks) == 1
            ? "One device computes all layers. "
            : "The model is cut into <abbr tabindex=0 title=\"Consecutive layers that one device computes.\">stages"
              "</abbr>, and devices wait %.0f%% of a step for each other (the <abbr tabindex=0 title=\"Devices "
              "wait while the first micro-batches come and the last ones go.\">bubble</abbr>). ",
        100 * number_of(report->plan, "bubble"));
    buffer_print(report->page, "The <a href=\"programs/report.html\">plan report</a> has the details and what other "
                               "devices would bring.</p>\n");
    drawing_open_table(report->page, "Planned: one row per device", 0, heads, 5);
    json_array_foreach(ranks, i, rank) print_device(report, rank);
    drawing_close_table(report->page);
}

static void print_advice(const RunReport *report)
{
    double planned = number_of(report->plan, "simulated_step_s"), step = measured_step(report);
    if (!report->plan) return;
    buffer_print(report->page, "<h2>What would make it faster</h2>\n<ul>\n");
    if (step > 1.1 * planned)
        buffer_print(
            report->page,
            "<li>Steps take %.1f times as long as planned: other programs use the devices, or they are slower than the "
            "plan assumes. <code>skycc probe</code> measures them, for <code>skycc compile --profile</code>.</li>\n",
            step / planned);
    if (strcmp(report->settings->of[SETTING_CLUSTER].value, SETTING_THIS_MACHINE) == 0)
        buffer_print(report->page,
                     "<li>More devices: name them in a cluster file, <code>-d cluster.yaml</code>.</li>\n");
    if (number_of(report->plan, "bubble") > 0.1)
        buffer_print(report->page, "<li>Devices wait for each other: a larger <code>--batch</code> has more "
                                   "micro-batches in a step.</li>\n");
    if (!report->settings->of[SETTING_LORA].value)
        buffer_print(report->page, "<li><code>--lora r=8</code> trains about a hundredth of the parameters, in less "
                                   "memory.</li>\n");
    buffer_print(report->page, "<li>Shorter rows: <code>--max-length</code>.</li>\n</ul>\n");
}

static void print_settings(const RunReport *report)
{
    static const char *const heads[] = {"setting", "value", "why"};
    buffer_print(report->page, "<h2>Settings</h2>\n");
    drawing_open_table(report->page, "What skycc finetune decided", 0, heads, 3);
    for (SettingKey key = SETTING_MODEL; key < SETTING_COUNT; key++) {
        const Setting *setting = &report->settings->of[key];
        if (!setting->value) continue;
        buffer_print(report->page, "<tr>");
        print_cell(report, "th", setting_word(key));
        print_cell(report, "td class=long", settings_joined(report->settings, key, ','));
        print_cell(report, "td class=long", setting->reason ? setting->reason : "");
        buffer_print(report->page, "</tr>\n");
    }
    drawing_close_table(report->page);
}

bool run_report_write(Settings *settings, const char *run, const char *part, RunState state, Diagnostics *diagnostics)
{
    FREED_WITH(buffer_free) Buffer page = {0};
    RunReport report = {.settings = settings, .run = run, .part = part, .state = state, .page = &page};
    read_log(&report);
    report.plan = read_json(&report, part, "programs/plan.json");
    report.metrics = state == RUN_ENDED ? read_json(&report, part, "metrics.json") : NULL;
    report.best_step = find_best(&report);
    report.steps = count_steps(&report);
    print_head(&report);
    print_summary(&report);
    print_test(&report);
    print_seeds(&report);
    print_curves(&report);
    print_classes(&report);
    print_confusion(&report);
    print_worst(&report);
    print_devices(&report);
    print_advice(&report);
    print_settings(&report);
    buffer_print(&page, "</main>\n%s</body>\n</html>\n", is_live(&report) ? keeps_place : "");
    bool ok =
        live_file_write(arena_format(&settings->arena, "%s/report.html", run), page.bytes, page.size, diagnostics);
    json_decref(report.plan);
    json_decref(report.metrics);
    plot_log_free(&report.log);
    return ok;
}
