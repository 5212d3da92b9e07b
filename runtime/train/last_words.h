/* Last words: a launcher that is told to end everything may do so before it has read what was printed a moment ago. */
#ifndef RUNTIME_TRAIN_LAST_WORDS_H
#define RUNTIME_TRAIN_LAST_WORDS_H

/* Returns when whoever reads this process's standard error, if that is a pipe, has taken all of it, which is at most
 * some seconds later, and has had a moment to pass it on. Leaves stdio's buffers alone: flush them before. */
void last_words_await_reader(void);

#endif
