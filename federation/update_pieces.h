/* An update on the wire: pieces of bounded size, in order, each with its number in front, so that neither end holds
 * more of it than some pieces, and what was cut goes on where it was.
 *
 *   u64 number, then the words of the piece's values (aggregate/fixed_point.h), the last followed by the words of the
 *   weight and of the site's evaluation
 *   in a codec: u64 number, the weight's words, one row of the piece's values (coded_row.h), after the last the words
 *   of the evaluation
 *
 * What the coordinator has of a site's update is the site's session's: it is dropped with it. */
#ifndef FEDERATION_UPDATE_PIECES_H
#define FEDERATION_UPDATE_PIECES_H

#include <stddef.h>

#include "federation/aggregate/fixed_point.h"
#include "federation/aggregate/sum_round.h"
#include "federation/federation.h"

enum {
    UPDATE_PIECE = 1 << 18, /* values, of 4 bytes; a multiple of codecs' tiles and of the masks' blocks */
    UPDATE_PIECE_HEAD = 8,
    UPDATE_PIECES_AHEAD = 4 /* that a site sends before it has heard that the first is taken */
};

/* Values of every piece but the last. */
static inline size_t update_piece_values(const Federation *federation)
{
    return federation->update_piece ? federation->update_piece : UPDATE_PIECE;
}

/* How many pieces an update of `count` values has: one at least. */
static inline size_t update_pieces(size_t count, size_t piece) { return count ? (count + piece - 1) / piece : 1; }

/* What one site has sent of its update. */
typedef struct ArrivingUpdate {
    size_t pieces;
    int64_t weight; /* that they say, in a codec */
    bool has_file;
    int file; /* of pieces as they came; it has no name, so that nothing is left of it when the process ends */
} ArrivingUpdate;

typedef enum ArrivalState {
    ARRIVAL_REFUSED, /* the problem says why; nothing has changed */
    ARRIVAL_NO_ROOM, /* the disk has none: the same piece may come again */
    ARRIVAL_GOES_ON,
    ARRIVAL_WHOLE /* the update is in the sum */
} ArrivalState;

/* Takes a piece of the site's message of SUM_VALUES, which sum_round_expects, and adds it to the sum. All but the last
 * wait on disk, in a file next to `path`, so that they can be taken back: a sum that is used has all of a site's words,
 * or none. */
ArrivalState arriving_take(ArrivingUpdate *update, const Federation *federation, SumRound *round, int site,
                           const char *path, const unsigned char *bytes, size_t size, SumProblem *problem);
/* Takes the pieces of an update that is not whole out of the sum. False: what was stored cannot be read any more, and
 * the sum is not to be used. */
bool arriving_take_back(ArrivingUpdate *update, const Federation *federation, SumRound *round);
/* Forgets them with their sum. */
void arriving_drop(ArrivingUpdate *update);

/* The bytes of the largest piece. */
size_t update_piece_most_bytes(const Federation *federation);

#endif
