/* A file of events as TensorBoard reads it (--tensorboard): TFRecords of Event messages, a number each. On rank 0 only.
 *
 * Framing and checksum are those of TensorFlow's record_writer.h: the length, its masked CRC-32C, the message, its
 * masked CRC-32C, all little-endian. Messages are of event.proto and summary.proto. */
#ifndef RUNTIME_TRAIN_EVENT_FILE_H
#define RUNTIME_TRAIN_EVENT_FILE_H

#include "base/buffer.h"
#include "base/diagnostics.h"

typedef struct EventFile {
    int descriptor; /* -1: there is none, or it cannot be written any more */
    char *path;
    Buffer message, record; /* of one event */
} EventFile;

/* Makes a new file in `directory`, which is made unless it is there. NULL: no events are kept. With first_step > 1
 * TensorBoard forgets what earlier files in the directory say of that step and later ones. */
bool event_file_open(EventFile *file, const char *directory, int64_t first_step, Diagnostics *diagnostics);
/* NaN is left out. Once an event cannot be written, a warning says so, and training goes on without. */
void event_file_number(EventFile *file, int64_t step, const char *name, double value);
void event_file_close(EventFile *file);

#endif
