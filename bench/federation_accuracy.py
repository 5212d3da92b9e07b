#!/usr/bin/python3 -B
"""A federation of four sites on unequal devices (2, 1, 3 and 2), beside one pipeline that has all rows.

    bench/federation --accuracy [FOLDER] [--seeds 5] [--rounds 5] [--local-steps 100] [--rows N] [--quick] [--build build]

FOLDER is a Hugging Face folder with the model, such as all-MiniLM-L6-v2; without one a BERT of four layers of 128 is drawn. Of the
9,815 pairs of models/glue 1,000 are held out. The others are dealt out unevenly (40, 30, 20 and 10%), and a site has three times as
many rows of its own label as of another. Every site takes as many steps as the pipeline does, of 32, 24, 16 and 8 rows, the pipeline
of 32; sums are secure, models are averaged (--outer). Accuracies are those of the exported models on the rows held out. Bytes are what crossed at the
coordinator, beside 4 bytes a parameter up and down in every step of every site. The time spent training is that of the sites'
steps, of the federation's from its first round to its last: all sites share this machine, so that it says something only where
there are cores for all.

Exits 0 only when the mean accuracies differ by at most the larger of one point and two standard errors of the difference, and
at most 1% of the bytes crossed. --quick: one seed, three rounds of four steps, a small model, 400 rows; nothing is judged.
"""
import argparse
import csv
import json
import lzma
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "tests", "common"))
import safetensors_files  # noqa: E402
from federations import Scene  # noqa: E402

SHARES = {"paris": 0.4, "oslo": 0.3, "lima": 0.2, "kyoto": 0.1}
SITES = {"paris": (2, 32), "oslo": (1, 24), "lima": (3, 16), "kyoto": (2, 8)}
HELD_OUT, MICROBATCH, OWN_LABEL = 1000, 8, 3
RECIPE = ["--clip", "1", "--no-decay", "bias,norm", "--quiet"]


class UnequalScene(Scene):
    """Of a site's devices each is slower than the one before."""
    allocation = []

    def cluster(self, devices):
        device = "  - {name: d%d, threads: 1, memory: 8GiB, gflops: %g, bandwidth: 20GB/s}\n"
        return "devices:\n" + "".join(device % (i, 100 / (1 + i)) for i in range(devices))


def call(*command, **more):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL, **more).stdout


