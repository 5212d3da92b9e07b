#!/usr/bin/python3
"""Rows packed into lines (--dim seq=auto:N) train as padded ones do: losses, gradients and evaluation agree, with
dropout, too; the same numbers, to the last digit, come out whatever the stages, the schedule, where a run is
interrupted, and whether there is memory to keep reordered weights."""
import csv
import glob
import json
import os
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "common"))
from checks import failed, printed, require  # noqa: E402
from safetensors_files import read, write  # noqa: E402

SKYCC, DATA = sys.argv[1], sys.argv[2]
NANO = f"{DATA}/bert/bert-nano-seqcls-opset17-dyn.onnx"
ROWS, LONGEST, STEPS = 40, 16, 3
random = np.random.default_rng(5)


def make_data(longest=LONGEST, full=8):
    lengths = random.integers(3, longest + 1, ROWS)
    lengths[:full] = LONGEST  # some rows are as long as may be
    padding = np.arange(LONGEST) >= lengths[:, None]
    ids = np.where(padding, 0, random.integers(5, 256, (ROWS, LONGEST)))
    tensors = {
        "input_ids": ids, "attention_mask": ~padding, "token_type_ids": ids % 2, "labels": random.integers(0, 3, ROWS)
    }
    return {name: np.ascontiguousarray(array.astype("i4")) for name, array in tensors.items()}, lengths


def cluster(name, devices, keep="", memory="1GiB"):
    with open(name, "w") as file:
        file.write("devices:\n")
        file.writelines(f"  - {{name: d{d}, gflops: 1, memory: {memory}}}\n" for d in range(devices))
        file.write("default_link: {latency: 1us, bandwidth: 100Gbit}\n" + keep)


def compile_model(directory, devices=1, lengths=f"auto:{LONGEST}", *options, keep="", memory="1GiB"):
    cluster("cluster.yaml", devices, keep, memory)
    packed = ("--lengths", "data.safetensors") if "auto" in lengths else ()
    return printed(SKYCC, "compile", NANO, "-d", "cluster.yaml", "-o", directory, "--dim", "batch=4", "--dim",
               f"seq={lengths}", "--microbatches", "2", "--replicas", "1", *packed, *options)


def train(directory, *options, steps=STEPS):
    printed(f"{directory}/train", "--data", "data.safetensors", "--eval-data", "data.safetensors", "--steps",
            str(steps), "--log", f"{directory}.csv", "--quiet", *options)
    with open(f"{directory}.csv") as file:
        return list(csv.DictReader(file))


def parameters(directory):
    tensors = {}
    for file in glob.glob(f"{directory}/step-*/*.safetensors"):
        tensors.update((name, array) for name, array in read(file).items() if not name.startswith("adam"))
    return tensors


def close(a, b):
    return abs(float(a) - float(b)) <= 1e-6 * abs(float(b))


# With a row each of words and positions that gets no gradient.
TABLES = [f"m.bert.embeddings.{name}_embeddings.weight" for name in ("word", "position")]
TRAINING = ["--dropout", "0.2", "--optimizer", "sgd:lr=1", "--no-gradient-row", f"{TABLES[0]}=7", "--no-gradient-row",
            f"{TABLES[1]}=1"]


def compile_packed(directory, form):
    said = compile_model(directory, 1, f"auto:{LONGEST}", *TRAINING)
    require(f"Packing: each micro-batch holds {form} tokens" in said, said)


def compare_losses(packed_program, lengths, lines=1):
    a, b = train("padded", "--lr", "0.05"), train(packed_program, "--lr", "0.05")
    for old, new in zip(a, b):
        require(close(new["loss"], old["loss"]), f"loss {new['loss']}, padded {old['loss']}")
        require(int(old["tokens"]) == 8 * LONGEST and int(new["tokens"]) <= int(old["tokens"]), "tokens computed")
        require(old["tokens_valid"] == new["tokens_valid"], "valid tokens")
    require(close(b[-1]["eval_loss"], a[-1]["eval_loss"]) and a[-1]["eval_accuracy"] == b[-1]["eval_accuracy"],
           f"evaluation: {b[-1]}, padded {a[-1]}")
    require(sum(int(row["tokens"]) for row in b) < sum(int(row["tokens"]) for row in a), "nothing was saved")
    require(int(a[0]["tokens_valid"]) <= lengths.sum(), "valid tokens of a step")
    require(lines == 1 or any(int(row["tokens"]) % (lines * LONGEST) for row in b),
            "no micro-batch had fewer lines than others")


