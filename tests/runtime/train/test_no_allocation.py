#!/usr/bin/python3
"""test_no_allocation.py SKYCC LIBRARY: after the first steps, stage programs allocate nothing, and take no more than
planned.

Trains a small BERT on one rank and on two, under mpiexec, for few steps and for many, with LIBRARY
(count_allocations.c) counting. The longer run must not have allocated more often, but for what MPICH and the libraries
below it do; that is printed. No process may have had more memory than its stages and process_bytes of the plan.
"""
import collections
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "..", "common"))
import safetensors_files  # noqa: E402

SEQUENCE, ROWS, FEW, MANY = 16, 24, 4, 40
MPI = ("libmpich", "libucp", "libuct", "libucs", "libfabric", "libhwloc", "libpmi", "libibverbs", "libpsm", "libefa")


def write_data(path):
    safetensors_files.write(path, {
        "input_ids": np.arange(0, 7 * ROWS * SEQUENCE, 7, np.int32).reshape(ROWS, SEQUENCE) % 50,
        "attention_mask": np.ones((ROWS, SEQUENCE), np.int32),
        "token_type_ids": np.zeros((ROWS, SEQUENCE), np.int32),
        "labels": np.arange(ROWS, dtype=np.int32) % 3,
    })


def count(folder, steps, library, options):
    """Allocations by the base name of who asked, and the most memory of each stage program."""
    counts = f"{folder}/counts"
    for left in (counts, f"{folder}/log"):  # a log that is there is looked at before it is replaced
        if os.path.exists(left):
            os.remove(left)
    # No cache: the first start would keep the data's hashes, and later ones find them.
    environment = {**os.environ, "LD_PRELOAD": library, "COUNT_ALLOCATIONS": counts, "SKYCC_CACHE": ""}
    command = ["mpiexec.mpich", "-configfile", f"{folder}/out/run.mpi"]
    environment["SKYCC_OPTIONS"] = f"--data {folder}/data --steps {steps} --quiet --log {folder}/log {options}"
    silence, keep_open = os.pipe()  # mpiexec fails if its input ends when the programs have ended
    subprocess.run(command, check=True, cwd=f"{folder}/out", env=environment, stdin=silence)
    os.close(silence)
    os.close(keep_open)
    total, resident = collections.Counter(), {}
    with open(counts) as file:
        for line in file:
            name, number = line.rsplit(" ", 1)
            if name.startswith("resident:"):
                program = name.removeprefix("resident:")  # twice: a process, and the one that watches it
                resident[program] = max(resident.get(program, 0), int(number))
            else:
                total[os.path.basename(name)] += int(number)
    return total, resident


def fits(folder, resident):
    """Whether all programs are there and none took more than planned."""
    with open(f"{folder}/out/plan.json") as file:
        plan = json.load(file)
    ok = len(resident) == len(plan["ranks"])
    for rank, planned in enumerate(plan["ranks"]):
        most = planned["process_bytes"] + sum(plan["stages"][stage]["memory_bytes"] for stage in planned["stages"])
        took = resident.get(f"stage-{rank:02}", 0)
        print(f"  rank {rank}: {took / 1e6:.1f} MB resident, {most / 1e6:.1f} planned")
        ok &= 0 < took <= most
        ok &= all(plan["stages"][stage]["memory_limit_bytes"] == (1 << 30) - planned["process_bytes"]
                  for stage in planned["stages"])
    return ok


def check(skycc, library, folder, devices, compile_options, run_options):
    with open(f"{folder}/cluster.yaml", "w") as file:
        file.write("devices:\n  - {name: device, count: %d, threads: 2, memory: 1GiB, reserve: auto}\n" % devices)
    command = [
        skycc, "compile", f"{folder}/model.onnx", "-d", f"{folder}/cluster.yaml", "-o", f"{folder}/out", "--quiet"
    ]
    command += ["--dim", "batch=2", "--dim", f"seq={SEQUENCE}", "--microbatches", "4", "--init", "normal:0.02"]
    subprocess.run(command + compile_options, check=True)
    few, _ = count(folder, FEW, library, run_options)
    many, resident = count(folder, MANY, library, run_options)
    if not any(name.startswith("stage-") for name in few):
        sys.exit(f"nothing was counted: {few}")
    more = {name: many[name] - few[name] for name in many if many[name] != few[name]}
    own = {name: number for name, number in more.items() if not name.startswith(MPI)}
    others = sum(number for name, number in more.items() if name.startswith(MPI))
    print(
        f"{devices} ranks {run_options}: {MANY - FEW} more steps: MPICH {others:+} allocations, others {own or 'none'}")
    return fits(folder, resident) and not own


def main():
    skycc, library = map(os.path.abspath, sys.argv[1:])
    ok = True
    with tempfile.TemporaryDirectory() as folder:
        model = ["--layers", "2", "--hidden", "32", "--heads", "2", "--vocab", "50", "--weights", "none"]
        subprocess.run([skycc, "bert", *model, "-o", f"{folder}/model.onnx"], check=True)
        write_data(f"{folder}/data")
        for devices in (1, 2):
            even = ["--allocate", "even"]
            ok &= check(skycc, library, folder, devices, even, "")
            ok &= check(skycc, library, folder, devices, even + ["--dropout", "0.1"], "--clip 1 --schedule-lr linear")
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
