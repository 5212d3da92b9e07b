/* Counts what crosses, at the one place that all of it passes, and keeps the file of --audit. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/input_files.h"
#include "runtime/program/message_tags.h"
#include "runtime/wire/gateway_parts.h"

static const double writing_period = 2; /* seconds: a gateway that is killed loses no more of its counts */

/* ---- Counting ---- */

static WireClass class_of(const WireFrame *message)
{
    if (message->to == WIRE_GATEWAY) return WIRE_CLASS_END;
    switch (message->tag) {
    case WIRE_ANSWER:
    case WIRE_QUESTION: return WIRE_CLASS_LIVENESS;
    case WIRE_GATHER: return WIRE_CLASS_AGREEMENT;
    case WIRE_DECISION: return WIRE_CLASS_DECISION;
    case WIRE_CHECKPOINT: return WIRE_CLASS_CHECKPOINT;
    case WIRE_LENGTHS: return WIRE_CLASS_LENGTHS;
    case WIRE_SUM: return WIRE_CLASS_NORM;
    case WIRE_BARRIER: return WIRE_CLASS_BARRIER;
    case WIRE_UNITE: return WIRE_CLASS_STOP;
    case WIRE_FIRST_TAG + TAG_WARM_UP: return WIRE_CLASS_WARM_UP;
    case WIRE_FIRST_TAG + TAG_REPORT: return WIRE_CLASS_LOSS;
    case WIRE_FIRST_TAG + TAG_TRACE: return WIRE_CLASS_TRACE;
    default: return WIRE_CLASS_UNKNOWN;
    }
}

/* The tensor of the plan that the message is; NULL: none. */
static const WireTensor *find_tensor(const WireSiteFile *file, const WireFrame *message)
{
    int64_t tag = (int64_t)message->tag - WIRE_FIRST_TAG;
    for (size_t i = 0; i < file->tensor_count; i++) {
        const WireTensor *tensor = &file->tensors[i];
        if (message->from == tensor->from && message->to == tensor->to && tag >= tensor->first_tag &&
            tag - tensor->first_tag < tensor->tag_count)
            return tensor;
    }
    return NULL;
}

static void count(WireGateway *gateway, int from_site, int to_site, WireCrossing crossing, size_t bytes)
{
    crossing.from_site = gateway->file->sites[from_site].name;
    crossing.to_site = gateway->file->sites[to_site].name;
    wire_crossing_count(wire_audit_crossing(&gateway->audit.counted, &crossing), bytes);
    gateway->audit.is_new = true;
}

void wire_gateway_audit_message(WireGateway *gateway, int from_site, int to_site, const WireFrame *message)
{
    if (!gateway->audit.path) return;
    WireCrossing crossing = {.what = class_of(message), .from_stage = -1, .to_stage = -1, .tag = message->tag};
    const WireTensor *tensor = crossing.what == WIRE_CLASS_UNKNOWN ? find_tensor(gateway->file, message) : NULL;
    if (tensor) {
        crossing.what = WIRE_CLASS_TENSOR;
        crossing.tensor = tensor->name;
        crossing.kind = tensor->kind;
        crossing.from_stage = tensor->from_stage;
        crossing.to_stage = tensor->to_stage;
    }
    count(gateway, from_site, to_site, crossing, message->size);
}

void wire_gateway_audit_frame(WireGateway *gateway, int from_site, int to_site, const void *bytes, size_t size)
{
    WireFrame frame;
    if (!gateway->audit.path || !wire_frame_read(&frame, bytes, size)) return;
    WireCrossing crossing = {.from_stage = -1, .to_stage = -1};
    if (frame.kind == WIRE_HELLO)
        crossing.what = WIRE_CLASS_GREETING;
    else if (frame.kind == WIRE_ACKNOWLEDGE)
        crossing.what = WIRE_CLASS_ACKNOWLEDGEMENT;
    else
        return;
    count(gateway, from_site, to_site, crossing, 0);
}

void wire_gateway_audit_note(WireGateway *gateway, const WireFrame *note)
{
    enum { MOST_MICROBATCHES = 1 << 30 };
    static const int64_t most_number = (int64_t)1 << 50;
    WireAudit *counted = &gateway->audit.counted;
    if (!gateway->audit.path) return;
    int64_t number = (int64_t)note->sequence;
    if (number < 0 || number > most_number || note->total > MOST_MICROBATCHES) {
        gateway->odd++;
        return;
    }
    gateway->audit.is_new = true;
    if (note->tag == WIRE_NOTE_EVALUATION) {
        counted->evaluated_batches++;
        counted->evaluated_microbatches += (int64_t)note->total;
        if (number > counted->longest_evaluation) counted->longest_evaluation = number;
        return;
    }
    gateway->audit.began_steps = true;
    counted->steps++;
    counted->microbatches += (int64_t)note->total;
    if (number <= counted->last_step)
        counted->repeated_steps++;
    else
        counted->last_step = number;
}

/* ---- The file ---- */

static const char hint[] = "--audit goes on with what is there: name a file of its own for every site and compilation";

