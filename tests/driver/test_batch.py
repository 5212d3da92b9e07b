#!/usr/bin/python3
"""--batch ROWS: the user says how many rows a step has, skycc how many micro-batches they are cut into. What it chooses
is at least as good as every size that can be forced, by the allocation it searched with."""
import json
import os
import random
import re
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "common"))
from checks import LESS, failed, printed, require, run  # noqa: E402
from safetensors_files import write  # noqa: E402

SKYCC, DATA = sys.argv[1], sys.argv[2]
NANO = f"{DATA}/bert/bert-nano-seqcls-opset17-dyn.onnx"
FIXED = f"{DATA}/bert/bert-nano-seqcls-opset17-fix.onnx"


def write_cluster(devices, links=""):
    with open("cluster.yaml", "w") as file:
        file.write("devices:\n" + "".join(f"  - {{{device}}}\n" for device in devices) + links)


def plan(*options, model=NANO, sequence=("--dim", "seq=16")):
    text = printed(SKYCC, "plan", model, "-d", "cluster.yaml", "-o", "plan.json", *sequence, *options)
    with open("plan.json") as file:
        return json.load(file), text


def refused(*options, model=NANO, sequence=("--dim", "seq=16")):
    return run(SKYCC, "plan", model, "-d", "cluster.yaml", "-o", "no.json", *sequence, *options, code=2).stderr


def bytes_of(*options):
    plan(*options)
    with open("plan.json", "rb") as file:
        return file.read()


def test_forced():
    """The same plan, byte for byte, whichever two of the three numbers say it; and what cannot be."""
    wanted = bytes_of("--dim", "batch=3", "--microbatches", "4")
    require(bytes_of("--batch", "12", "--microbatches", "4") == wanted, "--batch 12 --microbatches 4 is another plan")
    require(bytes_of("--batch", "12", "--dim", "batch=3") == wanted, "--batch 12 --dim batch=3 is another plan")
    require(bytes_of("--dim", "batch=3") == bytes_of("--dim", "batch=3", "--microbatches", "8"), "8 is no default")
    for options, said in (
        (("--batch", "30", "--microbatches", "4"), "give --batch 28 or 32, or leave out --microbatches"),
        (("--batch", "3", "--microbatches", "4"), "give --batch 4, or leave out --microbatches"),
        (("--batch", "30", "--dim", "batch=8"), "give --batch 24 or 32, or leave out --dim"),
        (("--batch", "32", "--dim", "batch=8", "--microbatches", "2"), "16 rows, not --batch 32"),
        (("--batch", "0"), "--batch takes an integer"),
    ):
        require(said in refused(*options), f"{options} does not say: {said}")
    printed(SKYCC, "plan", NANO, "-d", "cluster.yaml", "--batch", "4", "--dim", "seq=16", "-o", "plan.json")
    printed(SKYCC, "compile", NANO, "-d", "cluster.yaml", "--batch", "4", "--dim", "seq=16", "--emit=costs", "-o",
            "costs.json")
    require("--batch does not go with --costs" in
            run(SKYCC, "plan", "--costs", "costs.json", "--batch", "32", code=2).stderr, "--batch went with --costs")
    printed(SKYCC, "plan", "--costs", "costs.json", "-o", "again.json")
    with open("plan.json") as a, open("again.json") as b:
        require(a.read() == b.read(), "the costs give another plan than the model")
    printed(SKYCC, "verify", "plan.json", "--costs", "costs.json")


def test_default():
    """32 rows where nothing is said; the report says what was tried."""
    default, text = plan()
    require(default["batch"]["rows"] == 32, f"the default is {default['batch']}")
    require(default == plan("--batch", "32")[0], "the default differs from --batch 32")
    rows = 32 // default["microbatches"]
    line = f"Micro-batches: {default['microbatches']} of {rows} row{'s' * (rows > 1)} (tried 1, 2, 4, 8, 16, 32)"
    require(line in text, f"the report does not say '{line}'")
    require("batch" not in plan("--dim", "batch=4")[0], "a forced micro-batch was chosen")
    contrastive = plan("--loss", "contrastive:logits:logits")[0]
    require(contrastive["microbatches"] == 1, "a loss that compares rows was cut")