def test_padded_and_packed(lengths):
    """One step of plain descent shows the gradient."""
    compile_packed("packed", "3 packed sequences of 16")
    compile_model("padded", 1, str(LONGEST), *TRAINING)
    for directory in "padded", "packed":
        train(directory, "--checkpoint", f"{directory}.ckpt", steps=1)
    padded, packed = parameters("padded.ckpt"), parameters("packed.ckpt")
    require(padded.keys() == packed.keys() and len(padded) > 30 and padded.keys() >= set(TABLES), "parameters of both")
    initial = read(f"{DATA}/bert/seqcls.ref.safetensors")
    for name, before in ((name[5:], array) for name, array in initial.items() if name.startswith("init/")):
        if name in padded and padded[name].shape == before.shape:
            gradient = np.abs(before - padded[name]).max()
            worst = np.abs(padded[name] - packed[name]).max()
            require(worst <= 1e-4 * gradient + 1e-6, f"{name}: the gradient {gradient:g} differs by {worst:g}")
    for directory in "padded", "packed":
        os.remove(f"{directory}.csv")
    compare_losses("packed", lengths, 3)


def test_one_long_line():
    """Of short rows a micro-batch is one line, longer than the longest of them."""
    data, lengths = make_data(longest=6, full=2)
    write("data.safetensors", data)
    compile_packed("long", "1 packed sequence of 24")
    os.remove("padded.csv")
    compare_losses("long", lengths)


def test_any_cut():
    options = ("--dropout", "0.2")
    compile_model("one", 1, f"auto:{LONGEST}", *options)
    whole = [(row["loss"], row["eval_loss"]) for row in train("one")]
    for schedule, keep in (("gpipe", ""), ("1f1b", ""), ("zb", ""), ("auto", "keep: {inputs: d0, labels: d0}\n")):
        directory = f"{schedule}{len(keep)}"
        compile_model(directory, 3, f"auto:{LONGEST}", *options, "--schedule", schedule, keep=keep)
        require(len(glob.glob(f"{directory}/stage-0?")) > 1, f"{schedule}: one stage only")
        losses = [(row["loss"], row["eval_loss"]) for row in train(directory)]
        require(losses == whole, f"{schedule} {keep}: {losses} instead of {whole}")
    train("gpipe0", "--checkpoint", "ckpt", "--stop-after", "1")
    resumed = train("one", "--checkpoint", "ckpt", "--resume")
    require(resumed[-1]["loss"] == whole[-1][0], f"resumed: {resumed[-1]['loss']} instead of {whole[-1][0]}")


def test_kept_weights():
    """Where memory is left, products of bf16 keep weights: the first micro-batch of every step reorders them. Costs
    count what that brings, as it was measured."""
    options = (1, f"auto:{LONGEST}", "--precision", "bf16")
    compile_model("kept", *options)
    with open("kept/plan.json") as file:
        made = json.load(file)
    need = made["stages"][0]["memory_bytes"] + made["ranks"][0]["process_bytes"]
    keeping, told = [], []
    for directory, memory in ("kept", "1GiB"), ("tight", need + (64 << 10)):
        told.append("Products keep weights in the order" in compile_model(directory, *options, memory=memory))
        compile_model(f"{directory}.text", *options, "--emit=llvm", memory=memory)
        with open(glob.glob(f"{directory}.text/*.ll")[0]) as file:
            keeping.append("keeping its factor b" in file.read())
    with open("/proc/cpuinfo") as file:
        require(keeping == ["avx512_bf16" in file.read(), False], f"weights are kept: {keeping}")
    require(told == keeping, f"compile says that weights are kept: {told}")
    losses = [[(row["loss"], row["eval_loss"]) for row in train(name, "--lr", "0.05")] for name in ("kept", "tight")]
    require(losses[0] == losses[1], f"kept weights change losses: {losses}")
    printed(SKYCC, "probe", NANO, "-d", "cluster.yaml", "-o", "profile.json", "--dim", "batch=4", "--dim",
            f"seq={LONGEST}", "--precision", "bf16")
    costs = []
    for memory in "1GiB", need + (64 << 10):
        compile_model("costs.json", 1, str(LONGEST), *options[2:], "--emit=costs", "--profile", "profile.json",
                      memory=memory)
        with open("costs.json") as file:
            layers = json.load(file)["layers"]
        costs.append([sum(layer[part] for layer in layers) for part in ("forward_s", "backward_s", "update_s")])
    gain, once = sum(costs[1][:2]) - sum(costs[0][:2]), costs[0][2] - costs[1][2]
    require((gain > 0) == keeping[0] and abs(gain - once) < 1e-12, f"what kept weights bring: {costs}")


def test_rows_chosen():
    """--microbatches auto takes the smallest power of two after which doubling brings less than a tenth."""
    options = (NANO, "-d", "cluster.yaml", "--dim", "batch=1", "--dim", f"seq=auto:{LONGEST}", "--lengths",
               "data.safetensors")

    def plan(microbatches):
        printed(SKYCC, "plan", *options, "--allocate", "heuristic", "--microbatches", str(microbatches), "-o",
                "plan.json")
        with open("plan.json") as file:
            made = json.load(file)
        return made, made["rows"]["batch"] / made["step_s"]
    cluster("cluster.yaml", 3)
    rows, (before, rate) = 1, plan(1)
    while True:
        twice, faster = plan(2 * rows)
        if faster / rate < 1.1:
            break
        rows, before, rate = 2 * rows, twice, faster
    chosen, _ = plan("auto")
    gain = chosen.pop("microbatches_gain")
    require(rows > 1 and chosen == before, f"chosen: {chosen['rows']['batch']} rows a step instead of {rows}")
    require(abs(gain - (faster / rate - 1)) < 1e-6, f"said to bring {gain}, but brings {faster / rate - 1}")
    printed(SKYCC, "compile", *options, "--microbatches", "auto", "--emit", "costs", "-o", "costs.json")
    printed(SKYCC, "verify", "plan.json", "--costs", "costs.json")


