#!/usr/bin/python3
"""Rounds of many sites, simulated: how long they take and what they ask of the busiest coordinator, when sites differ,
lag and vanish, with one coordinator or a tree of them (the table of docs/federation.md).

    bench/federation_rounds.py [--sites N,N...] [--parts N,N...] [--plain] [--rounds N] [--vanish P] [--spread S] ...

Per site and round the step time is that of its kind times two log-normal factors, one of the site and one of the
round. A site vanishes before its offer or, as often, after its shares. Costs are those of
federation/planning/meeting_time.c."""
import argparse

import numpy

START_S, STORAGE, UPDATE, MASK, SUM, TRIPS = 1, 1e9, 1.1e-9, 6.4e-10, 3.9e-10, 3  # seconds, and seconds a byte
SHARE_BYTES, STATES = 136, 2


def share_line(start, cap, size, line):
    """When transfers of `size` bytes end over a line that they share in equal parts, as far as they can use them."""
    left, end, now = numpy.full(len(start), float(size)), numpy.zeros(len(start)), start.min(initial=0)
    while (left > 0).any():
        active = (left > 0) & (start <= now)
        rate, rest, sharing = numpy.zeros(len(start)), line, active.sum()
        for one in numpy.unique(cap[active]):  # who cannot use an equal part leaves the rest to the others
            same = active & (cap == one)
            rate[same] = min(one, rest / sharing)
            rest, sharing = rest - rate[same].sum(), sharing - same.sum()
        ends = now + left[active] / rate[active]
        begins = start[(left > 0) & ~active]
        after = min(ends.min(initial=numpy.inf), begins.min(initial=numpy.inf))
        left = numpy.where(active, left - rate * (after - now), left)
        done = active & (left <= 1e-6 * size)
        left[done], end[done], now = 0, after, after
    return end


def work_off(arrivals, seconds):
    done = 0
    for at in sorted(arrivals):
        done = max(done, at) + seconds
    return done


class Simulation:
    def __init__(self, given, sites, part, secure):
        self.given, self.sites, self.part, self.secure = given, sites, part or sites, secure
        self.random = numpy.random.default_rng(given.seed)
        self.words = 4 * given.elements
        kind = numpy.arange(sites) % 2
        self.step = numpy.where(kind, given.step[1], given.step[0]) * self.draw(sites)
        self.cap = numpy.full(sites, given.link)
        self.free = numpy.zeros(sites)
        self.updates = self.summed = 0
        self.peaks = []  # of every round: processor seconds and bytes in, of the busiest coordinator

    def draw(self, count):
        return numpy.exp(self.given.spread * self.random.standard_normal(count))

    def phase(self):
        return 2 * self.given.latency * TRIPS

    def note(self, processor, came_in):
        self.peaks[-1] = numpy.maximum(self.peaks[-1], [processor, came_in])

    def session(self, offers, fewest):
        """(when the sum is ready, how many are in it): 0 where too few stayed."""
        drawn = self.random.random(len(offers))
        there = drawn >= self.given.vanish / 2
        sorted_offers = numpy.sort(offers[there])
        limit = max(sorted_offers[0] + self.given.timeout, sorted_offers[min(fewest, len(sorted_offers)) - 1])
        end = min(limit, sorted_offers[-1]) if there.all() else limit
        offered = there & (offers <= end)
        stayed = offered & (drawn >= self.given.vanish)
        now = end + self.phase() * (2 if self.secure else 1)
        if offered.sum() < fewest:
            return now, 0
        masks = len(offers) * self.words * MASK if self.secure else 0
        size = self.words + (SHARE_BYTES * len(offers) if self.secure else 0)
        came = share_line(numpy.full(stayed.sum(), now + masks + self.given.latency), self.cap[:stayed.sum()], size,
                          self.given.line)
        ready = work_off(came, self.words * SUM)
        if stayed.sum() < offered.sum():
            ready = max(ready, now + self.given.timeout)
        if stayed.sum() < fewest:
            return ready, 0
        survivors, vanished = stayed.sum(), offered.sum() - stayed.sum()
        unmask = (survivors + vanished * survivors) * self.words * MASK if self.secure else 0
        unmask += 8 * self.given.elements / STORAGE
        self.note(unmask + survivors * self.words * SUM, size * survivors)
        return ready + (self.phase() if self.secure else 0) + unmask, survivors

    def sum_part(self, offers):
        fewest = 2 * len(offers) // 3 + 1
        self.updates += len(offers)
        while True:
            ready, survivors = self.session(offers, fewest)
            if survivors:
                self.summed += survivors
                return ready
            offers = numpy.maximum(offers, ready)

    def round(self):
        self.peaks.append(numpy.zeros(2))
        stop = START_S + 16 * self.given.elements * (1 + STATES) / STORAGE
        offers = self.free + self.given.steps * self.step * self.draw(self.sites) + stop + self.words * UPDATE
        parts = [slice(first, min(first + self.part, self.sites)) for first in range(0, self.sites, self.part)]
        ready, levels = [self.sum_part(offers[part]) for part in parts], 0
        while len(ready) > 1:  # sums of coordinators go up, without masks
            groups = [ready[first:first + self.part] for first in range(0, len(ready), self.part)]
            levels += 1
            for group in groups:
                self.note(self.words * SUM * len(group), self.words * len(group))
            ready = [work_off([at + 2 * self.given.latency + self.words * len(group) / self.given.line for at in group],
                              self.words * SUM) for group in groups]
        down = ready[0] + levels * (2 * self.given.latency + self.words * self.part / self.given.line)
        for part in parts:
            count = part.stop - part.start
            self.free[part] = numpy.maximum(
                offers[part], share_line(numpy.full(count, down), self.cap[part], self.words, self.given.line)
            )
        return ready[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda text: [int(word) for word in text.split(",")]  # noqa: E731
    parser.add_argument("--sites", type=numbers, default=[255, 1000, 5000])
    parser.add_argument("--parts", type=numbers, default=[0, 255, 64, 16], help="sites of one coordinator; 0: all")
    parser.add_argument("--plain", action="store_true", help="without masks")
    parser.add_argument("--step", type=lambda text: [float(word) for word in text.split(",")], default=[7, 9],
                        help="seconds a step, of two kinds of sites")
    for name, value in {"rounds": 20, "steps": 200, "seed": 1}.items():
        parser.add_argument("--" + name, type=int, default=value)
    for name, value in {
        "elements": 110e6, "vanish": 0.02, "spread": 0.2, "timeout": 600, "latency": 0.05, "link": 12.5e6,
        "line": 1.25e9}.items():
        parser.add_argument("--" + name, type=float, default=value)
    given = parser.parse_args()
    print("sites  a part  round s  in no sum  coordinator: processor s  GB in  line in use")
    for sites in given.sites:
        for part in given.parts:
            if part >= sites:
                continue
            simulation = Simulation(given, sites, part, not given.plain)
            for _ in range(given.rounds):
                now = simulation.round()
            seconds, (processor, came_in) = now / given.rounds, numpy.mean(simulation.peaks, axis=0)
            print(f"{sites:5}  {part or sites:6}  {seconds:7.0f}  {1 - simulation.summed / simulation.updates:9.0%}  "
                  f"{processor:24.0f}  {came_in / 1e9:5.0f}  "
                  f"{came_in / given.line / seconds:11.2%}")


main()
