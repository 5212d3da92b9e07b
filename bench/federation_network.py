#!/usr/bin/python3 -B
"""A federation on a slow network: the share of its time spent on training, and what crossed.

    bench/federation --network [FOLDER] [--rounds 3] [--local-steps 250] [--site-rows 12,8,12,8] [--overlap all]
                               [--quick] [--build build]

Needs root and /dev/net/tun: the coordinator and four sites are hosts in namespaces (tests/network), 100 ms and 100
Mbit/s each way from the coordinator, with network cards that segment what they send. Model, rows and devices are
those of `bench/federation --accuracy`, and sums are secure. One row of the table is one site. Its time runs from the
first step of its first round to the last step of its last round; `training` is the part of it that its steps took.
Faster sites wait for the others, so each site takes so many rows that steps last about equally long. All sites share
this machine's cores, which makes their steps longer than on machines of their own. Therefore the table also has
`overhead a round`, the seconds that a round costs in addition to its steps, and `steps for 95%`, the number of local
steps, each as long as one site alone takes, at which that overhead is a twentieth of the time. At the end the
coordinator prints what crossed, by class of message.

Exits 0 only when every site trained for 95% of its time, 77 where the machine has no such networks. --quick: small
model, few steps, and no judgement.
"""

import csv
import os
import statistics
import subprocess
import sys
import threading
import time

from federation_accuracy import RECIPE, SITES, UnequalScene, parse_options, sizes, write_data, write_model

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "tests", "network"))
import network  # noqa: E402

LINK = network.Link(0.1, 12.5e6)
PORT, LIMIT, LEAST, ALONE = 7400, 3600, 0.95, 10
ENVIRONMENT = {**os.environ, "OMP_WAIT_POLICY": "passive", "SKYCC_BIND": "none"}


def network_arguments(parser):
    parser.set_defaults(rounds=3, local_steps=250, site_rows="12,8,12,8")
    parser.add_argument("--overlap", default="all", help="steps of the next round that are made while one is met")


def run(options, net, scene):
    """The federation to its end; what the coordinator said."""
    made = scene.federate("federation", f"rounds: {options.rounds}", f"overlap: {options.overlap}",
                          f"outer: {{{options.outer}}}", dims=sizes(options), options=options.optimizer)
    if made.returncode:
        sys.exit(made.stdout)
    folder = net.folder
    head = net["coordinator"].start(
        options.skycc, "coordinate", f"{folder}/federation/coordinator", "--key", f"{folder}/coordinator.key",
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    sites = [
        net[site].start(
            f"{folder}/federation/{site}/train", "--join", "--data", f"{folder}/{site}.safetensors", "--key",
            f"{folder}/{site}.key", "--checkpoint", f"{folder}/at-{site}", *RECIPE, env=ENVIRONMENT)
        for site in SITES
    ]
    said = head.communicate(timeout=LIMIT)[0]
    if any(process.wait(LIMIT) for process in [*sites, head]):
        sys.exit(f"the federation did not end well: {said}")
    return said


class Watch(threading.Thread):
    """Of a site, when it ended the first step and the last that its log has by now."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path, self.first, self.last, self.size = path, 0.0, 0.0, 0
        self.start()

    def run(self):
        while True:
            time.sleep(0.05)
            if not os.path.exists(self.path):
                continue
            now, size = time.monotonic(), os.path.getsize(self.path)
            if size != self.size and len(read_seconds(self.path)) > 0:
                self.size, self.last, self.first = size, now, self.first or now


def read_seconds(path):
    """By step, since its process's first began: processes end at meetings."""
    with open(path, newline="", encoding="utf-8") as file:
        return [float(row["seconds"]) for row in csv.DictReader(file) if row["seconds"]]


def training_seconds(elapsed):
    return sum(this for this, after in zip(elapsed, [*elapsed[1:], 0.0]) if after < this)


def alone(options, net, scene, site):
    """Seconds of a step where a site has the machine for itself: the median of some."""
    folder = net.folder
    log = f"{folder}/alone-{site}.csv"
    net[site].check(
        f"{folder}/federation/{site}/train", "--data", f"{folder}/{site}.safetensors", "--steps", ALONE, "--log", log,
        *RECIPE, env=ENVIRONMENT)
    elapsed = read_seconds(log)
    return statistics.median(after - before for before, after in zip(elapsed, elapsed[1:]))


def judge(options, net, scene, watches):
    """Prints a line a site; whether all trained for long enough."""
    print("site      steps, s   all, s   training  overhead a round, s   a step alone, s   steps for 95%")
    ok = True
    for site, watch in watches.items():
        elapsed = read_seconds(watch.path)
        training, whole = training_seconds(elapsed), watch.last - watch.first + elapsed[0]
        overhead, step = (whole - training) / (options.rounds - 1), alone(options, net, scene, site)
        ok &= training >= LEAST * whole
        print(f"{site:8s} {training:9.1f} {whole:8.1f} {100 * training / whole:9.1f}% {overhead:19.1f} {step:17.3f} "
              f"{LEAST / (1 - LEAST) * overhead / step:15.0f}", flush=True)
    return ok


def measure(options):
    with network.Network(
        f"{options.build}/tests/network/network_switch", ["coordinator", *SITES], LINK, large=True
    ) as net:
        write_data(options, net.folder)
        model = write_model(options, net.folder, 0)
        scene = UnequalScene(options, model, net.folder)
        scene.address = f"{net['coordinator'].address}:{PORT}"
        watches = {site: Watch(f"{net.folder}/at-{site}/log.csv") for site in SITES}
        said = run(options, net, scene)
        ok = judge(options, net, scene, watches)
        print(said[said.rfind("what crossed"):], end="")
        return ok


def main():
    options = parse_options(network_arguments, __doc__)
    lacks = network.missing()
    if lacks:
        print(f"no such networks here: {lacks}")
        sys.exit(77)
    sys.exit(0 if measure(options) or options.quick else 1)


if __name__ == "__main__":
    main()
