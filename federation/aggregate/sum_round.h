/* The coordinator's part in one session of aggregation: what sites sent, and what each must be told next.
 *
 * Four phases (two without masks): offers, shares, values, reveals. A phase ends when the caller says so, with every
 * site that has answered by then; who has not is out of the session. Nothing here knows of time or connections.
 *
 * Which sites are in the sum is settled when the phase of values ends, before any site is asked for shares, and cannot
 * change any more: of every site either the self seed or the mask key is put together. Values that come later are
 * refused. Sums are modulo 2^32 and so the same in any order of arrival. */
#ifndef FEDERATION_AGGREGATE_SUM_ROUND_H
#define FEDERATION_AGGREGATE_SUM_ROUND_H

#include "base/buffer.h"
#include "federation/aggregate/sum_site.h"

typedef enum SumPhase { SUM_OFFERS, SUM_SHARES, SUM_VALUES, SUM_REVEALS, SUM_DONE } SumPhase;

typedef struct SumMember {
    bool offered, shared, counted, revealed;
    bool lost;    /* it cannot answer any more */
    bool former;  /* its lasting key is the one before: the caller says so */
    int exponent; /* that it offered */
    unsigned char share_public[KEY_BYTES], mask_public[KEY_BYTES], commitment[COMMITMENT_BYTES];
    unsigned char *sealed; /* for every site; NULL without masks */
    unsigned char *shares; /* that it revealed, of every site; NULL without masks */
} SumMember;

typedef struct SumRound {
    int sites, least; /* how many sites there are, and how many the sum must have at least */
    int threshold;    /* with masks: of those that may take part */
    bool secure;
    SumPhase phase;
    int exponent; /* the greatest that was offered; after the offers, where words are kept, not far above most */
    unsigned char session[SESSION_BYTES];
    SumMember *members;
    size_t word_count;
    uint32_t *words; /* the sum of what came, masked until SUM_DONE */
    bool keeps;      /* without masks: the words of every member, too, for rules that need them one by one */
    uint32_t **kept; /* [site]; NULL: none came */
} SumRound;

/* Draws a session. `least` is raised to the threshold where there are masks. */
void sum_round_open(SumRound *round, int sites, int least, bool secure, size_t word_count);
/* The same after another session, whose memory is used again where it fits: new memory costs more than zeros. */
void sum_round_reopen(SumRound *round, int sites, int least, bool secure, size_t word_count);
/* Only so many of the sites may take part: the threshold is theirs. */
void sum_round_reduce(SumRound *round, int members, int least);
void sum_round_close(SumRound *round);
/* Before the first words come, and without masks: keeps them. */
void sum_round_keep(SumRound *round);

/* A site's message of the phase. False, and nothing changed, with the reason: the wrong size or phase, a site that is
 * out, one that has answered already. */
bool sum_round_take(SumRound *round, int site, SumPhase phase, const unsigned char *bytes, size_t size,
                    SumProblem *problem);
/* Whether a message of this phase may come from the site now; else the reason, as sum_round_take has it. */
bool sum_round_expects(const SumRound *round, int site, SumPhase phase, SumProblem *problem);
/* Instead of taking SUM_VALUES whole: words of a site of which it is expected, at their place, one part after the
 * other; and after the last one, sum_round_count: the site is in the sum. */
void sum_round_add(SumRound *round, int site, const uint32_t *words, size_t first, size_t count);
void sum_round_count(SumRound *round, int site);
/* Takes back words that were added of a site that does not become one of the sum. */
void sum_round_subtract(SumRound *round, const uint32_t *words, size_t first, size_t count);
/* The site has forgotten the session, as one does that was started again: its offer is taken back, or it is out, as far
 * as it has not answered. Without masks it has drawn nothing that it must remember: once it has offered it may go on.
 * */
void sum_round_forget(SumRound *round, int site);
/* How many sites have answered the phase, and how many could. */
int sum_round_answers(const SumRound *round);
/* Whether the site is not out of the session, and whether it has answered this phase. */
bool sum_round_is_in(const SumRound *round, int site);
bool sum_round_has_answered(const SumRound *round, int site);
/* Ends the phase if enough sites have answered; after the reveals it takes the masks out of the sum. False, with the
 * reason, if there are too few, or shares that do not give what they should: such a session gives no sum. */
bool sum_round_advance(SumRound *round, SumProblem *problem);
/* Appends what the site must be told to answer the phase: nothing for offers, the roster for shares (without masks for
 * values), the delivery for values, the survivors for reveals. The site is in the session. */
void sum_round_tell(const SumRound *round, int site, Buffer *message);

/* The last step of sum_round_advance, in unmask.c: puts together the self seeds of the sites that are in the sum, and
 * the secret mask keys of those that gave shares and are not, and takes what they made out of round->words. False, with
 * a site to blame and the words as they were, if the shares of its secret give another one. */
bool sum_round_unmask(SumRound *round, SumProblem *problem);

#endif
