/* Readers for values that are more than a number, a word or a choice. Each reports a malformed value (EXIT_USAGE)
 * and returns false. `values` points to Options. */
#ifndef DRIVER_OPTIONS_OPTION_READERS_H
#define DRIVER_OPTIONS_OPTION_READERS_H

#include "base/options.h"

bool read_dimension(const OptionValue *value);      /* NAME=VALUE */
bool read_dropout(const OptionValue *value);        /* off or a ratio */
bool read_number_or_word(const OptionValue *value); /* a number, or the only choice as -1 */
bool read_from_round(const OptionValue *value);     /* R, which may be 0 */
bool read_privacy(const OptionValue *value);        /* clip=C,noise=SIGMA,delta=D */
bool read_codec(const OptionValue *value);          /* lossless, a codec, or auto: and one */
bool read_frozen_weights(const OptionValue *value); /* f32, bf16, int8 or int4 */
bool read_warmup_text(const OptionValue *value);    /* a number of steps or P%, kept as text */
bool read_freeze(const OptionValue *value);         /* a pattern of parameter names */
bool read_train(const OptionValue *value);          /* the same */
bool read_low_rank(const OptionValue *value);       /* r=8,alpha=16,targets=query,value,dropout=0.05 */
bool read_steps_or_train(const OptionValue *value); /* a number of steps, or the same */
bool read_emit(const OptionValue *value);           /* one of the row's choices, or graph:after:PASS */
bool read_head(const OptionValue *value);           /* one of HEAD_WORDS */
bool read_init(const OptionValue *value);           /* none or normal:STD */
bool read_holdout(const OptionValue *value);        /* P%, a share between 0 and 1, or a number of rows */
bool read_plan_place(const OptionValue *value);     /* a plan, or a directory that has one */
bool read_log_place(const OptionValue *value);      /* a log, or a directory that has one */

#endif
