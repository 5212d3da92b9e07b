/* Fuzz targets: one file per kind of input that skycc reads, each a LLVMFuzzerTestOneInput for libFuzzer (clang, CMake
 * option SKYCC_FUZZ) or, in every other build, for a main() that replays files (replay.c).
 *
 * Files that the target reads are in memory: the linker replaces file_map. AddressSanitizer then sees a read one byte
 * after the end, which a mapping would hide. No target touches the disk. */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

#include "base/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Every target begins with this and ends with fuzz_end, which stops if more than four seconds of processor time have
 * passed in between: no input of some kilobytes may cost more, not even in a build with sanitizers on a busy machine.
 * */
void fuzz_begin(void);

/* From now on file_map finds these bytes, which are not copied before, under that name, and no other files but those
 * given so. Names are string literals; a name given again replaces the former bytes. */
void fuzz_file(const char *path, const uint8_t *data, size_t size);

/* Cuts an input that stands for several files at its next zero byte: returns the first part and moves *data and *size
 * past the zero. */
typedef struct FuzzPart {
    const uint8_t *data;
    size_t size;
} FuzzPart;

FuzzPart fuzz_part(const uint8_t **data, size_t *size);

/* Prints the diagnostics, which must survive hostile names, and frees them. Stops if there was an error and still `ok`,
 * or neither: what fails must say why. */
void fuzz_end(bool ok, Diagnostics *diagnostics);

#endif
