#!/usr/bin/python3
"""The round in which ranks agree on the norm of the gradient: the plan of a model says what it adds, --clip 0 leaves it
out, `skycc verify` agrees, and an emulated run takes as long. Nothing depends on how busy the machine is: emulation
never ends a round too early, so a run is at least as long as its rounds.

    tests/driver/test_norm_round.py SKYCC
"""
import csv
import json
import os
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "common"))
from checks import failed, require, run  # noqa: E402
from safetensors_files import write  # noqa: E402

skycc = os.path.abspath(sys.argv[1])
CHAIN, ACROSS, STEPS, ROWS = 0.05, 0.08, 3, 4  # seconds between neighbours, and between the ends
CLUSTER = "devices:\n" + "".join(f"  - {{name: d{i}, threads: 1, memory: 1GiB, gflops: 10, region: r{i}}}\n"
                                 for i in range(3)) + f"""
links:
  - {{between: [r0, r1], latency: {1000 * CHAIN}ms, bandwidth: 100Gbit}}
  - {{between: [r1, r2], latency: {1000 * CHAIN}ms, bandwidth: 100Gbit}}
  - {{between: [r0, r2], latency: {1000 * ACROSS}ms, bandwidth: 100Gbit}}
"""
OPTIONS = [
    "model.onnx", "-d", "cluster.yaml", "--dim", "batch=2", "--dim", "seq=8", "--microbatches", "2", "--allocate",
    "even"
]


def seconds_of_run(directory, *options):
    run(f"{directory}/train", "--data", "data.safetensors", "--steps", str(STEPS), "--emulate", "--log", "log.csv",
        "--quiet", *options)
    with open("log.csv") as file:
        return float(list(csv.DictReader(file))[-1]["seconds"])


def plan(clip):
    run(skycc, "compile", *OPTIONS, "--clip", clip, "-o", f"programs{clip}", "-q")
    run(skycc, "compile", *OPTIONS, "--clip", clip, "--emit=costs", "-o", "costs.json")
    run(skycc, "plan", *OPTIONS, "--clip", clip, "-o", "plan.json")
    run(skycc, "verify", "plan.json", "--costs", "costs.json")
    with open("plan.json") as file, open(f"programs{clip}/plan.json") as compiled:
        found = json.load(file)
        require(
            json.load(compiled)["simulated_step_s"] == found["simulated_step_s"], "compile plans otherwise, --clip",
            clip)
    with open("costs.json") as file:
        return found, json.load(file)


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    with open("cluster.yaml", "w") as file:
        file.write(CLUSTER)
    run(skycc, "bert", "--layers", "2", "--hidden", "16", "--heads", "2", "--weights", "seed", "-o", "model.onnx")
    write("data.safetensors", {"input_ids": np.full((ROWS, 8), 5, "i4"), "attention_mask": np.ones((ROWS, 8), "i4"),
                               "token_type_ids": np.zeros((ROWS, 8), "i4"), "labels": np.zeros(ROWS, "i4")})
    with_clip, costs = plan("1")
    without, bare = plan("0")
    norm = with_clip["norm"]
    require("norm" not in without and "norm_bytes" not in bare and norm["bytes"] == costs["norm_bytes"],
            "--clip 0 has a round")
    require(with_clip["period_s"] == without["period_s"] and
            0 < with_clip["step_s"] - without["step_s"] < CHAIN / 100, "the objective counts more than the squares")
    require(all(a["update_s"] > b["update_s"] for a, b in zip(costs["layers"], bare["layers"]) if b["update_s"]),
            "updates without squares of gradients")
    # Three ranks: the first hands over to the second, which meets the third and hands back: two messages, one after
    # another.
    require(abs(norm["seconds"] - 2 * CHAIN) < 1e-4, norm)
    more = with_clip["simulated_step_s"] - without["simulated_step_s"]
    require(abs(more - norm["seconds"]) < 1e-3, "adds", more, "not", norm["seconds"])
    require(
        seconds_of_run("programs1") >= STEPS * (4 * CHAIN + norm["seconds"]), "the emulated run leaves the round out")
    require(seconds_of_run("programs1", "--clip", "0") >= STEPS * 4 * CHAIN, "the emulated run leaves out its links")
    os.chdir("/")
sys.exit(failed())
