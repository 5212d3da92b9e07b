/* Last words: a launcher that is told to end everything may do so before it has read what was just printed. */
#ifndef RUNTIME_TRAIN_LAST_WORDS_H
#define RUNTIME_TRAIN_LAST_WORDS_H

/* Returns when the reader of standard error (if that is a pipe) has read all of it and had a moment to pass it on;
 * after some seconds in any case. Flush stdio's buffers before. */
void last_words_await_reader(void);

#endif
