#!/usr/bin/python3
"""Federations of real sites on this host: the result of a round compared with that of each site alone, and what is
refused. tests/faults/run --federation tests sites that are killed.

    tests/federation/member/test_federation_runs.py SKYCC SOURCE
"""
import csv
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [f"{HERE}/../../common", f"{HERE}/../../driver/finetune"]
import browser  # noqa: E402
from checks import check_all, failed, printed, require  # noqa: E402
import safetensors_files  # noqa: E402
from federations import Scene  # noqa: E402

SKYCC, SOURCE = os.path.abspath(sys.argv[1]), sys.argv[2]
MODEL = f"{SOURCE}/tests/data/bert/bert-nano-seqcls-opset17-dyn.onnx"
SITES = {"paris": (1, 4), "oslo": (2, 8), "lima": (1, 4)}
# mpiexec sometimes fails at the end of a run that is very short, when it passes on the end of its input.
TRAINING = ["--seed", "1", "--lr", "1e-2", "--quiet", "--retries", "9"]
STEPS, PATIENCE = 2, 300
scene = None


def call(*arguments, code=0):
    return printed(*arguments, code=code, timeout=PATIENCE)


def wait_until(condition, what):
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            print(f"FAILED: waiting for {what}", flush=True)
            sys.exit(1)
        time.sleep(0.05)


# ---- What sites have ----

def make_inputs():
    global scene
    scene = Scene(SKYCC, MODEL, ".", SITES, STEPS)
    scene.write_rows()


def federate(folder, *rules, code=0, options=(), own=()):
    result = scene.federate(folder, *rules, options=options, own=own)
    require(result.returncode == code, f"federate: exit code {result.returncode}, not {code}: {result.stdout}")
    return result.stdout


# ---- Processes ----

