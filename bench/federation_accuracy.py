#!/usr/bin/python3 -B
"""Accuracy of a federation of four sites on unequal devices (2, 1, 3 and 2), compared with one pipeline on all rows.

    bench/federation --accuracy [FOLDER] [--seeds 5] [--first-seed 0] [--rounds 5] [--local-steps 100] [--rows N]
                                [--rule LINE]... [--even] [--quick] [--build build]

FOLDER is a Hugging Face folder with the model, such as all-MiniLM-L6-v2. Without it the bench draws a BERT of four
layers of 128. Of the 9,815 pairs of models/glue, 1,000 are held out. The sites get 40, 30, 20 and 10% of the others,
and each site three times as many rows of its own label as of any other; it repeats rows of its rarer labels
(tokenize --balance). Sites take 12, 8, 8 and 4 rows a step. Two pipelines are baselines: one takes 8 rows a step, the
mean of a site, the other 32, as many as all sites together. All make the same number of steps with AdamW at the same
rate, warm-up and decay. Sums are secure. --outer is the step that the coordinator makes with the mean of the sites'
updates. --rule is a further line of federation.yaml, such as --rule "proximal: 0.01". --even deals all rows alike, so
that labels are distributed alike at all sites.

Accuracies are those of exported models on the held-out rows. Bytes are what crossed at the coordinator, compared with
4 bytes a parameter up and down in every step of every site. Training time is the share of the federation's time, from
its first round to its last, in which sites made steps; all sites share this machine, so it means something only with
enough cores for all.

Exits 0 only when at most 1% of the bytes crossed, and the mean accuracy is not below the first pipeline's by more
than one point or two standard errors of the difference, whichever is larger. --quick: one seed, three rounds of four
steps, a small model, 400 rows, and no judgement.
"""

import argparse
import csv
import glob
import json
import lzma
import math
import os
import shutil
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
SITES = {"paris": 2, "oslo": 1, "lima": 3, "kyoto": 2}
HELD_OUT, MICROBATCH, OWN_LABEL = 1000, 4, 3
RECIPE = ["--clip", "1", "--no-decay", "bias,norm", "--quiet"]


class UnequalScene(Scene):
    """The sites, each with its rows of a step. Of a site's devices each is slower than the one before."""
    allocation = []

    def __init__(self, options, model, folder):
        sites = {
            site: (devices, int(rows))
            for (site, devices), rows in zip(SITES.items(), options.site_rows.split(","), strict=True)
        }
        super().__init__(options.skycc, model, folder, sites, options.local_steps)

    def cluster(self, devices):
        device = "  - {name: d%d, threads: 1, memory: 8GiB, gflops: %g, bandwidth: 20GB/s}\n"
        return "devices:\n" + "".join(device % (i, 100 / (1 + i)) for i in range(devices))


def call(*command, **more):
    return subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL, **more
    ).stdout


def tokenize(options, folder, name, *more):
    """NAME.tsv becomes NAME.safetensors."""
    vocabulary = (
        f"{options.folder}/vocab.txt" if options.folder else f"{HERE}/../models/glue/bert-base-uncased-vocab.txt"
    )
    call(
        options.skycc, "tokenize", f"{folder}/{name}.tsv", "--vocab", vocabulary, "-q", "--text",
        "sentence1,sentence2", "--label", "gold_label", "--max-length", str(options.length), "-o",
        f"{folder}/{name}.safetensors", *more)
    pad(f"{folder}/{name}.safetensors", options.length)


