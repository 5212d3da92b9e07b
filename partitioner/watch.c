#include "partitioner/watch.h"

#include "base/clock.h"

double watch_seconds(const Watch *watch)
{
    static const double START = 1000; /* far from 0, which is no deadline */
    if (!watch || !watch->counted) return monotonic_seconds();
    return START + 1e-9 * (double)atomic_load_explicit(&watch->work, memory_order_relaxed);
}

bool watch_passed(Watch *watch, double deadline)
{
    double limit = watch ? watch->limit : 0;
    if (deadline == 0 || (limit > 0 && limit < deadline)) deadline = limit;
    if (deadline == 0 || watch_seconds(watch) <= deadline) return false;
    if (watch) atomic_store_explicit(&watch->struck, true, memory_order_relaxed);
    return true;
}

double watch_share(const Watch *watch, double deadline, double share)
{
    double now = watch_seconds(watch);
    return now + share * (deadline - now);
}