def test_fixed(own):
    """A fixed-shape export keeps its micro-batch."""
    chosen, text = plan("--batch", str(own * 5), model=FIXED, sequence=())
    require(chosen["microbatches"] == 5 and f"Micro-batches: 5 of {own} rows." in text, text)
    require("fixed in the model" in refused("--batch", str(own * 5 + 1), model=FIXED, sequence=()), "no reason")
    require("leave one of them out" in refused("--batch", str(own * 5), "--microbatches", "2", model=FIXED,
                                               sequence=()), "two numbers contradict")
    require(plan("--microbatches", "3", model=FIXED, sequence=())[0]["microbatches"] == 3, "--microbatches is ignored")


def test_efficiency():
    """Estimates know that products of few rows are slower than their operations say: 2.1 times for 16 tokens."""
    write_cluster(["name: a, gflops: 100, bandwidth: 20GB/s"])
    printed(SKYCC, "bert", "--layers", "2", "--hidden", "384", "--heads", "6", "-o", "wide.onnx")
    seconds = {}
    for rows in 1, 32:
        printed(SKYCC, "compile", "wide.onnx", "-d", "cluster.yaml", "--dim", f"batch={rows}", "--dim", "seq=16",
                "--emit=costs", "-o", "costs.json")
        with open("costs.json") as file:
            device = json.load(file)["devices"][0]
        seconds[rows] = sum(device["forward_s"] + device["backward_s"])
    require(1.6 < 32 * seconds[1] / seconds[32] < 2.6, f"32 micro-batches of a row and one of 32 take {seconds}")
    alone = plan("--batch", "32", model="wide.onnx")[0]
    require(alone["microbatches"] == 1, f"one device without a memory limit cuts a step into {alone['microbatches']}")


def test_few():
    """Packed rows on one device: the fewest micro-batches of those that take at most 1% longer than the fastest."""
    write_cluster(["name: a, gflops: 100, bandwidth: 20GB/s"])
    shape = ("--layers", "3", "--hidden", "384", "--heads", "12", "--positions", "128")
    printed(SKYCC, "bert", *shape, "-o", "three.onnx")
    lengths = np.clip(np.random.default_rng(0).lognormal(3.5, 0.55, 512), 5, 128).astype("i8")
    mask = (np.arange(128) < lengths[:, None]).astype("i4")
    write("mixed.safetensors", {"attention_mask": mask})
    choice = plan("--batch", "32", "--precision", "bf16", model="three.onnx",
                  sequence=("--dim", "seq=auto:128", "--lengths", "mixed.safetensors"))[0]["batch"]
    steps = {trial["microbatches"]: trial["step_s"] for trial in choice["tried"]}
    few = min(count for count, step in steps.items() if step <= 1.01 * min(steps.values()))
    require(choice["microbatches"] == few != min(steps, key=steps.get), f"{choice} instead of {few}")


