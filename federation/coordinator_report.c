/* Reports of the coordinator: a line and a row of CSV per round, and the total bytes. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>

#include "base/input_files.h"
#include "base/text.h"
#include "federation/coordinator.h"
#include "federation/privacy.h"

void coordinator_say(const Coordinator *coordinator, const char *format, ...)
{
    va_list arguments;
    if (!coordinator->console) return;
    va_start(arguments, format);
    text_print_va(coordinator->console, format, arguments);
    va_end(arguments);
    fflush(coordinator->console);
}

/* What is watched of a site's round; NAN: it has none. */
static double watched(const Coordinator *coordinator, int s, bool loss)
{
    const SiteMetrics *metrics = &coordinator->sites[s].metrics;
    const Federation *federation = coordinator->federation;
    if (!coordinator->sum.members[s].counted || (loss && !metrics->has_loss)) return NAN;
    if (loss) return metrics->loss;
    double weight = federation->privacy.clip > 0 ? 1 : (double)federation->sites[s].rows_per_step;
    return ldexp(1, coordinator->sum.members[s].exponent) / weight;
}

static void watch_site(Coordinator *coordinator, int s, bool is_loss)
{
    KnownSite *site = &coordinator->sites[s];
    JumpWatch *watch = is_loss ? &site->losses : &site->scales;
    double others[SUM_MOST_SITES], value = watched(coordinator, s, is_loss);
    int count = 0;
    for (int o = 0; o < coordinator->federation->site_count; o++)
        if (o != s && !isnan(others[count] = watched(coordinator, o, is_loss))) count++;
    double times = isnan(value) ? 0 : jump_watch(watch, others, count, value);
    char said[32] = "about";
    if (!(times > 0)) return;
    if (is_loss) snprintf(said, sizeof said, "%.4g,", value);
    snprintf(site->warning, sizeof site->warning,
             "round %" PRId64 ": the %s of site '%.64s' is %s %.3g times the median of %s", coordinator->model.round,
             is_loss ? "loss" : "largest change", coordinator->federation->sites[s].name, said, times,
             watch->count < JUMP_LEAST ? "the other sites" : "its last rounds");
    coordinator_say(coordinator, "warning: %s\n", site->warning);
}

void coordinator_report_jumps(Coordinator *coordinator)
{
    for (int s = 0; s < coordinator->federation->site_count; s++) {
        watch_site(coordinator, s, true);
        watch_site(coordinator, s, false);
    }
}

/* The mean over the sites of the sum that report it, weighted by rows if they report these. NAN: none reports it. */
static double mean_loss(const Coordinator *coordinator)
{
    double sum = 0, weight = 0;
    for (int s = 0; s < coordinator->federation->site_count; s++) {
        const SiteMetrics *metrics = &coordinator->sites[s].metrics;
        if (!coordinator->sum.members[s].counted || !metrics->has_loss) continue;
        double rows = metrics->has_rows ? (double)metrics->rows : 1;
        sum += rows * metrics->loss;
        weight += rows;
    }
    return weight > 0 ? sum / weight : NAN;
}

double coordinator_epsilon(const Coordinator *coordinator)
{
    const FederationPrivacy *privacy = &coordinator->federation->privacy;
    if (!(privacy->clip > 0)) return NAN;
    return privacy_epsilon(1, privacy->noise, coordinator->model.spent, privacy->delta, NULL);
}

void coordinator_print_header(const Federation *federation, Buffer *text)
{
    buffer_print(text, "round,sites,weight,loss,bytes_in,bytes_out,seconds,epsilon");
    for (int s = 0; s < federation->site_count; s++)
        text_format(text, ",rows_%s,loss_%s", federation->sites[s].name, federation->sites[s].name);
    buffer_print(text, "\n");
}

void coordinator_log_header(const Federation *federation, FILE *log)
{
    FREED_WITH(buffer_free) Buffer text = {0};
    coordinator_print_header(federation, &text);
    fputs(buffer_text(&text), log);
    fflush(log);
}

/* The text with the header's line in place of its first, and so many empty columns more in every other line. */
static void widen(Buffer *to, const char *text, const char *header, int columns)
{
    buffer_print(to, "%s", header);
    for (const char *line = strchr(text, '\n'); line && *++line;) {
        const char *end = strchr(line, '\n');
        if (!end) break;
        buffer_append(to, line, (size_t)(end - line));
        for (int i = 0; i < columns; i++) buffer_print(to, ",");
        buffer_print(to, "\n");
        line = end;
    }
}