class Process:
    """A process that is started again when it did not end well, as who supervises a site would."""

    def __init__(self, name, *arguments):
        self.name, self.arguments, self.starts = name, arguments, 0
        self.start()

    def start(self):
        with open(f"{self.name}.out", "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(self.arguments, stdout=log, stderr=subprocess.STDOUT)
        self.starts += 1

    def ended(self):
        code = self.process.poll()
        if code is not None and code != 0 and self.starts < 50:
            time.sleep(0.2)
            self.start()
            code = None
        return code is not None

    def said(self):
        with open(f"{self.name}.out", encoding="utf-8") as file:
            return file.read()


def site(folder, name, *more):
    return Process(f"{folder}-{name}", f"{folder}/{name}/train", "--join", "--data", f"{name}.safetensors",
                   "--checkpoint", f"{folder}-{name}", *TRAINING, *more)


def coordinator(folder, *more):
    return Process(f"{folder}-coordinator", SKYCC, "coordinate", f"{folder}/coordinator", "--log", f"{folder}.csv",
                   *more)


def finish(processes):
    wait_until(lambda: all([process.ended() for process in processes]), "the end of the federation")
    for process in processes:
        require(process.process.returncode == 0,
                f"{process.name} ends with {process.process.returncode}: {process.said()}")


def rounds_in(log):
    if not os.path.exists(log):
        return []
    with open(log, encoding="utf-8") as file:
        return file.read().split("\n")[1:-1]


def parameters(folder):
    """Of the newest checkpoint."""
    step = max(name for name in os.listdir(folder) if name.startswith("step-"))
    tensors = {}
    for name in os.listdir(f"{folder}/{step}"):
        if name.endswith(".safetensors"):
            tensors.update(safetensors_files.read(f"{folder}/{step}/{name}"))
    return {name: tensor for name, tensor in tensors.items() if not name.startswith("adam.")}


# ---- Tests ----

def rows_seen(rows, batch, steps):
    """In so many steps; what is left of an epoch is a smaller batch."""
    epoch = [min(batch, rows - first) for first in range(0, rows, batch)]
    return sum(epoch[step % len(epoch)] for step in range(steps))


def check_one_round():
    """The mean of what each site comes to alone, weighted by rows."""
    scene.write_rows(6)
    federate("mean", "rounds: 1", "outer: {optimizer: average}")
    finish([coordinator("mean")] + [site("mean", name) for name in SITES])
    model, expected, weight = safetensors_files.read("mean/coordinator/model.safetensors"), {}, 0
    for name, (_, rows) in SITES.items():
        call(f"mean/{name}/train", "--data", f"{name}.safetensors", "--checkpoint", f"alone-{name}", "--steps",
             str(STEPS), *TRAINING)
        rows = rows_seen(6, rows, STEPS)
        weight += rows
        for key, value in parameters(f"alone-{name}").items():
            expected[key] = expected.get(key, 0) + rows * value.astype("f8")
    trained = {key for key in model if not key.startswith("momentum/")}
    require(trained and trained <= set(expected), "the model has the sites' parameters")
    worst = max(np.max(np.abs(model[key] - expected[key] / weight)) for key in trained)
    require(worst < 1e-6, f"the model differs from the mean of sites by {worst}")
    moved = max(np.max(np.abs(model[key] - value)) for key, value in
                safetensors_files.read("mean/paris/start.safetensors").items())
    require(moved > 1e-3, "the model has changed")
    for name in SITES: # and each goes on from it
        here = parameters(f"mean-{name}")
        require(all(np.array_equal(here[key], model[key]) for key in trained), f"{name} has the federation's model")
    call(SKYCC, "export", MODEL, "mean/coordinator/model.safetensors", "-o", "trained.onnx")
    text = call(SKYCC, "export", MODEL, "mean", "-o", "none.onnx", code=1)
    require("hint: name its folder coordinator" in text, text)
    scene.write_rows()


def check_rates(log, first, last):
    """Of linear decay to the last of all rounds' steps, after one of warm-up."""
    with open(log, encoding="utf-8") as file:
        rates = {int(row.split(",")[0]): float(row.split(",")[2]) for row in file.read().split("\n")[1:-1]}
    for step in range(first, last + 1):
        expected = 1e-2 * (last - step + 1) / (last - 1)
        require(
            abs(rates.get(step, 0) - expected) < 1e-6, f"{log}: step {step} has rate {rates.get(step)}, not {expected}")


def check_newcomers():
    """A federation goes on with a site more: the others keep their checkpoints, and the model its momentum and what a
    codec left out of it."""
    SITES["rome"] = (1, 4)
    call(SKYCC, "key", "rome")
    shutil.copy("lima.safetensors", "rome.safetensors")
    average, follow = "outer: {optimizer: average}", ["--from", "mean/coordinator"]
    for expected, options, *rules in [
            ("has already made 1 rounds, and this federation ends after 1", [], average, "rounds: 1"),
            ("was trained with different privacy settings", ["--dp", "clip=1,noise=1"], average, "rounds: 2"),
            ("trains another model, or other parameters of it", ["--freeze", "*embeddings*"], average, "rounds: 2"),
            ("is the model after round 1, without the outer optimiser's momentum", [], "rounds: 2")]:
        text = federate("grown", *rules, options=follow + options, code=1)
        require(expected in text, text)
    text = federate("grown", average, "rounds: 2", "round_timeout: 200s", options=follow)
    require("continues with round 2 of 2" in text, text)
    for name in ["paris", "oslo", "lima"]:
        shutil.copytree(f"mean-{name}", f"grown-{name}")
    finish([coordinator("grown")] + [site("grown", name) for name in SITES])
    rows = rounds_in("grown.csv")
    require(len(rows) == 1 and rows[0].startswith("2,4,"), f"one round more, of four sites: {rows}")
    for name, rounds in [("paris", 2), ("rome", 1)]:
        step = max(entry for entry in os.listdir(f"grown-{name}") if entry.startswith("step-"))
        require(int(step[5:]) == rounds * STEPS, f"{name} has made the steps of {rounds} rounds: {step}")
    check_rates("grown-paris/log.csv", STEPS + 1, 2 * STEPS)

    path, random = "mean/coordinator/model.safetensors", np.random.default_rng(5)
    before = {
        name: random.normal(size=tensor.shape).astype("f4")
        for name, tensor in safetensors_files.read(path).items()
    }
    before.update({f"{kept}/{name}": random.normal(size=tensor.shape).astype("f4")
                   for kept in ("momentum", "remainder") for name, tensor in before.items()})
    safetensors_files.write(path, before, {**safetensors_files.metadata(path), "check": ""})
    text = federate("momentum", "rounds: 2", options=follow, code=1)
    require("has other values than skycc wrote" in text, text)
    metadata = safetensors_files.metadata(path)
    del metadata["check"]
    safetensors_files.write(path, before, metadata)
    federate("momentum", "rounds: 2", options=follow)
    after = safetensors_files.read("momentum/coordinator/model.safetensors")
    require(before.keys() == after.keys(), "values, momentum and remainder are there")
    require(all(np.array_equal(before[name], after[name]) for name in before), "and are what they were")
    start = safetensors_files.read("momentum/rome/start.safetensors")
    require(all(np.array_equal(before[name], start[name]) for name in start) and len(start) == len(before) // 3,
           "sites start from the values")
    del SITES["rome"]


def check_steps():
    """--local-steps auto: what is said is what is kept, at every site, and leaves 95% of the time for training."""
    options = ["--local-steps", "auto", "--hide-metrics"]
    text = federate("odd", "rounds: 1", options=options, code=1)
    require("local_steps: auto needs the link of site 'paris' with the coordinator" in text, text)
    said = federate("auto", "rounds: 1", "default_link: {latency: 50ms, bandwidth: 8Mbit}", options=options)
    steps, own, common = map(
        float,
        re.search(
            r"^local_steps: (\d+) is .* is oslo: .* an exchange ([\d.]+) s .* "
            r"wait another ([\d.]+) s for phases and the coordinator$",
            said, re.MULTILINE).groups())
    for name in [*SITES, "coordinator"]:
        with open(f"auto/{name}/federation.yaml", encoding="utf-8") as file:
            kept = file.read()
        require(f"\nlocal_steps: {steps:.0f}\n" in kept and "hide_metrics: true" in kept, kept)
        require(said.split("\nlocal_steps: ")[1].split("\n")[0] in kept, kept)
    with open("auto/oslo/plan.json", encoding="utf-8") as file:
        step = json.load(file)["simulated_step_s"]
    share = (own + common) / (own + common + steps * step)
    require(abs(share - 0.05) < 0.001, f"{share} of the time is on meeting")
    require(own > 2 * 4 * 28611 / 1e6, "the update and the model cross a link of 1 MB/s")


def check_deadline():
    """Sites meet with the steps that they have made by then: some, and not all. They count by their rows."""
    scene.address = "localhost:" + scene.address.split(":")[1]
    federate("short", "rounds: 2", "deadline: 300ms", options=["--local-steps", "100000"])
    finish([coordinator("short")] + [site("short", name) for name in SITES])
    rows = [list(map(float, row.split(","))) for row in open("short.csv").read().replace(",,", ",0,").split("\n")[1:-1]]
    require(len(rows) == 2, f"two rounds have been: {rows}")
    for row in rows:
        made = [count / SITES[name][1] for count, name in zip(row[8::2], SITES)]
        require(row[1] == 3 and all(1 <= steps < 100000 and steps == int(steps) for steps in made), f"steps {made}")
        require(row[2] == sum(row[8::2]), f"weight {row[2]} of rows {row[8::2]}")


def check_privacy():
    """Sites tell neither rows nor losses, nor errors that quote them, and keep the seed of their noise secret."""
    federate("private", "rounds: 2", "dp: {clip: 1, noise: 1}")
    head = coordinator("private")
    call("private/lima/train", "--join", "--data", "none.safetensors", "--checkpoint", "private-lima", *TRAINING,
         code=1)
    wait_until(lambda: "site 'lima' has ended" in head.said(), "the coordinator's being told that a site ends")
    require("has ended: something that it was given is wrong; it goes on" in head.said() and
            "none.safetensors" not in head.said(), head.said())
    finish([head] + [site("private", name) for name in SITES])
    rows = [row.split(",") for row in rounds_in("private.csv")]
    require(len(rows) == 2 and all(row[1:4] == ["3", "3", ""] and set(row[8:]) == {""} for row in rows), f"rows {rows}")
    require(all(os.stat(f"private-{name}/noise.seed").st_mode & 0o777 == 0o600 for name in SITES), "seeds are secret")


def check_elsewhere():
    """A site's directory is all that it needs: copied, and the rest out of reach, another user joins with it."""
    rules = "rounds: 1", "aggregate: plain", "outer: {optimizer: average}"
    shutil.copy(MODEL, "model.onnx")
    scene.model = "model.onnx"
    made = scene.federate("near", *rules, sites=["paris"])
    require(made.returncode == 0, made.stdout)
    finish([coordinator("near"), site("near", "paris")])
    made = scene.federate("moved", *rules, sites=["paris"])
    require(made.returncode == 0, made.stdout)
    there = tempfile.mkdtemp(prefix="skycc-elsewhere-")
    shutil.copytree("moved/paris", f"{there}/site")
    for name in ["paris.key", "paris.safetensors"]:
        shutil.copy(name, there)
    shutil.rmtree("moved/paris")
    user = 65534 if os.getuid() == 0 else os.getuid()
    for where, _, names in os.walk(there):
        for path in [where, *(os.path.join(where, name) for name in names)]:
            os.chown(path, user, -1)
    os.remove("model.onnx")
    scene.model = MODEL
    head = coordinator("moved")
    joined = subprocess.run(["site/train", "--join", "--data", "paris.safetensors", "--checkpoint", "kept", *TRAINING],
                            cwd=there, user=user, env={"PATH": os.environ["PATH"],
                                                       "HOME": there}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, timeout=PATIENCE)
    require(joined.returncode == 0, f"another user, elsewhere: {joined.stdout}")
    if joined.returncode != 0:
        head.process.terminate()
        return
    finish([head])
    one, other = (safetensors_files.read(f"{folder}/coordinator/model.safetensors") for folder in ("near", "moved"))
    require(all(np.array_equal(one[name], other[name]) for name in one), "and its model is the same")
    shutil.rmtree(there)


def check_overlap():
    """Of one site the mean is its own model: a round's result, taken late, is what it has, and no step is lost."""
    call("mean/paris/train", "--data", "paris.safetensors", "--checkpoint", "through", "--steps", str(3 * STEPS),
         *TRAINING)
    for steps in ["1", "all"]:
        folder = f"late-{steps}"
        made = scene.federate(folder, "rounds: 3", "aggregate: plain", "outer: {optimizer: average}", sites=["paris"],
                              options=["--overlap", steps])
        require(made.returncode == 0, made.stdout)
        paris = Process(f"{folder}-paris", f"{folder}/paris/train", "--join", "--data", "paris.safetensors",
                        "--eval-data", "paris.safetensors", "--checkpoint", f"{folder}-paris", "--keep", "9",
                        *[word for word in TRAINING if word != "--quiet"])
        finish([coordinator(folder), paris])
        require("what --eval-data measures stays at this site: with overlap" in paris.said(), paris.said())
        model, through, here = (safetensors_files.read(f"{folder}/coordinator/model.safetensors"),
                                parameters("through"), parameters(f"{folder}-paris"))
        trained = [key for key in model if not key.startswith("momentum/")]
        worst = max(np.max(np.abs(model[key] - through[key])) for key in trained)
        require(trained and worst < 1e-3, f"--overlap {steps}: the model differs from training through by {worst}")
        require(all(np.array_equal(model[key], here[key]) for key in trained),
                f"--overlap {steps}: the site has the model")
        made = sorted(name for name in os.listdir(f"{folder}-paris") if name.startswith("step-"))
        require((f"step-{STEPS + 1:08}" in made) == (steps == "1"), f"--overlap {steps}: checkpoints {made}")


def check_average(folder, said, status):
    """The mean of the models of the last three of four rounds, as the coordinator writes and measures it; again after a
    kill before it was written, and not of rounds that were gone back over."""
    path = f"{folder}/averaged.safetensors"
    averaged, metadata = safetensors_files.read(path), safetensors_files.metadata(path)
    kept = [safetensors_files.read(f"{folder}/rounds/round-{number:06}.safetensors") for number in (2, 3, 4)]
    require(metadata["averaged"] == "3" and metadata["round"] == "4", metadata)
    for name, tensor in averaged.items():
        mean = np.mean([model[name] for model in kept], axis=0, dtype=np.float64).astype(np.float32)
        require(np.array_equal(tensor, mean), f"{name} is not the mean of the last three rounds' models")
    require("the mean of the models of the last 3 rounds" in said, said)
    metrics = status["averaged"]
    line = f"averaged model: loss {metrics['loss']:.4f}, accuracy {metrics['accuracy']:.4f}"
    require(line in said and said.index("model after round 4: loss") < said.index(line), f"{line}: {said}")
    with open(f"{folder}/status.html", encoding="utf-8") as file:
        require("accuracy of the averaged model" in file.read(), "the status page has it, too")
    text = call(SKYCC, "export", MODEL, path, "-o", "averaged.onnx")
    require(os.path.exists("averaged.onnx"), text)
    text = call(SKYCC, "evaluate", MODEL, path, "paris.safetensors")
    require(re.search(rf"^loss +{metrics['loss']:.4f}$", text, re.M) is not None, f"{metrics}: {text}")
    with open(path, "rb") as file:
        before = file.read()
    os.remove(path)
    again = Process("again", SKYCC, "coordinate", folder, "--log", "seen.csv")
    wait_until(lambda: line in again.said(), "the averaged model, again")
    again.process.terminate()
    again.process.wait()
    with open(path, "rb") as file:
        require(file.read() == before, "written again, it is the same")
    back = Process("back", SKYCC, "coordinate", folder, "--log", "back.csv", "--from-round", "3")
    wait_until(lambda: not os.path.exists(path), "going back from the averaged model")
    back.process.terminate()
    back.process.wait()


def check_evaluation():
    """Sites and the coordinator measure the same model on the same rows, each in its own way. A site that spoils the
    model: the others refuse it, and a round is gone back over."""
    text = federate("seen", "rounds: 4", "outer: {optimizer: average}", "evaluate: {data: absent.safetensors}", code=1)
    require("absent.safetensors" in text and not os.path.exists("seen"), text)
    rows = safetensors_files.read("paris.safetensors")
    safetensors_files.write("others.safetensors", {**rows, "labels": rows["labels"] + 2})
    text = federate("seen", "rounds: 4", "evaluate: {data: others.safetensors}", code=1)
    require("others.safetensors: error: has the label 3 in row" in text and not os.path.exists("seen"), text)
    os.mkdir("weights")
    onnx.save(onnx.load(MODEL), "outside.onnx", save_as_external_data=True, location="weights/seen.bin",
              size_threshold=0)
    made = scene.federate("outside", "rounds: 1", "evaluate: {data: paris.safetensors}", model="outside.onnx",
                          options=["--freeze", "*embeddings*"])
    require(made.returncode == 0, f"a model whose frozen weights are in a file of their own: {made.stdout}")
    federate("seen", "rounds: 4", "outer: {optimizer: average}", "evaluate: {data: paris.safetensors}",
             "keep_best: accuracy", "average: 3", own=["lima"],
             options=["--freeze", "*embeddings*", "--freeze", "*layer.0*", "--frozen-weights", "int4"])
    rows = ["--eval-data", "paris.safetensors"]
    os.mkfifo("pipe")
    head = Process("seen-coordinator", SKYCC, "coordinate", "seen/coordinator", "--log", "pipe")
    with open("pipe", encoding="utf-8") as reader:
        require(reader.readline().startswith("round,sites,weight"), "a pipe is a log, which nobody else reads")
        wait_until(lambda: "model after round 0" in head.said(), "a coordinator whose log is a pipe")
        head.process.terminate()
        head.process.wait()
    head = coordinator("seen")
    os.mkdir(f"seen/coordinator/evaluation-{head.process.pid}.json")  # results need no place on the disk
    sites = [site("seen", name, *rows) for name in SITES if name != "lima"]
    wait_until(lambda: "model after round 0" in head.said(), "the first evaluation")
    spoiler = site("seen", "lima", *rows, "--lr", "1e4")
    wait_until(lambda: "site 'oslo' refuses the model after round 1" in head.said(), "a site that refuses the model")
    with open("seen/coordinator/evaluations.csv", encoding="utf-8") as file:
        measured = file.read().split("\n")[1].split(",")
    found = re.search(r"model after round 0 on (\d+) rows held out at the sites: loss ([\d.]+), accuracy ([\d.]+)",
                      head.said())
    require(found and int(found[1]) == 96, head.said())
    for here, there in zip(found.groups()[1:], measured[1:3]):
        require(abs(float(here) - float(there)) < 2e-4, f"sites measure {found[0]}, the coordinator {measured}: "
                "frozen weights are int4 at both")
    require(not os.path.exists("seen-lima/step-00000008"), "lima does not train on it either")
    for process in (head, spoiler):
        process.process.terminate()
        process.process.wait()
    text = call(SKYCC, "coordinate", "seen/coordinator", "--from-round", "7", code=1)
    require("has no model after round 7 any more" in text and "rounds kept: 0, 1" in text, text)
    head, spoiler = coordinator("seen", "--from-round", "0"), site("seen", "lima", *rows)
    finish([head, spoiler, *sites])
    require("round 4 of 4" in head.said(), head.said())
    with open("seen/coordinator/status.json", encoding="utf-8") as file:
        status = json.load(file)
    require(status["state"] == "Finished" and status["branch"] == 1 and status["round"] == 4, status)
    require([item["round"] for item in status["evaluations"]] == [0, 1, 2, 3, 4], status["evaluations"])
    best = safetensors_files.metadata("seen/coordinator/best.safetensors")["round"]
    require(int(best) == status["best"]["round"], f"the best round is {status['best']}, and {best} is kept")
    check_average("seen/coordinator", head.said(), status)
    call(SKYCC, "export", MODEL, "seen/coordinator", "-o", "exported.onnx")
    step = max(name for name in os.listdir("seen-oslo") if name.startswith("step-"))
    parts = sorted(name for name in os.listdir(f"seen-oslo/{step}") if name.endswith(".safetensors"))
    require(len(parts) == 2, f"oslo has two stages: {parts}")
    os.remove(f"seen-oslo/{step}/{parts[1]}")
    text = call(SKYCC, "export", MODEL, "seen-oslo", "-o", "part.onnx", code=1)
    require(parts[1] in text and "copy the step directories of all sites" in text, text)
    require(len([name for name in os.listdir("seen-paris") if name.startswith("step-")]) == 2, "old checkpoints go")


def check_other_rows():
    """A site whose evaluation data is replaced says so, and does not take the model for a worse one: it would wait. So
    does the coordinator."""
    made = scene.federate("other", "rounds: 6", "aggregate: plain", "outer: {optimizer: average}",
                          "evaluate: {data: paris.safetensors}", sites=["paris"])
    require(made.returncode == 0, made.stdout)
    shutil.copy("paris.safetensors", "seen.safetensors")
    head, alone = coordinator("other"), site("other", "paris", "--eval-data", "seen.safetensors")
    wait_until(lambda: len(rounds_in("other.csv")) > 1, "two rounds")
    shutil.copy("oslo.safetensors", "next.safetensors")
    os.replace("next.safetensors", "seen.safetensors")
    shutil.copy("oslo.safetensors", "next.safetensors")
    os.replace("next.safetensors", "other/coordinator/evaluate.safetensors")
    finish([head, alone])
    require(head.said().count("is not the evaluation data that former models were measured on") == 1, head.said())
    require("seen.safetensors: warning: is not the evaluation data" in alone.said(), alone.said())


def check_proximal():
    """FedProx, by hand: the second of two SGD steps also goes back by rate * X * (what the first one moved)."""
    rate, strength = 1e-2, 20
    constant = ["--schedule-lr", "constant", "--warmup", "0", "--clip", "0"]
    made = scene.federate("pulled", "rounds: 1", "aggregate: plain", "outer: {optimizer: average}",
                          f"proximal: {strength}", sites=["oslo"], options=["--optimizer", "sgd"])
    require(made.returncode == 0, made.stdout)
    finish([coordinator("pulled"), site("pulled", "oslo", *constant)])
    start = safetensors_files.read("pulled/oslo/start.safetensors")
    alone = []
    for steps in (1, STEPS):
        call("pulled/oslo/train", "--data", "oslo.safetensors", "--checkpoint", f"pulled-{steps}", "--steps",
            str(steps),
             *constant, *TRAINING)
        alone.append(parameters(f"pulled-{steps}"))
    model = safetensors_files.read("pulled/coordinator/model.safetensors")
    moved = max(np.max(np.abs(alone[0][key] - start[key])) for key in start)
    worst = max(
        np.max(np.abs(alone[1][key] - rate * strength * (alone[0][key] - start[key]) - model[key])) for key in start)
    require(moved > 1e-4 and worst < moved / 1000, f"the model is {worst} off, and a step moves by {moved}")


def check_control():
    """SCAFFOLD against NumPy: from where each site's steps ended, what the sum makes of models and control variates."""
    rate, rows = 1e-2, {name: site[1] for name, site in SITES.items()}
    constant = ["--schedule-lr", "constant", "--warmup", "0", "--clip", "0"]
    text = scene.federate("refused", "rounds: 1", "control_variates: true", "fragments: 2").stdout
    require("control_variates does not go with fragments" in text and not os.path.exists("refused"), text)
    made = scene.federate("drift", "rounds: 2", "outer: {optimizer: average}", "control_variates: true",
                          options=["--optimizer", "sgd"])
    require(made.returncode == 0, made.stdout)
    finish([coordinator("drift"), *(site("drift", name, *constant) for name in SITES)])
    start = safetensors_files.read("drift/paris/start.safetensors")
    rounds = [safetensors_files.read(f"drift/coordinator/rounds/round-00000{number}.safetensors") for number in (1, 2)]

    def mean(values):
        return {key: sum(rows[name] * values[name][key] for name in SITES) / sum(rows.values()) for key in start}

    def ends(folder, *more):
        for name in SITES:
            call(f"drift/{name}/train", "--data", f"{name}.safetensors", "--checkpoint", f"{folder}-{name}", *constant,
                 *TRAINING, *[option.replace("SITE", name) for option in more])
        return {name: parameters(f"{folder}-{name}") for name in SITES}

    def close(what, there, here, scale):
        worst = max(np.max(np.abs(there[key] - here[key])) for key in start)
        require(worst < scale / 1000, f"{what}: {worst} off, of {scale}")

    before, general = start, {key: np.zeros_like(value) for key, value in start.items()}
    own = {name: general for name in SITES}
    for number, model in enumerate(rounds):
        if number:
            safetensors_files.write("first.safetensors",
                                    {**before, **{f"control/{key}": value for key, value in general.items()}})
            for name in SITES:
                safetensors_files.write(f"first-{name}.safetensors", own[name])
                shutil.copytree(f"drift-{name}", f"hand-{name}")
                shutil.rmtree(f"hand-{name}/step-0000000{2 * STEPS}")
            steps = ends("hand", "--resume", "--steps", str(2 * STEPS), "--control", "first-SITE.safetensors",
                         "--proximal-start", "first.safetensors")
        else:
            steps = ends("without", "--steps", str(STEPS))
        after = {name: {key: own[name][key] - general[key] + (before[key] - steps[name][key]) / (STEPS * rate)
                        for key in start} for name in SITES}
        moved = max(np.max(np.abs(steps["lima"][key] - before[key])) for key in start)
        require(moved > 1e-4, f"a site moves by {moved}")
        close(f"the model of round {number + 1}", model, mean(steps), moved)
        own, general, before = after, mean(after), {key: model[key] for key in start}
        close(f"the federation's variate of round {number + 1}",
              {key: model[f"control/{key}"] for key in start}, general, moved / rate)
    for name in SITES:
        close(f"the variate of {name}", safetensors_files.read(f"drift-{name}/control.safetensors"), own[name],
              moved / rate)
    # A step by hand: it goes back by the rate times (the federation's - the site's).
    first = safetensors_files.read("first-lima.safetensors")
    general = safetensors_files.read("first.safetensors")
    call("drift/lima/train", "--data", "lima.safetensors", "--checkpoint", "one-lima", "--steps", "1", *constant,
         *TRAINING)
    call("drift/lima/train", "--data", "lima.safetensors", "--checkpoint", "corrected-lima", "--steps", "1",
         "--control", "first-lima.safetensors", "--proximal-start", "first.safetensors", *constant, *TRAINING)
    plain, corrected = parameters("one-lima"), parameters("corrected-lima")
    close("a corrected step", corrected,
          {key: plain[key] - rate * (general[f"control/{key}"] - first[key]) for key in start}, moved)
    require(any((plain[key] != corrected[key]).any() for key in start), "the step is not corrected")


def amend(folder, change, model=(), code=0):
    """Signs a change to the federation."""
    with open("change.yaml", "w", encoding="utf-8") as file:
        file.write(change)
    return call(SKYCC, "federate", *model, "--amend", "change.yaml", "-o", folder, code=code)


def check_amendments():
    """While all run, one site joins, one gets another key, which it has in time, and one leaves."""
    def holds(path, text):
        if not os.path.exists(f"amended/{path}"):
            return False
        with open(f"amended/{path}", encoding="utf-8") as file:
            return text in file.read()

    federate("amended", "rounds: 4", "outer: {optimizer: average}", "round_timeout: 200s")
    for name in ["accra", "oslo-2"]:
        call(SKYCC, "key", name)
    shutil.copy("paris.safetensors", "accra.safetensors")
    model = [MODEL, "--dim", "batch=4", "--dim", "seq=16", *scene.allocation]
    joins = (f'add: [{{name: accra, cluster: 1.yaml, key: "{scene.public_key("accra")}", rows_per_step: 4}}]\n'
             f'keys: [{{name: oslo, key: "{scene.public_key("oslo-2")}"}}]\nfrom_round: 2\n')
    text = amend("amended", "remove: [lima]\n", code=1)
    require("leaves 2 sites, and a round needs 3 (min_sites)" in text, text)
    text = amend("amended", joins, model=[*model, "--dropout", "0.3"], code=1)
    require("gives other programs than those of the sites that are there" in text, text)
    require("whose programs are made of the model" in amend("amended", joins, code=1), "a site without a model")
    text = amend("amended", joins, model=model)
    require("from round 2 on: gives 'oslo' a new key, adds 'accra'" in text and "every site consents" in text, text)
    amend("amended", "remove: [lima]\nfrom_round: 4\n")
    shutil.copy("oslo.key", "amended-oslo.key")
    shutil.copy("amended-oslo.key", "kept.key")
    processes = [coordinator("amended"), site("amended", "paris"), site("amended", "oslo", "--key", "amended-oslo.key"),
                 site("amended", "accra")]
    lima = site("amended", "lima")
    lima.starts = 50  # is not started again
    wait_until(lambda: [process.ended() for process in processes] and
               all(holds("coordinator/status.json", f'"name": "{name}",\n   "state": "withholds"') for name in SITES),
               "sites that do not consent to new keys")
    require(len(rounds_in("amended.csv")) == 1, "a round was made with new keys to which nobody has consented")
    for name in SITES:
        shutil.copytree("amended/amendments", f"amended/{name}/amendments")
    wait_until(lambda: [process.ended() for process in processes] and holds("oslo/federation.yaml", "former_key"),
               "a site whose key changes")
    os.replace("oslo-2.key", "amended-oslo.key")
    finish(processes)
    wait_until(lambda: lima.process.poll() is not None, "the site that was removed")
    require(lima.process.returncode == 6 and "was removed from the federation by an amendment" in lima.said(),
            lima.said())
    sites = [int(line.split(",")[1]) for line in rounds_in("amended.csv")]
    # Rounds do not wait for a site that comes back with its new key.
    require(len(sites) == 4 and sites[0] == sites[3] == 3 and min(sites) == 3, f"sites of rounds: {sites}")
    with open("amended.csv", encoding="utf-8") as file:
        last = list(csv.DictReader(file))[-1]
    there = [name for name in (*SITES, "accra") if last[f"rows_{name}"]]
    require(sorted(there) == ["accra", "oslo", "paris"], f"sites of the last round: {there}")
    model = safetensors_files.read("amended/coordinator/model.safetensors")
    for name in ["paris", "oslo", "accra"]:
        own = safetensors_files.read(f"amended-{name}/global.safetensors")
        require(all((own[key] == value).all() for key, value in model.items()), f"{name} has another model")
    for what in ["accra joined in round 2.", "oslo has a new key from round 2.", "lima left in round 4."]:
        require(holds("coordinator/status.html", what), f"the status page lacks: {what}")
    text = amend("amended", "remove: [accra]\nfrom_round: 4\n", code=1)
    require("begins with round 4, which is over: 4 were made" in text, text)
    text = amend("amended", "remove: [accra]\n", code=1)
    require("nothing is left to amend" in text and "federate --from" in text, text)
    for place in ["amended/coordinator", "amended-paris"]:
        left = [name for name in os.listdir(place) if name.startswith(".retired")]
        require(not left, f"{place} has {left}, which nobody will overwrite any more")
    # The key that was replaced counts no more, and is refused by name.
    serving = coordinator("amended")
    text = call("amended/oslo/train", "--join", "--data", "oslo.safetensors", "--checkpoint", "amended-again", "--key",
                "kept.key", *TRAINING, code=6)
    require("uses a key that an amendment has replaced" in text and "--key FILE" in text, text)
    serving.process.terminate()
    serving.process.wait()


def change_start(folder, change):
    with open(f"{folder}/start.safetensors", "r+b") as file:
        changed = change(file.read())
        file.seek(0)
        file.write(changed)


def give_another_start(folder):
    """Of other values in one place: refused, but for a file that does not say what it had, of an earlier skycc."""
    change_start(folder, lambda data: data[:-4] + (np.frombuffer(data[-4:], "f4") + np.float32(1e-6)).tobytes())
    text = call(f"{folder}/train", "--join", "--data", "lima.safetensors", "--checkpoint", "another", *TRAINING, code=1)
    require("has other values than skycc wrote" in text, text)
    change_start(folder, lambda data: data.replace(b'"check"', b'"chock"', 1))


def check_coded_model(folder, said, rounds):
    """Every site has the coordinator's bits, which came as changes in q6, 50 bytes for 64 values, but once at the site
    that had another start."""
    model = {name: tensor for name, tensor in safetensors_files.read(f"{folder}/coordinator/model.safetensors").items()
             if "/" not in name}
    for name in SITES:
        there = parameters(f"{folder}-{name}")
        require(all(np.array_equal(there[key], model[key]) for key in model), f"{name} has the coordinator's model")
    tiles = (sum(tensor.size for tensor in model.values()) + 63) // 64
    messages, _, sent = map(int, re.search(r"changes of the model +(\d+) +(\d+) +(\d+)", said).groups())
    head, hashes = 48, 16
    require(messages >= len(SITES) * rounds and sent == messages * (head + hashes + 50 * tiles),
            f"{messages} changes of {tiles} tiles take {sent} bytes")
    require(re.search(r"^the model +1 ", said, re.M) is not None, f"one took it as float32, once: {said}")


def starts_in(log):
    """How often stage programs were started: their clock begins anew then."""
    with open(log, encoding="utf-8") as file:
        seconds = [float(row.split(",")[3]) for row in file.read().split("\n")[1:-1]]
    return 1 + sum(this < before for before, this in zip(seconds, seconds[1:]))


def check_two_places():
    """A second start of a site is sent away and says why; the first goes on. A second coordinator is refused. Updates
    are coded and carry what sites measure, by which the best round is known. The model is coded, too."""
    federate("twice", "rounds: 2", "aggregate: plain", "codec: q4", "model_codec: q6", "keep_best: loss")
    give_another_start("twice/lima")
    os.mkdir("twice-paris")
    left = ["twice/coordinator/.retired-model.safetensors", "twice-paris/.retired-global.safetensors"]
    for path in left:
        open(path, "wb").close()
    head = coordinator("twice")
    rows = ["--eval-data", "oslo.safetensors"]
    first = site("twice", "paris", *rows)
    wait_until(lambda: os.path.exists("twice-paris/global.safetensors"), "the first start")
    require(not any(map(os.path.exists, left)), "what killed processes left to be overwritten goes")
    began = time.monotonic()
    text = call("twice/paris/train", "--join", "--data", "paris.safetensors", "--checkpoint", "twice-again", *TRAINING,
                code=6)
    require("this site runs in two places, and the one that came first stays" in text and
            "hint: end this one" in text and "paris" in text,
            text)
    require(time.monotonic() - began < 20, f"the second start ends at once, not after {time.monotonic() - began} s")
    text = call(SKYCC, "coordinate", "twice/coordinator", "--listen", "localhost:*", code=6)
    require("is in use by another coordinator" in text, text)
    finish([head, first] + [site("twice", name, *rows) for name in SITES if name != "paris"])
    require("site 'paris' runs in two places" in head.said(), head.said())
    require(first.starts == 1, f"the first start stays: {first.said()}")
    require(len(rounds_in("twice.csv")) == 2, "and all rounds are made")
    check_coded_model("twice", head.said(), 2)
    require(starts_in("twice-oslo/log.csv") == 1, "stage programs live through the meeting")
    with open("twice/coordinator/evaluations.csv", encoding="utf-8") as file:
        losses = [float(line.split(",")[1]) for line in file.read().split("\n")[1:-1]]
    with open("twice-oslo/evaluations.csv", encoding="utf-8") as file:
        own = [float(line.split(",")[1]) for line in file.read().split("\n")[1:-1]]
    require(len(losses) == 2 and np.allclose(losses, own, atol=1e-4), f"sites measure {own}, all of them {losses}")
    best = int(safetensors_files.metadata("twice/coordinator/best.safetensors")["round"])
    require(best == int(np.argmin(losses)), f"the best of {losses} is not that after round {best}")


def check_refusals():
    text = call("mean/paris/train", "--join", "--data", "paris.safetensors", "--checkpoint", "new", "--steps", "5",
                code=2)
    require("the federation says how long a site trains" in text, text)
    text = call("mean/paris/train", "--join", "--data", "paris.safetensors", code=2)
    require("--join needs --checkpoint DIR" in text, text)
    text = call("mean/paris/train", "--join", "--data", "paris.safetensors", "--checkpoint", "new", "--key", "oslo.key",
                code=1)
    require("is not the key that federation.yaml has for site 'paris'" in text, text)
    text = call("mean/paris/train", "--join", "--data", "paris.safetensors", "--checkpoint", "alone-paris", code=1)
    require("holds checkpoints of a run that is not this site's" in text, text)
    text = call(SKYCC, "coordinate", "mean/coordinator", "--key", "paris.key", code=1)
    require("does not match the coordinator's public key in federation.yaml" in text, text)
    text = call(SKYCC, "coordinate", "mean/coordinator", "--log", "federation.yaml", code=1)
    require("is not a log of this federation's rounds" in text, text)
    text = call(SKYCC, "coordinate", "mean/paris", code=1)
    require("model.safetensors" in text, text)
    text = federate("odd", "rounds: 1", "threshold: 2", code=1)
    require("threshold must be at least 3 for 3 sites" in text and not os.path.exists("odd"), text)
    text = federate("odd", "rounds: 1", options=["--microbatches", "2"], code=2)
    require("--microbatches changes nothing: every site" in text and not os.path.exists("odd"), text)
    SITES["oslo"] = (2, 6)
    text = federate("odd", "rounds: 1", code=1)
    require("rows_per_step of site 'oslo' is 6, not a multiple of the micro-batch size 4" in text, text)
    require(not os.path.exists("odd"), "nothing is left of a federation that was refused")
    os.remove("mean/oslo/member")
    text = call("mean/oslo/train", "--join", "--data", "oslo.safetensors", code=2)
    require("there is no federation to join" in text, text)


def check_stale_programs():
    """Programs of an earlier `skycc federate`, with another dropout, in a site's directory; and a whole directory of
    it."""
    def identity(folder):
        with open(f"{folder}/paris/federation.yaml", encoding="utf-8") as file:
            return next(line for line in file if line.startswith("  federation:"))
    text = federate("earlier", "rounds: 1", "fragments: 99", options=["--dropout", "0.2"])
    require(re.search(r"^fragments: \d\d, not 99: one for each parameter$", text, re.M) is not None, text)
    federate("stale", "rounds: 1", options=["--dropout", "0.1"])
    require(
        identity("earlier") != identity("stale"), "federations that compute different things have different identities")
    for name in os.listdir("earlier/paris"):
        if name.startswith("stage-"):
            shutil.copy(f"earlier/paris/{name}", "stale/paris")
    serving = coordinator("stale")
    first = Process("stale-oslo", "stale/oslo/train", "--join", "--data", "oslo.safetensors", "--checkpoint",
                    "stale-oslo", *[word for word in TRAINING if word != "--quiet"])
    wait_until(lambda: os.path.exists("stale-oslo/log.csv"), "a site that has joined")
    text = call("stale/lima/train", "--join", "--data", "lima.safetensors", "--checkpoint", "stale-lima", "--lr", "7",
                "--schedule-steps", "9", code=6)
    require("other options (--lr 7 --schedule-steps 9) than site 'oslo' (--lr" in text and
            "own_options: true" in text, text)
    text = call("stale/paris/train", "--join", "--data", "paris.safetensors", "--checkpoint", "stale-paris", *TRAINING,
                code=1)
    why = "was compiled with other settings or weights than its federation"
    require(why in text, text)
    for told in serving, first:
        wait_until(lambda: re.search(f"site 'paris' has ended: .*{why}", told.said()), "the others' being told why")
    first.process.terminate()
    first.process.wait()
    wait_until(lambda: "site 'oslo' has ended: SIGTERM" in serving.said(), "the coordinator's being told")
    serving.process.terminate()
    serving.process.wait()


def check_status_pages():
    browser.look({name: f"{name}/coordinator/status.html" for name in ("amended", "twice")}, os.getcwd(), least=1)


def main():
    scratch = tempfile.mkdtemp(prefix="skycc-test-")
    os.chdir(scratch)
    make_inputs()
    check_all((check_one_round, check_newcomers, check_steps, check_deadline, check_privacy, check_elsewhere,
               check_overlap, check_evaluation, check_other_rows, check_proximal, check_control, check_amendments,
               check_two_places, check_status_pages, check_stale_programs, check_refusals),
              not_less=(check_newcomers, check_steps, check_deadline, check_elsewhere, check_overlap, check_evaluation,
                        check_other_rows, check_proximal, check_two_places, check_status_pages, check_stale_programs))
    os.chdir("/")
    if failed():
        print(f"see {scratch}")
    else:
        shutil.rmtree(scratch)
    return failed()


sys.exit(main())