static bool check(const WireAudit *found, const WireAudit *expected, const char *path, Diagnostics *diagnostics)
{
    if (strcmp(found->site, expected->site) != 0)
        return input_error(diagnostics, path, hint, "is the audit of site %s, and this is site %s", found->site,
                           expected->site);
    return (strcmp(found->run, expected->run) == 0 && strcmp(found->plan, expected->plan) == 0) ||
           input_error(diagnostics, path, hint, "is the audit of another compilation");
}

/* What an earlier start has counted. */
static bool go_on(GatewayAudit *audit, Diagnostics *diagnostics)
{
    FREED_WITH(wire_audit_free) WireAudit found = {0};
    WireAudit *counted = &audit->counted, before = *counted;
    if (!wire_audit_read(&found, audit->path, diagnostics) || !check(&found, counted, audit->path, diagnostics))
        return false;
    *counted = found;
    found = before;
    if (counted->running) counted->cut_short++;
    return true;
}

static void open_reserve(GatewayAudit *audit)
{
    for (int i = 0; i < AUDIT_RESERVE; i++)
        if (audit->reserve[i] < 0) audit->reserve[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void close_reserve(GatewayAudit *audit)
{
    for (int i = 0; i < AUDIT_RESERVE; i++) {
        if (audit->reserve[i] >= 0) close(audit->reserve[i]);
        audit->reserve[i] = -1;
    }
}

/* Whether the file is still the one that was written here last, or gone. */
static bool is_own_file(const GatewayAudit *audit)
{
    struct stat status;
    return stat(audit->path, &status) != 0 || (status.st_dev == audit->device && status.st_ino == audit->file);
}

static bool write_now(GatewayAudit *audit, Diagnostics *diagnostics)
{
    struct stat status;
    if (!wire_audit_write(&audit->counted, audit->path, diagnostics)) return false;
    if (stat(audit->path, &status) != 0) return file_error(diagnostics, audit->path, "cannot look at");
    audit->device = status.st_dev;
    audit->file = status.st_ino;
    audit->is_new = false;
    return true;
}

bool wire_gateway_audit_open(WireGateway *gateway, Diagnostics *diagnostics)
{
    const WireSiteFile *file = gateway->file;
    GatewayAudit *audit = &gateway->audit;
    WireAudit *counted = &audit->counted;
    const char *path = gateway->options.audit;
    char run[33];
    struct stat status;
    if (!path) return true;
    if (!file->plan)
        return diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_NONE, "compile again",
                                 "site.json does not say which messages are tensors of the plan, as --audit needs it");
    counted->run = arena_string(&counted->arena, hash_format(file->run, run));
    counted->plan = file->plan;
    counted->site = file->sites[file->site].name;
    audit->path = path;
    memset(audit->reserve, -1, sizeof audit->reserve);
    bool is_there = stat(path, &status) == 0;
    if (strcmp(path, "-") == 0 || (is_there && !S_ISREG(status.st_mode)))
        return input_error(diagnostics, path, NULL, "is no regular file, so no audit can be kept there");
    if (is_there) {
        if (!go_on(audit, diagnostics)) return false;
        input_files_release_path(path);
        audit->device = status.st_dev;
        audit->file = status.st_ino;
    }
    counted->starts++;
    counted->running = true;
    if (!is_there && !write_now(audit, diagnostics)) return false;
    audit->is_new = true; /* a site that starts again does not fail because of its audit */
    open_reserve(audit);
    return true;
}

void wire_gateway_audit_close(WireGateway *gateway)
{
    if (gateway->audit.path) close_reserve(&gateway->audit);
    wire_audit_free(&gateway->audit.counted);
}

/* The run goes on without its audit where this cannot be written: it is tried again, and the file on disk says that it
 * was not ended. */
static void say_written(WireGateway *gateway, bool written, bool is_end, const Diagnostics *diagnostics)
{
    GatewayAudit *audit = &gateway->audit;
    const char *why = diagnostics->first ? diagnostics->first->message : "";
    if (written && audit->is_late)
        wire_gateway_say(gateway, "the audit %s is written again: nothing is missing in it", audit->path);
    else if (!written && is_end)
        wire_gateway_say(gateway, "the audit %s lacks what crossed since it was written last: %s", audit->path, why);
    else if (!written && !audit->is_late)
        wire_gateway_say(gateway, "the audit %s cannot be written now (%s): the run goes on, and it is tried again",
                         audit->path, why);
    audit->is_late = !written;
}

/* The file that is there stays as it is, and the run goes on. */
static void stop_auditing(WireGateway *gateway)
{
    GatewayAudit *audit = &gateway->audit;
    wire_gateway_say(gateway,
                     "the audit %s was written by somebody else: this run goes on, and is not audited any more; %s",
                     audit->path, hint);
    close_reserve(audit);
    audit->path = NULL;
}

void wire_gateway_audit_write(WireGateway *gateway, double now, bool is_end)
{
    GatewayAudit *audit = &gateway->audit;
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    if (!audit->path || (!is_end && (!audit->is_new || now - audit->written < writing_period))) return;
    if (!is_own_file(audit)) {
        stop_auditing(gateway);
        return;
    }
    if (is_end) {
        audit->counted.running = false;
        audit->counted.broken_off += audit->began_steps && gateway->left_count < gateway->local_count;
    }
    audit->written = now;
    close_reserve(audit);
    say_written(gateway, write_now(audit, &diagnostics), is_end, &diagnostics);
    open_reserve(audit);
}