bool coordinator_widen_log(const Federation *federation, const char *path, Diagnostics *diagnostics)
{
    MappedFile file;
    struct stat status;
    FREED_WITH(buffer_free) Buffer header = {0}, text = {0}, widened = {0};
    Federation then = *federation;
    if (stat(path, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size == 0) return true;
    if (!file_map(&file, path, diagnostics)) return false;
    buffer_append(&text, file.bytes, file.size);
    file_unmap(&file);
    input_files_release_path(path);
    for (int s = federation->site_count - 1; s > 0 && !widened.size; s--) {
        buffer_free(&header);
        then.site_count = s;
        coordinator_print_header(&then, &header);
        if (strncmp(buffer_text(&text), buffer_text(&header), header.size) != 0) continue;
        buffer_free(&header);
        coordinator_print_header(federation, &header);
        widen(&widened, buffer_text(&text), buffer_text(&header), 2 * (federation->site_count - s));
    }
    return !widened.size || file_write_all(path, widened.bytes, widened.size, diagnostics);
}

static void log_number(FILE *log, double number)
{
    if (isnan(number))
        text_print(log, ",");
    else
        text_print(log, ",%.9g", number);
}

static void log_round(const Coordinator *coordinator, int sites, int64_t weight, double seconds)
{
    FILE *log = coordinator->log;
    text_print(log, "%" PRId64 ",%d,%" PRId64, coordinator->model.round, sites, weight);
    log_number(log, mean_loss(coordinator));
    text_print(log, ",%" PRId64 ",%" PRId64 ",%.3f", coordinator->round_bytes_in, coordinator->round_bytes_out,
               seconds);
    log_number(log, coordinator_epsilon(coordinator));
    for (int s = 0; s < coordinator->federation->site_count; s++) {
        const SiteMetrics *metrics = &coordinator->sites[s].metrics;
        bool counted = coordinator->sum.members[s].counted;
        log_number(log, counted && metrics->has_rows ? (double)metrics->rows : NAN);
        log_number(log, counted && metrics->has_loss ? metrics->loss : NAN);
    }
    text_print(log, "\n");
    fflush(log);
}

void coordinator_report_round(Coordinator *coordinator, int sites, int64_t weight, double now)
{
    const Federation *federation = coordinator->federation;
    double seconds = now - coordinator->round_since, loss = mean_loss(coordinator),
           epsilon = coordinator_epsilon(coordinator);
    if (coordinator->log) log_round(coordinator, sites, weight, seconds);
    if (!coordinator->console) return;
    FREED_WITH(buffer_free) Buffer line = {0};
    text_format(&line, "round %" PRId64 " of %" PRId64 ": %d of %d sites", coordinator->model.round, federation->rounds,
                sites, federation_present(federation));
    if (!isnan(loss)) text_format(&line, ", loss %.4f (", loss);
    for (int s = 0, before = 0; s < federation->site_count && !isnan(loss); s++) {
        const SiteMetrics *metrics = &coordinator->sites[s].metrics;
        if (!coordinator->sum.members[s].counted || !metrics->has_loss) continue;
        text_format(&line, "%s%s %.4f", before++ ? ", " : "", federation->sites[s].name, metrics->loss);
    }
    if (!isnan(loss)) text_format(&line, ")");
    text_format(&line, ", %.3g MB in, %.3g MB out, %.1f s", (double)coordinator->round_bytes_in / 1e6,
                (double)coordinator->round_bytes_out / 1e6, seconds);
    if (!isnan(epsilon)) text_format(&line, ", epsilon %.3g at delta %g", epsilon, federation->privacy.delta);
    text_print(coordinator->console, "%s\n", buffer_text(&line));
    const RowsEvaluation *evaluated = &coordinator->evaluated;
    if (evaluated->rows)
        text_print(coordinator->console,
                   "model after round %" PRId64 " on %" PRId64 " rows held out at the sites: loss %.4f",
                   coordinator->model.round - 1, evaluated->rows, evaluated->loss);
    if (evaluated->right_of) text_print(coordinator->console, ", accuracy %.4f", evaluated->accuracy);
    if (evaluated->rows) text_print(coordinator->console, "\n");
    fflush(coordinator->console);
}

void coordinator_report_traffic(const Coordinator *coordinator)
{
    static const char *const kinds[REQUEST_KINDS] = {"questions", NULL, "the model", "signs of life",
                                                     "changes of the model"};
    static const char *const answers[] = {"offers: scale, public keys, metrics", "sealed shares", "updates",
                                          "shares that remove the masks", "nothing"};
    if (!coordinator->console) return;
    text_print(coordinator->console, "what crossed                          messages      bytes in     bytes out\n");
    for (int kind = 0; kind < REQUEST_KINDS; kind++)
        for (int phase = 0; phase <= SUM_DONE; phase++) {
            const Traffic *traffic = &coordinator->traffic[kind][phase];
            if (!traffic->messages) continue;
            text_print(coordinator->console, "%-36s %10" PRId64 " %13" PRId64 " %13" PRId64 "\n",
                       kinds[kind] ? kinds[kind] : answers[phase], traffic->messages, traffic->bytes_in,
                       traffic->bytes_out);
        }
    fflush(coordinator->console);
}