def write_data(options, folder):
    """All rows, those of every site, and those held out."""
    with lzma.open(f"{HERE}/../models/glue/mnli-dev-matched-num.tsv.xz", "rt", encoding="utf-8") as file:
        head, *lines = file.readlines()
    held_out = min(HELD_OUT, options.rows // 4)
    draw = np.random.default_rng(1)
    lines = [lines[row] for row in draw.permutation(min(options.rows + held_out, len(lines)))]
    parts = {"held-out": lines[:held_out], "mnli": lines[held_out:], **{site: [] for site in SITES}}
    names = sorted({line.rstrip("\n").split("\t")[-1] for line in lines})
    weights = np.array([[share * (OWN_LABEL if site % 3 == label and not options.even else 1) for label in range(3)]
                        for site, share in enumerate(SHARES.values())])
    weights /= weights.sum(axis=0)
    for line in parts["mnli"]:
        label = names.index(line.rstrip("\n").split("\t")[-1])
        parts[draw.choice(list(SITES), p=weights[:, label])].append(line)
    for name, rows in parts.items():
        with open(f"{folder}/{name}.tsv", "w", encoding="utf-8") as file:
            file.writelines([head, *rows])
    tokenize(options, folder, "mnli")
    for name in ["held-out", *SITES]:
        tokenize(
            options, folder, name, "--labels-of", f"{folder}/mnli.safetensors",
            *(["--balance"] if name in SITES else []))
    for site in SITES:
        labels = [line.rstrip("\n").split("\t")[-1] for line in parts[site]]
        print(f"{site}: {len(labels)} rows, " + ", ".join(f"{labels.count(name)} {name}" for name in names), flush=True)


def pad(path, length):
    """To one length, which programs of a federation have."""
    rows = safetensors_files.read(path)
    safetensors_files.write(
        path,
        {
            name: np.pad(array, [(0, 0), (0, length - array.shape[1])]) if array.ndim == 2 else array
            for name, array in rows.items()
        },
        safetensors_files.metadata(path),
    )


def write_model(options, folder, seed):
    model = f"{folder}/model.onnx"
    if options.folder:
        call(options.skycc, "import", options.folder, "--head", "seqcls:3", "--seed", str(seed), "-o", model)
    else:
        layers, hidden = (2, 64) if options.quick else (4, 128)
        call(
            options.skycc, "bert", "--layers", str(layers), "--hidden", str(hidden), "--heads", "2", "--seed",
            str(seed), "-o", model)
    return model


def accuracy(options, folder, model, checkpoint):
    """Over the rows held out, whose labels are numbers into the data set's names."""
    held_out = f"{folder}/held-out.safetensors"
    rows = csv.DictReader(
        call(options.skycc, "predict", model, checkpoint, "--data", held_out, "--labels", held_out).splitlines()
    )
    names = json.loads(safetensors_files.metadata(held_out)["labels"])
    labels = safetensors_files.read(held_out)["labels"]
    return statistics.mean(row["label"] == names[label] for row, label in zip(rows, labels, strict=True))


def sizes(options):
    return [f"batch={MICROBATCH}", f"seq={options.length}"]


def run_pipeline(options, folder, model, seed, rows):
    """One pipeline of eight devices; accuracy."""
    with open(f"{folder}/all.yaml", "w", encoding="utf-8") as file:
        file.write("devices: [{name: d, count: 8, threads: 1, memory: 8GiB, gflops: 50, bandwidth: 20GB/s}]\n")
    dims = [word for size in sizes(options) for word in ("--dim", size)]
    programs, saved = f"{folder}/pipeline-{rows}", f"{folder}/saved-{rows}-{seed}"
    call(options.skycc, "compile", model, "-d", f"{folder}/all.yaml", "-o", programs, "-q", *dims, "--microbatches",
         str(rows // MICROBATCH), *options.optimizer, "--force")
    call(
        f"{programs}/train", "--data", f"{folder}/mnli.safetensors", "--steps",
        str(options.rounds * options.local_steps), "--checkpoint", saved, "--seed", str(seed), *RECIPE)
    newest = max(name for name in os.listdir(saved) if name.startswith("step-"))
    return accuracy(options, folder, model, f"{saved}/{newest}")


def training_share(folder, seed, seconds):
    """For every site, the share of the federation's seconds that its steps took.

    Logs count from a start of the stage programs, without the time between rounds.
    """
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
    made = scene.federate(home, f"rounds: {options.rounds}", f"outer: {{{options.outer}}}", *options.rule,
                          dims=sizes(options), options=options.optimizer)
    if made.returncode:
        sys.exit(made.stdout)
    elements = int(made.stdout.split(" elements")[0].split()[-1])
    start = time.monotonic()
    head = subprocess.Popen(
        [options.skycc, "coordinate", f"{home}/coordinator", "--log", f"{home}.csv", "--quiet"], cwd=folder
    )
    sites = [
        subprocess.Popen(
            [
                f"{home}/{site}/train", "--join", "--data", f"{site}.safetensors", "--checkpoint",
                f"at-{site}-{seed}", "--seed", str(seed), *RECIPE, *options.site],
            cwd=folder,
            stdin=subprocess.PIPE,
        )
        for site in SITES
    ]
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
    """(federation, bytes, training, the pipelines) of every seed."""
    results, scene = [], None
    write_data(options, folder)
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        model = write_model(options, folder, seed)
        scene = scene or UnequalScene(options, model, folder)
        begun = time.monotonic()
        reached, crossed, training = run_federation(options, folder, scene, seed)
        pipelines = [run_pipeline(options, folder, model, seed, rows) for rows in options.pipelines]
        said = ", ".join(
            f"pipeline of {rows} rows {100 * value:.1f}%" for rows, value in zip(options.pipelines, pipelines)
        )
        print(f"seed {seed}: federation {100 * reached:.1f}%, {said}; {100 * crossed:.2f}% of the bytes, "
              f"{100 * training:.0f}% of the time training; {time.monotonic() - begun:.0f} s", flush=True)
        results.append((reached, crossed, training, *pipelines))
        for path in glob.glob(f"{folder}/*-{seed}/"):
            shutil.rmtree(path)
    return results


def is_as_accurate(options, rows, federation, pipeline):
    difference = statistics.mean(federation) - statistics.mean(pipeline)
    errors = [standard_error(values) for values in (federation, pipeline)]
    tolerance = max(0.01, 2 * math.hypot(*errors)) if options.seeds > 1 else math.nan
    print(
        f"federation {100 * statistics.mean(federation):.2f}%, standard error {100 * errors[0]:.2f}; "
        f"pipeline of {rows} rows {100 * statistics.mean(pipeline):.2f}%, {100 * errors[1]:.2f}; "
        f"difference {100 * difference:+.2f} points, tolerance {100 * tolerance:.2f}"
    )
    return difference >= -tolerance


def judge(options, results):
    federation, crossed, training, *pipelines = zip(*results)
    ok = [is_as_accurate(options, rows, federation, pipeline) for rows, pipeline in zip(options.pipelines, pipelines)]
    print(
        f"bytes {100 * max(crossed):.2f}% (at most 1%); training {100 * statistics.mean(training):.0f}% of the time "
        "(95% where sites have machines of their own)"
    )
    return options.quick or (all(ok[:1]) and max(crossed) <= 0.01)


def parse_options(further=None, description=__doc__):
    """Of this, and of federation_network.py, which adds some."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="FOLDER", nargs="?")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--local-steps", type=int, default=100)
    parser.add_argument("--site-rows", default="12,8,8,4", help="of a step of every site")
    parser.add_argument(
        "--outer", default="optimizer: sgd, lr: 1.8", help="what federation.yaml says of the meetings' step"
    )
    parser.add_argument("--rule", action="append", default=[], help="a further line of federation.yaml")
    parser.add_argument(
        "--site-lr", type=float, metavar="X", help="learning rate of the sites alone (default: the pipelines')")
    parser.add_argument("--even", action="store_true", help="labels are distributed alike at all sites")
    parser.add_argument(
        "--pipelines", default="8,32",
        help="rows of a step: of a site in the mean, and of all; the first is judged, none if empty")
    parser.add_argument(
        "--rate", type=float, help="of the sites' AdamW, and the pipeline's (default: 1e-4, 5e-4 of a drawn model)"
    )
    parser.add_argument(
        "--freeze", action="append", default=[], metavar="GLOB", help="do not train these parameters, here and there"
    )
    parser.add_argument("--rows", type=int, default=8815)
    parser.add_argument("--length", type=int, default=32, help="of a row, in tokens: longer ones are cut")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--build", default=os.path.join(HERE, "..", "build"))
    if further:
        further(parser)
    options = parser.parse_args()
    if options.quick:
        options.seeds, options.rounds, options.local_steps, options.rows, options.length = 1, 3, 4, 400, 32
    options.site = ["--lr", str(options.site_lr)] if options.site_lr else []
    options.pipelines = [int(rows) for rows in options.pipelines.split(",") if rows]
    options.build = os.path.abspath(options.build)
    options.skycc = os.path.abspath(f"{options.build}/bin/skycc")
    options.folder = options.folder and os.path.abspath(options.folder)
    options.optimizer = [
        "--optimizer", f"adamw:lr={options.rate or (1e-4 if options.folder else 5e-4)},weight_decay=0.01",
        "--dropout", "0.1"]
    for pattern in options.freeze:
        options.optimizer += ["--freeze", pattern]
    return options


def main():
    options = parse_options()
    with tempfile.TemporaryDirectory() as folder:
        results = measure(options, folder)
    sys.exit(0 if judge(options, results) else 1)


if __name__ == "__main__":
    main()