def write_data(options, folder):
    """All rows, those of every site, and those held out."""
    vocabulary = f"{options.folder}/vocab.txt" if options.folder else f"{HERE}/../models/glue/bert-base-uncased-vocab.txt"
    with lzma.open(f"{HERE}/../models/glue/mnli-dev-matched-num.tsv.xz", "rt", encoding="utf-8") as file:
        lines = file.readlines()
    held_out = min(HELD_OUT, options.rows // 4)
    with open(f"{folder}/mnli.tsv", "w", encoding="utf-8") as file:
        file.writelines(lines[: 1 + options.rows + held_out])
    call(options.skycc, "tokenize", f"{folder}/mnli.tsv", "--vocab", vocabulary, "-q", "--text", "sentence1,sentence2", "--label",
         "gold_label", "--max-length", str(options.length), "--holdout", str(held_out), "-o", f"{folder}/mnli.safetensors")
    pad(f"{folder}/mnli.safetensors", options.length)
    rows = safetensors_files.read(f"{folder}/mnli.safetensors")
    draw = np.random.default_rng(1)
    weights = np.array([[share * (OWN_LABEL if site % 3 == label else 1) for label in range(3)]
                        for site, share in enumerate(SHARES.values())])
    weights /= weights.sum(axis=0)
    owner = np.array([draw.choice(len(SHARES), p=weights[:, label]) for label in rows["labels"]])
    for number, site in enumerate(SHARES):
        safetensors_files.write(f"{folder}/{site}.safetensors", {name: array[owner == number] for name, array in rows.items()})
        counts = np.bincount(rows["labels"][owner == number], minlength=3)
        print(f"{site}: {counts.sum()} rows, by label {', '.join(map(str, counts))}", flush=True)


def pad(path, length):
    """To one length, which programs of a federation have."""
    rows = safetensors_files.read(path)
    safetensors_files.write(path, {name: np.pad(array, [(0, 0), (0, length - array.shape[1])]) if array.ndim == 2 else array
                                   for name, array in rows.items()}, safetensors_files.metadata(path))


def write_model(options, folder, seed):
    model = f"{folder}/model.onnx"
    if options.folder:
        call(options.skycc, "import", options.folder, "--head", "seqcls:3", "--seed", str(seed), "-o", model)
    else:
        layers, hidden = (2, 64) if options.quick else (4, 128)
        call(options.skycc, "bert", "--layers", str(layers), "--hidden", str(hidden), "--heads", "2", "--seed", str(seed), "-o", model)
    return model


def accuracy(options, folder, model, checkpoint):
    """Over the rows held out, whose labels are numbers into the data set's names."""
    held_out = f"{folder}/mnli.holdout.safetensors"
    rows = csv.DictReader(call(options.skycc, "predict", model, checkpoint, "--data", held_out, "--labels", held_out).splitlines())
    names = json.loads(safetensors_files.metadata(held_out)["labels"])
    labels = safetensors_files.read(held_out)["labels"]
    return statistics.mean(row["label"] == names[label] for row, label in zip(rows, labels, strict=True))


def sizes(options):
    return [f"batch={MICROBATCH}", f"seq={options.length}"]


def run_pipeline(options, folder, model, seed):
    """One pipeline of eight devices; accuracy."""
    with open(f"{folder}/all.yaml", "w", encoding="utf-8") as file:
        file.write("devices: [{name: d, count: 8, threads: 1, memory: 8GiB, gflops: 50, bandwidth: 20GB/s}]\n")
    dims = [word for size in sizes(options) for word in ("--dim", size)]
    call(options.skycc, "compile", model, "-d", f"{folder}/all.yaml", "-o", f"{folder}/pipeline", "-q", *dims, "--microbatches",
         str(32 // MICROBATCH), *options.optimizer, "--force")
    call(f"{folder}/pipeline/train", "--data", f"{folder}/mnli.safetensors", "--steps", str(options.rounds * options.local_steps),
         "--checkpoint", f"{folder}/pipeline-{seed}", "--seed", str(seed), *RECIPE)
    newest = max(name for name in os.listdir(f"{folder}/pipeline-{seed}") if name.startswith("step-"))
    return accuracy(options, folder, model, f"{folder}/pipeline-{seed}/{newest}")


def training_share(folder, seed, seconds):
    """Of every site, the seconds of its steps in those that the federation took. A log counts from its process's first step."""
    shares = []
    for site in SITES:
        with open(f"{folder}/at-{site}-{seed}/log.csv", newline="", encoding="utf-8") as file:
            elapsed = [float(row["seconds"]) for row in csv.DictReader(file)]
        ends = [this for this, after in zip(elapsed, [*elapsed[1:], 0.0]) if after < this]
        shares.append(sum(ends) / seconds)
    return shares


def run_federation(options, folder, scene, seed):
    """Accuracy, the share of the bytes of averaging every step, and of the time spent training."""
    home = f"federation-{seed}"
    made = scene.federate(home, f"rounds: {options.rounds}", f"outer: {{optimizer: {options.outer}}}", dims=sizes(options),
                          options=options.optimizer)
    if made.returncode:
        sys.exit(made.stdout)
    elements = int(made.stdout.split(" elements")[0].split()[-1])
    start = time.monotonic()
    head = subprocess.Popen([options.skycc, "coordinate", f"{home}/coordinator", "--log", f"{home}.csv", "--quiet"], cwd=folder)
    sites = [subprocess.Popen([f"{home}/{site}/train", "--join", "--data", f"{site}.safetensors", "--checkpoint", f"at-{site}-{seed}",
                               "--seed", str(seed), *RECIPE], cwd=folder, stdin=subprocess.PIPE) for site in SITES]
    if any(process.wait() for process in [*sites, head]):
        sys.exit("the federation did not end well")
    seconds = time.monotonic() - start
    with open(f"{folder}/{home}.csv", newline="", encoding="utf-8") as file:
        crossed = sum(int(row["bytes_in"]) + int(row["bytes_out"]) for row in csv.DictReader(file))
    every_step = 8 * elements * len(SITES) * options.rounds * options.local_steps
    reached = accuracy(options, folder, scene.model, f"{folder}/{home}/coordinator/model.safetensors")
    return reached, crossed / every_step, min(training_share(folder, seed, seconds))


def standard_error(values):
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan


def measure(options, folder):
    """(pipeline, federation, bytes, training) of every seed."""
    results, scene = [], None
    write_data(options, folder)
    for seed in range(options.seeds):
        model = write_model(options, folder, seed)
        scene = scene or UnequalScene(options.skycc, model, folder, SITES, options.local_steps)
        begun = time.monotonic()
        result = (run_pipeline(options, folder, model, seed), *run_federation(options, folder, scene, seed))
        print(f"seed {seed}: pipeline {100 * result[0]:.1f}%, federation {100 * result[1]:.1f}%, {100 * result[2]:.2f}% of the bytes, "
              f"{100 * result[3]:.0f}% of the time training; {time.monotonic() - begun:.0f} s", flush=True)
        results.append(result)
    return results


def judge(options, results):
    pipeline, federation, crossed, training = zip(*results)
    difference = statistics.mean(federation) - statistics.mean(pipeline)
    errors = [standard_error(values) for values in (pipeline, federation)]
    tolerance = max(0.01, 2 * math.hypot(*errors)) if options.seeds > 1 else math.nan
    print(f"federation - pipeline: {100 * difference:+.2f} points (at most {100 * tolerance:.2f}); bytes {100 * max(crossed):.2f}% "
          f"(at most 1%); training {100 * statistics.mean(training):.0f}% of the time (95% where sites have machines of their own)")
    return options.quick or (abs(difference) <= tolerance and max(crossed) <= 0.01)


def parse_options(further=None, description=__doc__):
    """Of this, and of federation_network.py, which adds some."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="FOLDER", nargs="?")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--local-steps", type=int, default=100)
    parser.add_argument("--outer", choices=["nesterov", "sgd", "average"], default="average", help="optimizer of the meetings")
    parser.add_argument("--rate", type=float, help="of the sites' AdamW, and the pipeline's (default: 1e-4, 5e-4 of a drawn model)")
    parser.add_argument("--rows", type=int, default=8815)
    parser.add_argument("--length", type=int, default=32, help="of a row, in tokens: longer ones are cut")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--build", default=os.path.join(HERE, "..", "build"))
    if further:
        further(parser)
    options = parser.parse_args()
    if options.quick:
        options.seeds, options.rounds, options.local_steps, options.rows, options.length = 1, 3, 4, 400, 32
    options.build = os.path.abspath(options.build)
    options.skycc = os.path.abspath(f"{options.build}/bin/skycc")
    options.folder = options.folder and os.path.abspath(options.folder)
    options.optimizer = ["--optimizer", f"adamw:lr={options.rate or (1e-4 if options.folder else 5e-4)},weight_decay=0.01"]
    return options


def main():
    options = parse_options()
    with tempfile.TemporaryDirectory() as folder:
        results = measure(options, folder)
    sys.exit(0 if judge(options, results) else 1)


if __name__ == "__main__":
    main()
