/* Quantities with units, as people write them in cluster files and on the command line: a decimal number, optional
 * spaces, a unit. All functions return false, without a result, for anything else: a missing or unknown unit, a
 * negative or infinite number, trailing text. */
#ifndef BASE_UNITS_H
#define BASE_UNITS_H

#include <stdbool.h>
#include <stdint.h>

/* A finite decimal number: no hexadecimal, infinity or NaN, no spaces around it. */
bool units_parse_number(const char *text, double *value);
/* B; KiB MiB GiB TiB (powers of 1024); kB KB MB GB TB (powers of 1000). A bare whole number means bytes. A fraction of
 * a byte is dropped. */
bool units_parse_bytes(const char *text, int64_t *bytes);
/* Bytes per second, greater than 0: bytes as above followed by "/s", or bit, kbit, Mbit, Gbit, Tbit with or without
 * "/s", or bps, kbps, Mbps, Gbps, Tbps (bits, powers of 1000). */
bool units_parse_bandwidth(const char *text, double *bytes_per_second);
/* ns, us, ms, s. A bare 0 needs no unit. */
bool units_parse_seconds(const char *text, double *seconds);

/* What the three accept, for hints. */
#define UNITS_BYTES_HINT "write a number and a unit, such as 8GiB, 512MiB or 16GB"
#define UNITS_BANDWIDTH_HINT "write a number and a unit, such as 20GB/s, 600Mbit or 10Gbit"
#define UNITS_SECONDS_HINT "write a number and a unit, such as 110ms, 50us or 0.2s"

#endif
