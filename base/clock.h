/* Clocks, in seconds since some moment in the past: only differences between readings of one clock mean anything. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

double monotonic_seconds(void); /* real time; nobody sets this clock */
double thread_seconds(void);    /* processor time of the calling thread */
double process_seconds(void);   /* processor time of all threads of the process */

/* Writes three significant digits into `text`, and returns it: 0.0205 s, 0.670 s, 12.3 s, 150 s. */
const char *seconds_format(double seconds, char text[static 32]);

#endif
