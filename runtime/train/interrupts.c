#include "runtime/train/interrupts.h"

#include <signal.h>
#include <unistd.h>

#include "base/clock.h"

enum { ASKS_SAVE = 1, ASKS_TERM = 2, ASKS_INT = 4, WRITES = 8, MOST_NAMED = 27 };
#define ASKS_SITE (16u) /* set by the first site if it asked; the next bits are those of the other sites */

/* One Ctrl-C may arrive twice: from the terminal and from a launcher. */
static const double same_interrupt = 0.2;

static const int caught[] = {SIGUSR1, SIGTERM, SIGINT};
enum { CAUGHT = sizeof caught / sizeof *caught };

static _Atomic uint32_t asked_here;
static const volatile int64_t *current_step;
static double first_interrupt;

static void on_signal(int number)
{
    double now = monotonic_seconds();
    bool again = number == SIGINT && (asked_here & ASKS_INT) && now - first_interrupt > same_interrupt;
    if (again || (number != SIGUSR1 && *current_step == 0)) _exit(128 + number);
    if (number == SIGINT && !(asked_here & ASKS_INT)) first_interrupt = now;
    asked_here |= number == SIGINT ? ASKS_INT : number == SIGTERM ? ASKS_TERM : ASKS_SAVE;
}

void interrupts_catch(const volatile int64_t *step)
{
    current_step = step;
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    for (int i = 0; i < CAUGHT; i++) sigaddset(&action.sa_mask, caught[i]);
    for (int i = 0; i < CAUGHT; i++) sigaction(caught[i], &action, NULL);
}

void interrupts_ignore(void)
{
    for (int i = 0; i < CAUGHT; i++) signal(caught[i], SIG_IGN);
}

void interrupts_open(Interrupts *interrupts, World *world)
{
    *interrupts = (Interrupts){.world = world};
    interrupts_tell(interrupts, false);
}

InterruptChoice interrupts_agree(Interrupts *interrupts)
{
    world_wait(interrupts->world, &interrupts->pending, (WaitReason){-1, -1, -1, "agreement on signals"});
    uint32_t asked = interrupts->asked;
    int site = 0;
    while (site < MOST_NAMED && !(asked & ASKS_SITE << site)) site++;
    return (InterruptChoice){.save = asked & (ASKS_SAVE | ASKS_TERM | ASKS_INT),
                             .writing = asked & WRITES,
                             .end = asked & ASKS_TERM  ? SIGTERM
                                    : asked & ASKS_INT ? SIGINT
                                                       : 0,
                             .site = site < MOST_NAMED ? site : -1};
}

void interrupts_saved(void) { asked_here &= ~(uint32_t)ASKS_SAVE; }

void interrupts_tell(Interrupts *interrupts, bool writing)
{
    interrupts->asked = asked_here;
    asked_here &= ~interrupts->asked | ASKS_TERM | ASKS_INT;
    int site = world_site(interrupts->world);
    if (interrupts->asked && site >= 0 && site < MOST_NAMED) interrupts->asked |= ASKS_SITE << site;
    if (writing) interrupts->asked |= WRITES;
    world_unite(interrupts->world, &interrupts->asked, &interrupts->pending);
}

void interrupts_close(Interrupts *interrupts)
{
    world_wait(interrupts->world, &interrupts->pending, (WaitReason){-1, -1, -1, "agreement on signals"});
}