def test_lengths_of_data(data, lengths):
    """Lengths given by a tensor; rows whose mask has holes take their full length."""
    write("data.safetensors", {**data, "lengths": lengths.astype("i4")})
    again = train("one")
    write("data.safetensors", data)
    require([row["loss"] for row in train("one")] == [row["loss"] for row in again], "lengths instead of the mask")
    holes = {**data, "attention_mask": data["attention_mask"].copy()}
    holes["attention_mask"][::3, 1] = 0
    write("data.safetensors", holes)
    for directory in "padded", "packed":
        printed(f"{directory}/train", "--data", "data.safetensors", "--steps", "2", "--log", f"{directory}.csv",
                "--quiet")
    with open("padded.csv") as a, open("packed.csv") as b:
        for old, new in zip(csv.DictReader(a), csv.DictReader(b)):
            require(close(new["loss"], old["loss"]), f"masks with holes: loss {new['loss']}, padded {old['loss']}")
    write("data.safetensors", {**data, "lengths": lengths.astype("i4") + LONGEST})
    require("impossible lengths" in printed("one/train", "--data", "data.safetensors", "--steps", "1", code=1),
            "wrong lengths")
    write("data.safetensors", data)


def test_refused():
    def refused(model, why, *options, code=1):
        said = printed(SKYCC, "compile", f"{DATA}/bert/{model}.onnx", "-d", "cluster.yaml", "-o", "refused", *options,
                       code=code)
        require(why in said, f"{model}: {why} is not in:\n{said}")
    short = ("--dim", "batch=4", "--dim", "seq=4,8,16")
    refused("bert-nano-seqcls-opset17-dyn-idsonly", "padding changes", *short)
    refused("bert-nano-qa-opset17-dyn", "chooses one of a row's tokens, as where an answer begins", *short, "--loss",
            "cross-entropy:start_logits:a")
    refused("bert-nano-seqcls-opset17-fix", "is fixed", *short)
    refused("bert-nano-seqcls-opset17-dyn", "needs a data set", "--dim", "batch=4", "--dim", "seq=auto:16", code=2)
    refused("bert-nano-seqcls-opset17-dyn", "--lengths needs a --dim with several", "--dim", "batch=4", "--dim",
            "seq=16", "--lengths", "data.safetensors", code=2)
    refused("bert-nano-seqcls-opset17-dyn", "more than --dim", "--dim", "batch=4", "--dim", "seq=auto:8", "--lengths",
            "data.safetensors")
    printed(SKYCC, "check", NANO, "--dim", "batch=4", "--dim", "seq=8,16", code=2)


def test_labels_on_padding(data, lengths):
    """Packing copies no padding: labels there would be counted, but not computed, and the loss too small."""
    model, labels = f"{DATA}/bert/bert-nano-tokcls-opset17-dyn.onnx", random.integers(0, 3, (ROWS, LONGEST))
    for name, dimension in (("words-padded", str(LONGEST)), ("words-packed", f"auto:{LONGEST}")):
        options = ("--lengths", "data.safetensors") if name == "words-packed" else ()
        printed(SKYCC, "compile", model, "-d", "cluster.yaml", "-o", name, "--dim", "batch=4", "--dim",
                f"seq={dimension}", "--microbatches", "2", "--allocate", "even", *options)
    ignored = np.where(np.arange(LONGEST) < lengths[:, None], labels, -100)
    write("data.safetensors", {**data, "labels": ignored.astype("i4")})
    losses = [[float(row["loss"]) for row in train(name)] for name in ("words-padded", "words-packed")]
    require(np.allclose(*losses, rtol=1e-4), "losses of words", losses)
    row = int(np.argmax(lengths < LONGEST))
    ignored[row, lengths[row]] = 1
    write("data.safetensors", {**data, "labels": ignored.astype("i4")})
    said = printed("words-packed/train", "--data", "data.safetensors", "--steps", "1", code=1)
    require(f"'labels': row {row} has a label on token {lengths[row]}, but its {lengths[row]} tokens" in said, said)
    train("words-padded")
    write("data.safetensors", data)


with tempfile.TemporaryDirectory() as scratch:
    os.chdir(scratch)
    data, lengths = make_data()
    write("data.safetensors", data)
    test_padded_and_packed(lengths)
    test_any_cut()
    test_kept_weights()
    test_rows_chosen()
    test_lengths_of_data(data, lengths)
    test_labels_on_padding(data, lengths)
    test_refused()
    test_one_long_line()
sys.exit(failed())
