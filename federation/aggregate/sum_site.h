/* A site's part in one session of secure aggregation.
 *
 * Bonawitz, Ivanov, Kreuter, Marcedone, McMahan, Patel, Ramage, Segal, Seth: "Practical secure aggregation for
 * privacy-preserving machine learning", CCS 2017; the variant for a coordinator that is curious and keeps to the
 * protocol. A site adds to its words a mask of its own and one for every other site, which that one subtracts. It gives
 * shares of both seeds to the others, so that masks of sites that vanish can be taken out of the sum. Of every other
 * site it gives the coordinator one kind of share, of the self seed or of the mask key, and remembers which: who has
 * both knows that site's words.
 *
 * Each function takes one message of the coordinator and makes the answer (sum_messages.h), in that order. What is
 * wrong with a message is refused with a problem, and the session goes no further here. */
#ifndef FEDERATION_AGGREGATE_SUM_SITE_H
#define FEDERATION_AGGREGATE_SUM_SITE_H

#include "federation/aggregate/sum_messages.h"

typedef struct SumProblem {
    int site;         /* which site is to blame; -1: none, or the coordinator */
    const char *text; /* what is wrong, as the end of a sentence */
} SumProblem;

typedef struct SumSetup {
    int site, sites; /* SUM_FEWEST_SITES ... SUM_MOST_SITES; from 1 on without masks */
    bool secure;
    bool cuts; /* values beyond the common scale may be cut to it: each is looked at by itself */
    const unsigned char *lasting_secret;  /* of this site's lasting key pair; these two may be NULL without masks */
    const unsigned char *lasting_publics; /* of every site, one after the other */
    const unsigned char
        *former_publics;          /* the same of those that counted before and still do, else zeros; NULL: none */
    int threshold;                /* 0: that of all `sites`; of fewer where some numbers are not in use */
    const unsigned char *session; /* SESSION_BYTES, never used before */
} SumSetup;

typedef struct SumSite SumSite;

/* Everything is copied. Ends the process where the system has no random numbers. */
SumSite *sum_site_open(const SumSetup *setup);
void sum_site_close(SumSite *site); /* and forgets every secret; NULL is fine */

/* `exponent`: the least that suits this site's values (fixed_point.h). */
void sum_site_offer(SumSite *site, int exponent, unsigned char offer[SUM_OFFER_BYTES]);
/* *exponent becomes the one that all use. `shares` takes sum_shares_bytes(sites); nothing without masks. */
bool sum_site_roster(SumSite *site, const unsigned char *roster, size_t bytes, int *exponent, unsigned char *shares,
                     SumProblem *problem);
bool sum_site_delivery(SumSite *site, const unsigned char *delivery, size_t bytes, SumProblem *problem);
/* Masks in place the words from `first` on, a multiple of MASK_BLOCK_WORDS. The same words may be masked again, to be
 * sent again; other words at the same place never, or their difference would be known. */
void sum_site_mask(SumSite *site, uint32_t *words, size_t first, size_t count);
/* `reveal` takes sum_reveal_bytes(sites). The same survivors may be told again; others, or fewer than the threshold,
 * are refused. */
bool sum_site_reveal(SumSite *site, const unsigned char *survivors, size_t bytes, unsigned char *reveal,
                     SumProblem *problem);

#endif
