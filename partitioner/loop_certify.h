/* Certificates where one device has the first stage and the last one. */
#ifndef PARTITIONER_LOOP_CERTIFY_H
#define PARTITIONER_LOOP_CERTIFY_H

#include "partitioner/certify.h"
#include "partitioner/loop_node.h"

/* certify around a loop: a branch for every node of the trail that closed the search, with the intervals that certify
 * gives the node's problem. `problem` is what the certificate speaks about: that of the trail, or a less relaxed one
 * with the same types. The request's evidence is not used. */
Certificate *loop_certify(const Problem *problem, int device, LoopTrail *trail, const CertifyRequest *request,
                          Arena *arena, bool *timed_out);

#endif
