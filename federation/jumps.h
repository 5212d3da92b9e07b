/* Numbers that come round by round, such as a site's loss: which of them is far from those before. */
#ifndef FEDERATION_JUMPS_H
#define FEDERATION_JUMPS_H

enum { JUMP_ROUNDS = 8, JUMP_LEAST = 3 };

#define JUMP_FACTOR 10.0 /* times the median that is a jump */

typedef struct JumpWatch {
    double last[JUMP_ROUNDS];
    int count; /* in all */
} JumpWatch;

/* How many times the median of the last JUMP_ROUNDS values this one is, if that is JUMP_FACTOR or more; 0: it is no
 * jump, and the next ones are compared with it, too. A jump is not. While there are fewer than JUMP_LEAST of them, the
 * `count` values of others in this round are what it is compared with, if there are two at least. */
double jump_watch(JumpWatch *watch, const double *others, int count, double value);

#endif
