"""What the cases of tests/network/run share."""
import json
import os
import subprocess
import sys
import time
import typing

import network

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TRAFFIC = f"{HERE}/traffic.py"
sys.path.append(f"{ROOT}/tests/common")  # for cases that write tensors
LONGEST = 60  # seconds that may pass until what must come is there, on a machine that does much else


class Wrong(Exception):
    """What should not have come to pass."""


class Case(typing.NamedTuple):
    name: str
    function: typing.Callable  # of a Bench; returns what it measured, as text; raises Wrong
    quick: bool


CASES = []


def case(name, quick=False):
    def add(function):
        CASES.append(Case(name, function, quick))
        return function
    return add


def expect(condition, text):
    if not condition:
        raise Wrong(text)


def eventually(attempt, text):
    """Tries until it returns something true, and returns that. For what a busy machine may spoil once, not always."""
    limit = time.monotonic() + LONGEST
    while True:
        found = attempt()
        if found:
            return found
        expect(time.monotonic() < limit, text)


class Bench:
    """What was built, and a network that small cases share."""

    def __init__(self, build):
        self.build = os.path.realpath(build)
        self.switch, self.skycc = f"{self.build}/tests/network/network_switch", f"{self.build}/bin/skycc"
        self._pair = None

    def network(self, names, link=network.Link(), **options):
        return network.Network(self.switch, names, link, **options)

    def pair(self, link):
        """Hosts one and other, with that link between them, and traffic forgotten."""
        if not self._pair:
            self._pair = self.network(["one", "other"])
        self._pair.set_link("one", "other", link)
        return self._pair

    def command(self, words):
        """Runs it here; what it prints, if it succeeds."""
        environment = {"SKYCC_CACHE": f"{self.build}/kernel-cache", **os.environ}
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, env=environment)
        expect(done.returncode == 0, f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}")
        return done.stdout

    def close(self):
        if self._pair:
            self._pair.close()


def measure(host, *words):
    """What traffic.py finds out on that host."""
    return json.loads(host.check(TRAFFIC, *words))


def transfer(net, one, other, port, size):
    """Sends bytes over TCP: what both ends say."""
    with net[other].start(TRAFFIC, "receive", port, stdout=subprocess.PIPE, text=True) as receiver:
        expect(receiver.stdout.readline() == "ready\n", f"{other} does not receive")
        sent = measure(net[one], "send", other, port, size)
        return {**sent, **json.loads(receiver.stdout.read())}