def test_memory():
    """Where memory is short: a micro-batch that fits is named, and what smaller ones would bring."""
    four = os.path.join(DATA, "..", "..", "models", "four-devices.yaml")
    printed(SKYCC, "bert", "--layers", "6", "--hidden", "384", "--heads", "12", "-o", "large.onnx")
    command = (SKYCC, "plan", "large.onnx", "-d", four, "--dim", "seq=128", "--allocate", "heuristic")
    limited = command + ("--dim", "batch=4", "--microbatches", "8")
    said = r"\(-[0-9.]+%\) +micro-batches of \d+ rows?: --batch 32, without"
    require(re.search(said, printed(*limited)), "no smaller micro-batch is advised where memory is short")
    require(": --batch 32, without" in printed(*limited, "--report", "html"), "the report as HTML does not advise it")
    changes = json.loads(run(*limited, "--report", "json").stdout)["changes_that_help"]
    require("microbatches" in [change["kind"] for change in changes],
            f"the report as JSON does not advise it: {changes}")
    error = run(*command, "--dim", "batch=16", "--microbatches", "2", code=4).stderr
    rows = re.search(r"micro-batches of (\d+) rows? would be enough: --batch 32", error)
    require(rows, f"no micro-batch that fits is named: {error}")
    printed(*command, "--batch", "32", "--microbatches", str(32 // int(rows[1])))
    run(*command, "--batch", "32", "--microbatches", "2", code=4)
    require("(tried 1, 2, 4; found nothing that fits with 8, 16, 32)" in printed(*command), "what fits is not told")
    write_cluster(["name: a, memory: 26MiB, gflops: 10"])
    printed(SKYCC, "bert", "--layers", "6", "--hidden", "128", "--heads", "4", "--vocab", "1000", "-o", "deep.onnx")
    deep = {"model": "deep.onnx", "sequence": ("--dim", "seq=128", "--batch", "2", "--allocate", "heuristic")}
    require("Micro-batches: 1 of 2 rows (tried 1, 2)" in plan(**deep)[1] and
            plan(**deep)[0]["step_s"] == plan("--recompute", "layers", **deep)[0]["step_s"],
            "sizes that fit with layers computed again are not found")
    write_cluster(["name: a"])
    unlimited = plan("--dim", "batch=4", model="wide.onnx")[1]
    require("micro-batches of" not in unlimited, f"smaller micro-batches are advised without need: {unlimited}")


def test_profile():
    """Without a forced micro-batch, probe measures a few sizes and interpolates the others."""
    write_cluster(["name: a", "name: b, slowdown: 2"])
    text = printed(SKYCC, "probe", NANO, "-d", "cluster.yaml", "--batch", "4", "--dim", "seq=16", "-o", "profile.json")
    require("measured with 1, 4 rows; interpolated: 2" in text, text)
    with open("profile.json") as file:
        kernels = set(json.load(file)["kernels"])
    for rows in 1, 2, 4:
        forced = plan("--batch", "4", "--dim", f"batch={rows}", "--profile", "profile.json")
        require("lacks" not in forced[1], f"the profile lacks {rows} rows: {forced[1]}")
    chosen, text = plan("--batch", "4", "--profile", "profile.json")
    require([trial["microbatches"] for trial in chosen["batch"]["tried"]] == [4, 2, 1] and "lacks" not in text, text)
    chosen, text = plan("--batch", "8", "--profile", "profile.json")
    require("micro-batches of 8 rows are left out, as the profile lacks them" in text and chosen["microbatches"] > 1,
            f"a size that was not measured was compared: {text}")
    printed(SKYCC, "probe", NANO, "-d", "cluster.yaml", "--dim", "batch=4", "--dim", "seq=16", "-o", "one.json")
    with open("one.json") as file:
        alone = set(json.load(file)["kernels"])
    require(alone < kernels, f"{len(alone)} kernels of one size are not among {len(kernels)} of three")


def test_packed():
    """Rows of several lengths: the packing is chosen with the number of micro-batches, and beats every forced one."""
    generator = np.random.default_rng(4)
    mask = (np.arange(16) < generator.integers(3, 17, 64)[:, None]).astype("i4")
    ids = mask * generator.integers(5, 256, mask.shape).astype("i4")
    write("rows.safetensors", {
        "input_ids": ids, "attention_mask": mask, "token_type_ids": 0 * ids,
        "labels": generator.integers(0, 3, 64).astype("i4")
    })
    write_cluster(["name: a, gflops: 1", "name: b, gflops: 2"],
                  "default_link: {latency: 10us, bandwidth: 1Gbit}\n")
    shape = {"sequence": ("--dim", "seq=auto:16", "--lengths", "rows.safetensors", "--allocate", "heuristic")}
    both = plan("--batch", "24", "--microbatches", "4", **shape)[0]
    require(both == plan("--dim", "batch=6", "--microbatches", "4", **shape)[0], "--batch 24 in 4 is another plan")
    chosen, text = plan("--batch", "24", **shape)
    require(chosen["rows"]["batch"] == 24 and chosen["batch"]["rows"] == 24, f"a step has other rows: {chosen['rows']}")
    require(re.search(r"Micro-batches: [0-9.]+ on average for 24 rows \(tried at least 1, ", text), text)
    forced = {count: plan("--batch", "24", "--microbatches", str(count), **shape)[0]["step_s"]
              for count in (1, 2, 4, 8)}
    require(chosen["step_s"] <= min(forced.values()), f"{chosen['step_s']} s is slower than one of {forced}")
    default = plan(**shape)[0]
    require(default["rows"]["batch"] == 32, f"the default has {default['rows']['batch']} rows")


def test_resume():
    """A checkpoint says how many rows a micro-batch had; a run that goes on with another size says so."""
    generator = np.random.default_rng(3)
    ids = generator.integers(5, 256, (16, 16)).astype("i4")
    write("data.safetensors", {
        "input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids),
        "labels": generator.integers(0, 3, 16).astype("i4")
    })
    write_cluster(["name: a"])
    for count in 1, 2:
        printed(SKYCC, "compile", NANO, "-d", "cluster.yaml", "-o", f"in{count}", "--batch", "8", "--dim", "seq=16",
                "--microbatches", str(count), "-q")
    train = ("--data", "data.safetensors", "--checkpoint", "saved", "--quiet")
    printed("in1/train", *train, "--steps", "2")
    with open("saved/step-00000002/MANIFEST.json") as file:
        manifest = json.load(file)
    require(manifest["microbatch"] == {"rows": 8, "length": 0}, f"the manifest says {manifest.get('microbatch')}")
    same = printed("in1/train", *train, "--steps", "3", "--resume")
    require("micro-batches" not in same, f"the same micro-batches are not the same: {same}")
    other = printed("in2/train", *train, "--steps", "4", "--resume")
    require("was made with micro-batches of 8 rows, these programs have 4" in other, f"no note of other sums: {other}")


def random_cluster(generator):
    devices = [
        f"name: d{d}, threads: {generator.choice([1, 2])}, slowdown: {generator.uniform(1, 4):.2f}, "
        f"memory: {generator.choice([1, 2, 4, 64])}MiB, region: r{d % 2}" for d in range(generator.randint(1, 4))
    ]
    links = (f"links:\n  - {{between: [r0, r1], latency: {generator.uniform(0, 3):.3f}ms, bandwidth: 100Mbit}}\n"
             if len(devices) > 1 else "")
    write_cluster(devices, links)


def test_search(cases=8):
    """The chosen number beats every divisor, by the same allocation and objective."""
    generator = random.Random(7)
    for case in range(cases):
        random_cluster(generator)
        rows, objective = generator.choice([12, 16]), generator.choice(["step", "period"])
        options = ("--allocate", "heuristic", "--objective", objective)
        forced = {}
        for count in (n for n in range(1, rows + 1) if rows % n == 0):
            command = (SKYCC, "plan", NANO, "-d", "cluster.yaml", "-o", "-", "--dim", "seq=16", "--batch", str(rows),
                       "--microbatches", str(count), *options)
            one = subprocess.run(command, capture_output=True, text=True)
            if one.returncode == 0:
                one = json.loads(one.stdout)
                forced[count] = one["step_s"] if objective == "step" else one["period_s"] * count
        if not forced:
            continue
        chosen = plan("--batch", str(rows), *options)[0]
        best = min(forced.values())
        require(forced[chosen["microbatches"]] <= best * (1 + 1e-9),
                f"case {case}: chose {chosen['microbatches']} of {forced}")
        tried = {trial["microbatches"]: trial.get("step_s", 0) for trial in chosen["batch"]["tried"]}
        require(set(tried) == {n for n in range(1, rows + 1) if rows % n == 0}, f"case {case}: tried {tried}")


def test_simulated():
    """By default the simulated step decides, where the objective of heuristic allocations prefers another size."""
    write_cluster(["name: a, threads: 2, slowdown: 3.89, memory: 2MiB, region: r0",
                   "name: b, slowdown: 3.11, memory: 1MiB, region: r1",
                   "name: c, slowdown: 1.74, memory: 2MiB, region: r0"],
                  "links:\n  - {between: [r0, r1], latency: 1.202ms, bandwidth: 100Mbit}\n")
    steps = {count: plan("--batch", "16", "--microbatches", str(count))[0]["simulated_step_s"] for count in (1, 2, 4)}
    chosen = plan("--batch", "16")[0]
    require(chosen["simulated_step_s"] <= 1.001 * min(steps.values()), f"chose {chosen['microbatches']} of {steps}")


def main():
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        write_cluster(["name: a, memory: 1GiB", "name: b, memory: 1GiB, slowdown: 2"])
        test_forced()
        test_default()
        test_fixed(4)
        if not LESS:
            test_efficiency()
            test_few()
            test_memory()
        test_profile()
        test_packed()
        test_resume()
        test_search(2 if LESS else 8)
        test_simulated()
    sys.exit(failed())


main()
