#!/usr/bin/python3 -B
"""What a round costs a site and the coordinator, besides the steps: processor time, and bytes written.

    bench/federation --meeting [FOLDER] [--rounds 6] [--site-rows 8,8,8,8] [--rule LINE]... [--quick] [--build build]

Model and rows are those of `bench/federation --accuracy`, each site has one device, and sums are plain. Three
federations run, of 1 round and of --rounds of one local step each, and of 1 round of ten more steps; their differences
are what a round and what a step take. Processor time is that of all processes, kernel included; bytes are those handed
to files. The last column is the share of a site's own processor time that 25 local steps take.
"""

import os
import subprocess
import sys
import tempfile

from federation_accuracy import RECIPE, SITES, UnequalScene, parse_options, sizes, write_data, write_model

MORE_STEPS, SHOWN_STEPS = 10, 25
RULES = ["aggregate: plain", "outer: {optimizer: sgd, lr: 1.3}"]
ENVIRONMENT = {**os.environ, "OMP_WAIT_POLICY": "passive"}


def arguments(parser):
    parser.set_defaults(rounds=6, site_rows="8,8,8,8", local_steps=1)


def written(process):
    """Bytes, of a process that has ended and that nobody has waited for, and of the children that it waited for."""
    with open(f"/proc/{process.pid}/io", encoding="utf-8") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("wchar"))


def await_end(process):
    """Processor seconds of the process and its children, and the bytes that they wrote."""
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    bytes_written = written(process)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit("the federation did not end well")
    return usage.ru_utime + usage.ru_stime, bytes_written


def run(options, folder, scene, rounds, steps):
    """Of the coordinator and of every site: processor seconds and bytes written."""
    home = f"{folder}/{rounds}-{steps}"
    scene.local_steps = steps
    made = scene.federate(home, f"rounds: {rounds}", *RULES, *options.rule, dims=sizes(options),
                          options=options.optimizer)
    if made.returncode:
        sys.exit(made.stdout)
    processes = [subprocess.Popen([options.skycc, "coordinate", f"{home}/coordinator", "--quiet"], cwd=folder)] + [
        subprocess.Popen([f"{home}/{site}/train", "--join", "--data", f"{site}.safetensors", "--checkpoint",
                          f"{home}/at-{site}", *RECIPE], cwd=folder, stdin=subprocess.DEVNULL, env=ENVIRONMENT)
        for site in SITES]
    return [await_end(process) for process in processes]


def difference(more, fewer, count):
    """Per round or step, of the coordinator and of the mean site."""
    each = [[(a - b) / count for a, b in zip(*pair)] for pair in zip(more, fewer)]
    return each[0], [sum(values) / len(SITES) for values in zip(*each[1:])]


def main():
    options = parse_options(arguments, __doc__)
    SITES.update(dict.fromkeys(SITES, 1))
    with tempfile.TemporaryDirectory() as folder:
        write_data(options, folder)
        scene = UnequalScene(options, write_model(options, folder, 0), folder)
        one = run(options, folder, scene, 1, 1)
        coordinator, site = difference(run(options, folder, scene, options.rounds, 1), one, options.rounds - 1)
        _, step = difference(run(options, folder, scene, 1, 1 + MORE_STEPS), one, MORE_STEPS)
    meeting = site[0] - step[0]
    training = SHOWN_STEPS * step[0]
    print(f"coordinator: {coordinator[0]:.2f} s a round, {coordinator[1] / 1e6:.0f} MB written\n"
          f"a site: {meeting:.2f} s a round, {site[1] / 1e6:.0f} MB written; {step[0]:.3f} s a step; "
          f"{SHOWN_STEPS} steps are {100 * training / (training + meeting):.0f}% of its time")


if __name__ == "__main__":
    main()
