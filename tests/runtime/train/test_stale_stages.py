#!/usr/bin/python3 -B
"""A stage that was compiled otherwise does not train with the others: the rank and the setting are named.

    tests/runtime/train/test_stale_stages.py SKYCC SOURCE STEP

Compiles a small model for two devices, then again with one setting changed, and puts the second stage of the one into
the directory of the other; of the settings, every STEP-th. Every option of skycc compile is one of these settings, or
ELSEWHERE says why not. Where a setting cannot be named (weights of an external file), what differs is.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import external_data_helper, numpy_helper

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "common"))
from checks import failed, printed, require  # noqa: E402
import safetensors_files  # noqa: E402

SKYCC, SOURCE, STEP = os.path.abspath(sys.argv[1]), sys.argv[2], int(sys.argv[3])
MODEL = f"{SOURCE}/tests/data/bert/bert-nano-seqcls-opset17-dyn.onnx"
TABLE = "m.bert.embeddings.word_embeddings.weight"
BASE = ["--optimizer", "adamw:lr=1e-3", "--dropout", "0.1", "--loss", "cross-entropy"]
LORA = ["--lora", "r=2,alpha=4,targets=query"]

# The options of the first compilation, those of the second, and what the message says of the second.
OTHERS = [
    (BASE, ["--optimizer", "adamw:lr=2e-3"], "--optimizer adamw:lr=0.002"),
    (BASE, ["--optimizer", "adamw:lr=1e-3,beta1=0.8"], "beta1=0.8"),
    (BASE, ["--optimizer", "adamw:lr=1e-3,beta2=0.99"], "beta2=0.99"),
    (BASE, ["--optimizer", "adamw:lr=1e-3,eps=1e-6"], "eps=1e-06"),
    (BASE, ["--optimizer", "adamw:lr=1e-3,weight_decay=0.1"], "weight_decay=0.1"),
    (BASE, ["--optimizer", "adam:lr=1e-3"], "--optimizer adam:"),
    (BASE, ["--dropout", "0.2"], "--dropout 0.2, but rank 0 (device.0) with --dropout 0.1"),
    (BASE, ["--clip", "0.5"], "--clip 0.5"),
    (BASE, ["--precision", "bf16"], "--precision bf16"),
    (BASE, ["--no-gradient-row", f"{TABLE}=0"], f"--no-gradient-row {TABLE}=0"),
    (BASE, ["--freeze", "*pooler*"], "--freeze or --train -*pooler*"),
    (BASE, ["--loss", "cross-entropy,smoothing=0.1"], "--loss cross-entropy,smoothing=0.1"),
    (BASE, ["--loss", "cross-entropy,weights=1/1/2"], "--loss cross-entropy,weights=1/1/2"),
    (BASE + ["--init", "normal:0.02"], ["--seed", "4"], "--seed 4"),
    (BASE + ["--init", "normal:0.02"], ["--init", "normal:0.03"], "--init normal:0.03"),
    (BASE + LORA, ["--lora", "r=2,alpha=8,targets=query"], "alpha=8"),
    (BASE + LORA, ["--lora", "r=2,alpha=4,targets=query,dropout=0.1"], "dropout=0.1"),
    (BASE + LORA, ["--seed", "4"], "--seed 4"),
    (BASE + LORA, ["--frozen-weights", "int4"], "--frozen-weights int4"),
    (BASE, ["--train", "*pooler*", "--freeze", "*query*"], "--freeze or --train +*pooler* -*query*"),
    (BASE, ["--no-prune"], "--no-prune given"),
    (BASE, ["--codec", "q8"], "for another plan"),
    (BASE, ["--recompute", "layers"], "training graphs differ"),
]
# What the other options of skycc compile decide, and why ranks need not compare their text.
ELSEWHERE = {
    "the plan, which ranks compare": [
        "profile", "lengths", "batch", "microbatches", "replicas", "allocate", "objective", "time-limit", "schedule",
        "without", "add", "pin"],
    "the training graph, which ranks compare": ["dim", "logits", "keep-ties", "untie"],
    "where and on what: the same is computed": ["cluster", "target-cpu"],
    "what is written or printed besides": [
        "output", "emit", "force", "report", "depfile", "fail-above", "verbose", "quiet", "help", "help-all"],
}


def write_data():
    random = np.random.default_rng(1)
    safetensors_files.write("data", {
        "input_ids": random.integers(1, 256, (8, 8)).astype("i4"), "attention_mask": np.ones((8, 8), "i4"),
        "token_type_ids": np.zeros((8, 8), "i4"), "labels": random.integers(0, 3, 8).astype("i4")})


def compile_to(folder, *options, model=MODEL, cluster="two.yaml"):
    printed(SKYCC, "compile", model, "-d", cluster, "-o", folder, "-q", "--force", "--allocate", "even", "--dim",
            "batch=4", "--dim", "seq=8", "--microbatches", "2", *options)


def train(folder, *options, code=0):
    return printed(f"{folder}/train", "--data", "data", "--steps", "8", "--quiet", *options, code=code)


def mix(first, second):
    """The first directory with the second stage of the other."""
    shutil.rmtree("mixed", ignore_errors=True)
    shutil.copytree(first, "mixed", symlinks=True)
    for name in os.listdir(second):
        if name.startswith("stage-01"):
            shutil.copy(f"{second}/{name}", "mixed")


def expect_named(options, changed, *words):
    mix("first", "second")
    text = train("mixed", code=6)
    for word in ["rank 1 (device.1)", *words]:
        require(word in text, options, changed, "does not say", word, "but:", text)


def check_settings():
    former = None
    for options, changed, named in OTHERS[::STEP]:
        if options != former:
            compile_to("first", *options)
        former = options
        compile_to("second", *options, *changed)
        expect_named(options, changed, named)


def check_that_every_option_was_thought_of():
    listed = re.findall(r"^  (?:-\w, )?--([a-z-]+)", printed(SKYCC, "compile", "--help-all"), re.MULTILINE)
    here = {word[2:] for _, changed, _ in OTHERS for word in changed if word.startswith("--")}
    elsewhere = {name for names in ELSEWHERE.values() for name in names}
    require(len(listed) > 40 and set(listed) == here | elsewhere, "not thought of:", set(listed) ^ (here | elsewhere))
    require(not here & elsewhere, here & elsewhere)


def save_outside(scale):
    """The model with its weights in another file, which are `scale` times those of the model; the ONNX file is the
    same."""
    model = onnx.load(MODEL)
    for tensor in model.graph.initializer:
        if len(tensor.dims) == 2:
            values = numpy_helper.to_array(tensor) * np.float32(scale)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    external_data_helper.convert_model_to_external_data(model, location="weights.bin", size_threshold=0)
    if os.path.exists("weights.bin"):
        os.remove("weights.bin")
    onnx.save(model, "outside.onnx")


def check_external_weights():
    save_outside(1)
    with open("outside.onnx", "rb") as file:
        before = file.read()
    compile_to("first", *BASE, model="outside.onnx")
    os.rename("weights.bin", "former.bin")
    save_outside(2)
    with open("outside.onnx", "rb") as file:
        require(file.read() == before, "the ONNX file must be the same")
    compile_to("second", *BASE, model="outside.onnx")
    expect_named("external weights", "", "was compiled with other initial weights than rank 0")


def check_frozen_weights():
    """A run with frozen weights goes on with the same ones only, however it is cut."""
    frozen = [*BASE, "--freeze", "*layer.0*", "--freeze", "*embeddings*"]
    save_outside(1)
    compile_to("first", *frozen, model="outside.onnx")
    shutil.rmtree("kept", ignore_errors=True)
    train("first", "--checkpoint", "kept")
    compile_to("second", *frozen, model="outside.onnx", cluster="one.yaml")
    train("second", "--checkpoint", "kept", "--resume")  # in one stage
    shutil.rmtree("low", ignore_errors=True)
    compile_to("first", *BASE, *LORA, model="outside.onnx")
    train("first", "--checkpoint", "low")
    for checkpoint in ("kept", "low"):
        printed(SKYCC, "export", "outside.onnx", checkpoint, "-o", "exported.onnx")
    save_outside(2)
    for checkpoint in ("kept", "low"):
        text = printed(SKYCC, "export", "outside.onnx", checkpoint, "-o", "exported.onnx", code=1)
        require("was frozen, and had another value when the checkpoint was made" in text, text)
    for cluster in ("two.yaml", "one.yaml"):
        compile_to("second", *frozen, model="outside.onnx", cluster=cluster)
        text = train("second", "--checkpoint", "kept", "--resume", code=1)
        require("is frozen, and had another value when the checkpoint was made" in text, text)


def check_that_the_same_goes_on():
    """Compiled again, for other targets of the devices: what is computed is the same."""
    compile_to("first", *BASE)
    compile_to("second", *BASE)
    mix("first", "second")
    train("mixed")
    with open("targets.yaml", "w", encoding="utf-8") as file:
        file.write("targets: [{name: old, triple: x86_64-linux-gnu, cpu: x86-64-v2}]\n"
                   "devices: [{name: device.0, threads: 1, memory: 1GiB, gflops: 10}, "
                   "{name: device.1, threads: 1, memory: 1GiB, gflops: 10, target: old}]\n")
    compile_to("second", *BASE, cluster="targets.yaml")
    train("second")


def saved(folder, *options):
    """All bytes of the parameters after training so."""
    shutil.rmtree("saved", ignore_errors=True)
    train(folder, "--checkpoint", "saved", *options)
    ranks = sorted(name for name in os.listdir("saved/step-00000008") if name.startswith("rank-"))
    return [safetensors_files.read(f"saved/step-00000008/{name}") for name in ranks]


def same(left, right):
    return all(np.array_equal(one[name], other[name]) for one, other in zip(left, right) for name in one)


def check_that_numbers_mean_the_same_in_both_places():
    """What is compiled and what is given when training starts."""
    compile_to("first", "--optimizer", "adamw:lr=5e-5,weight_decay=0.07")
    compiled = saved("first")
    require(same(compiled, saved("first", "--lr", "5e-5", "--weight-decay", "0.07")),
            "--lr 5e-5 is not a compiled 5e-5")
    compile_to("first", "--optimizer", "adamw:weight_decay=0.07")
    require(same(compiled, saved("first")), "the default rate is not 5e-5")
    require(same(saved("first", "--lr", "3e-4"), saved("first", "--lr", "*=3e-4")), "--lr *=3e-4 is not --lr 3e-4")


def main():
    with tempfile.TemporaryDirectory(prefix="skycc-test-") as scratch:
        os.chdir(scratch)
        write_data()
        with open("two.yaml", "w", encoding="utf-8") as file:
            file.write("devices: [{name: device, count: 2, threads: 1, memory: 1GiB}]\n")
        with open("one.yaml", "w", encoding="utf-8") as file:
            file.write("devices: [{name: device, threads: 1, memory: 1GiB}]\n")
        check_that_every_option_was_thought_of()
        check_settings()
        check_external_weights()
        check_frozen_weights()
        check_that_the_same_goes_on()
        check_that_numbers_mean_the_same_in_both_places()
    sys.exit(failed())


main()
