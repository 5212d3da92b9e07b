/* What goes over the network, as files that tcpdump and Wireshark read (pcap: Harris and Richardson, "PCAP Capture File
 * Format", IETF draft), with nanoseconds. */
#ifndef TESTS_NETWORK_CAPTURE_H
#define TESTS_NETWORK_CAPTURE_H

#include <stdio.h>

#include "tests/network/link.h"

/* NULL: errno says why. */
FILE *capture_begin(const char *path);
/* An Ethernet frame as it was sent; the time is the monotonic clock's. */
void capture_frame(FILE *file, const Frame *frame, int64_t now);

#endif
