/* Certificates where one device has the first stage and the last one. */
#ifndef PARTITIONER_PROOF_KEEPER_CERTIFY_H
#define PARTITIONER_PROOF_KEEPER_CERTIFY_H

#include "partitioner/proof/certify.h"
#include "partitioner/solve/keeper_node.h"

/* certify around a keeper: a branch for every node of the trail that closed the search, with the intervals that certify
 * gives the node's problem. `problem` is what the certificate speaks about: that of the trail, or a less relaxed one
 * with the same types. The request's evidence is not used. */
Certificate *keeper_certify(const Problem *problem, int device, KeeperTrail *trail, const CertifyRequest *request,
                            Arena *arena, bool *timed_out);

#endif
