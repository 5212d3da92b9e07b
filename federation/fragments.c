#include "federation/fragments.h"

size_t fragments_most(size_t tensors, size_t wanted)
{
    size_t most = wanted < tensors ? wanted : tensors;
    return most ? most : 1;
}

/* The first tensor of fragment `fragment`: the first one whose middle lies after that share of all elements, moved so
 * that every fragment has a tensor. */
static size_t begin_of(const size_t *elements, size_t tensors, size_t count, size_t fragment)
{
    double all = 0, before = 0;
    size_t at = 0, begin = 0;
    if (fragment == count) return tensors;
    for (size_t i = 0; i < tensors; i++) all += (double)elements[i];
    for (size_t f = 1; f <= fragment; f++) {
        while (at < tensors && before + (double)elements[at] / 2 < all * (double)f / (double)count)
            before += (double)elements[at++];
        size_t most = tensors - (count - f);
        begin = at > begin ? at : begin + 1;
        if (begin > most) begin = most;
    }
    return begin;
}

FragmentRange fragment_range(const size_t *elements, size_t tensors, size_t count, size_t fragment)
{
    return (FragmentRange){begin_of(elements, tensors, count, fragment),
                           begin_of(elements, tensors, count, fragment + 1)};
}
