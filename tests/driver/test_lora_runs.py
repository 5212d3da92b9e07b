#!/usr/bin/python3
"""Runs of compiled programs with frozen parameters, by --lora and by --freeze: the same losses however they are cut and
resumed, checkpoints without what is frozen, models and adapters made of them. And learning rates by name and block.

    tests/driver/test_lora_runs.py SKYCC SOURCE
"""
import json
import os
import shutil
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "common"))
from checks import failed, printed, require  # noqa: E402
import safetensors_files  # noqa: E402

SKYCC, SOURCE = os.path.abspath(sys.argv[1]), sys.argv[2]
MODEL = f"{SOURCE}/tests/data/bert/bert-nano-seqcls-opset17-dyn.onnx"
FOUR = f"{SOURCE}/models/four-devices.yaml"
LORA = ["--lora", "r=4,alpha=8,targets=query,value,dropout=0.1", "--dropout", "0.1"]
QUERY = "m.bert.encoder.layer.0.attention.self.query"


def make_data():
    random = np.random.default_rng(1)
    rows, length = 48, 16
    ends = random.integers(4, length + 1, rows)
    safetensors_files.write("data.safetensors", {
        "input_ids": random.integers(1, 256, (rows, length)).astype("i4"),
        "attention_mask": (np.arange(length) < ends[:, None]).astype("i4"),
        "token_type_ids": random.integers(0, 2, (rows, length)).astype("i4"),
        "labels": random.integers(0, 3, rows).astype("i4")})


def compile_for(folder, cluster, *options):
    printed(SKYCC, "compile", MODEL, "-d", cluster, "-o", folder, "-q", "--allocate", "even", "--dim", "batch=4",
            "--dim", "seq=16", "--microbatches", "2", "--seed", "3", *options)


def train(folder, name, *options, code=0):
    arguments = ["--data", "data.safetensors", "--seed", "1", "--lr", "1e-2", "--clip", "1", "--no-decay", "bias,norm"]
    text = printed(f"{folder}/train", *arguments, "--log", f"{name}.csv", "--checkpoint", name, "--quiet", *options,
                   code=code)
    if code:
        return text
    with open(f"{name}.csv", encoding="utf-8") as log:
        return [line.split(",")[:2] for line in log.read().splitlines()[1:]]


def saved(folder, step):
    tensors = {}
    for file in sorted(os.listdir(f"{folder}/step-{step:08}")):
        if file.startswith("rank-"):
            tensors.update(safetensors_files.read(f"{folder}/step-{step:08}/{file}"))
    return tensors


def same(left, right):
    return left.keys() == right.keys() and all(np.array_equal(left[name], right[name]) for name in left)


def check_cuts_and_resume(kind, options):
    """Returns the four stages' losses."""
    compile_for(f"{kind}-one", "one.yaml", *options)
    compile_for(f"{kind}-four", FOUR, *options)
    one = train(f"{kind}-one", f"{kind}-ck1", "--steps", "6")
    four = train(f"{kind}-four", f"{kind}-ck4", "--steps", "6", "--checkpoint-every", "3")
    require(one == four and len(one) == 6, f"{kind}: other losses in four stages: {one} {four}")
    require(same(saved(f"{kind}-ck1", 6), saved(f"{kind}-ck4", 6)), f"{kind}: other parameters from four stages")
    shutil.copytree(f"{kind}-ck4", f"{kind}-rest")
    shutil.rmtree(f"{kind}-rest/step-00000006")
    rest = train(f"{kind}-one", f"{kind}-rest", "--steps", "6", "--resume")
    require(rest == one[3:], f"{kind}: other losses in one stage from four stages' checkpoint: {rest} {one[3:]}")
    return four


def check_lora():
    check_cuts_and_resume("lora", LORA)
    compile_for("lora-words", "one.yaml", "--lora", "targets=value,query,value,dropout=0.10,alpha=8,r=4", "--dropout",
                "0.1")
    shutil.copytree("lora-ck4", "lora-again")
    shutil.rmtree("lora-again/step-00000006")
    train("lora-words", "lora-again", "--steps", "6", "--resume")
    require(same(saved("lora-again", 6), saved("lora-ck4", 6)), "--lora in other words goes on otherwise")
    compile_for("lora-other", "one.yaml", "--lora", "r=4,alpha=4,targets=query,value,dropout=0.1", "--dropout", "0.1")
    require("compile with the same --lora" in train("lora-other", "lora-again", "--steps", "9", "--resume", code=1),
           "a checkpoint of another alpha is taken")
    values = {name for name in saved("lora-ck4", 6) if not name.startswith("adam.")}
    heads = {"m.classifier.weight", "m.classifier.bias"}
    branches = {f"m.bert.encoder.layer.{layer}.attention.self.{target}.lora_{factor}.weight"
                for layer in (0, 1) for target in ("query", "value") for factor in "AB"}
    require(values == heads | branches, f"the checkpoint holds {sorted(values)}")
    first = saved("lora-ck4", 3)[f"{QUERY}.lora_A.weight"]
    require(first.shape == (4, 32) and 0.1 < np.abs(first).max() < 0.25, "A is not drawn within 1/sqrt(in)")
    require("compile with the same --lora" in train("lora-one", "freeze-ck1", "--steps", "9", "--resume", code=1),
           "a checkpoint without branches is taken")


def check_merged(step):
    """The model with the branches in its weights, in PyTorch's words W + s B A, and the adapter."""
    printed(SKYCC, "export", MODEL, "lora-ck4", "-o", "merged.onnx", "--adapter", "adapter")
    adapter = safetensors_files.read("adapter/adapter_model.safetensors")
    tensors = saved("lora-ck4", step)
    for name in adapter:
        require(np.array_equal(adapter[name], tensors[name.replace("base_model.model.", "")]), f"the adapter's {name}")
    require(len(adapter) == 10, f"the adapter holds {sorted(adapter)}")
    with open("adapter/adapter_config.json", encoding="utf-8") as file:
        config = json.load(file)
    require((config["r"], config["lora_alpha"], config["lora_dropout"]) == (4, 8, 0.1), f"{config}")
    require(config["modules_to_save"] == ["m.classifier"] and QUERY in config["target_modules"], f"{config}")
    plain = weights_of(MODEL, "plain.safetensors")
    merged = weights_of("merged.onnx", "merged.safetensors")
    names = json.loads(printed(SKYCC, "check", MODEL, "--json", "--dim", "batch=4", "--dim", "seq=16"))["parameters"]
    query = next(entry["name"] for entry in names if entry.get("alias") == QUERY + ".weight")
    change = 2 * tensors[f"{QUERY}.lora_B.weight"].astype("f8") @ tensors[f"{QUERY}.lora_A.weight"]
    found = merged[query].astype("f8") - plain[query]
    require(np.abs(found - change.T).max() < 1e-6 < np.abs(change).max(), "the merged weight")
    changed = {name for name in plain if not np.array_equal(plain[name], merged[name])}
    require(len(changed) == 6, f"{changed} changed")


def weights_of(model, output):
    """As skycc run finds them, before any step."""
    printed(SKYCC, "run", model, "--inputs", f"{SOURCE}/tests/data/bert/seqcls.ref.safetensors", "-o", output, "--loss",
         "cross-entropy", "--train", "0")
    return {name[6:]: value for name, value in safetensors_files.read(output).items() if name.startswith("param/")}


def check_freeze():
    """Nothing below the last layer is trained: there is no backward in the other stages."""
    check_cuts_and_resume("freeze", ["--freeze", "*", "--train", "*classifier*"])
    values = {name for name in saved("freeze-ck4", 6) if not name.startswith("adam.")}
    require(values == {"m.classifier.weight", "m.classifier.bias"}, f"the checkpoint holds {sorted(values)}")
    printed(SKYCC, "export", MODEL, "freeze-ck4", "-o", "head.onnx")
    plain, head = weights_of(MODEL, "plain.safetensors"), weights_of("head.onnx", "head.safetensors")
    changed = {name for name in plain if not np.array_equal(plain[name], head[name])}
    require(changed == values, f"{changed} changed")
    compile_for("all", "one.yaml")
    train("all", "all-ck", "--steps", "1")
    require("is frozen in this program" in train("freeze-one", "all-ck", "--steps", "2", "--resume", code=1),
           "values that were trained are forgotten")


def check_drawn():
    """Frozen weights that no file has are in checkpoints; branches begin as they do without --init."""
    compile_for("drawn", "one.yaml", *LORA, "--init", "normal:0.02")
    train("drawn", "drawn-ck", "--steps", "1")
    tensors = saved("drawn-ck", 1)
    require("m.bert.embeddings.word_embeddings.weight" in tensors, "drawn weights are lost")
    require(np.abs(tensors[f"{QUERY}.lora_B.weight"]).max() < 0.011, "B does not begin as zeros")


def check_rates():
    """One step of gradient descent moves a parameter by its rate: in proportion to that without rates of its own."""
    rates = ["--lr", "classifier=3e-2", "--lr", "*.bias=2e-3", "--lr-decay", "0.5"]
    for folder, cluster in (("sgd-one", "one.yaml"), ("sgd-four", FOUR)):
        compile_for(folder, cluster, "--optimizer", "sgd:lr=1e-2")
        train(folder, f"{folder}-ck", "--steps", "1", *rates)
    train("sgd-one", "sgd-plain", "--steps", "1")
    require(same(saved("sgd-one-ck", 1), saved("sgd-four-ck", 1)), "rates depend on the cut")
    start, plain, found = weights_of(MODEL, "start.safetensors"), saved("sgd-plain", 1), saved("sgd-one-ck", 1)
    listed = json.loads(printed(SKYCC, "check", MODEL, "--json", "--dim", "batch=4", "--dim", "seq=16"))["parameters"]
    for entry in listed:
        name, place = entry["name"], entry.get("alias", entry["name"])
        depth = 3 if "embeddings" in place else 2 - int(place.split(".")[4]) if ".layer." in place else 0
        rate = (0.2 if name.endswith(".bias") else 3 if "classifier" in name else 1) * 0.5 ** depth
        moved = [tensors[name].astype("f8") - start[name] for tensors in (plain, found)]
        noise = 4e-7 * max(np.abs(start[name]).max(), 1e-3)
        require(
            np.abs(moved[1] - rate * moved[0]).max() <= 1e-5 * np.abs(moved[0]).max() + noise, f"the rate of {place}")
    require(
        "matches no parameter that is trained" in train("lora-four", "no-ck", "--steps", "1", "--lr", "key=1", code=2),
        "a pattern without meaning is taken")


def check_errors():
    def refused(lora, *words, code=2):
        text = printed(SKYCC, "check", MODEL, "--lora", lora, code=code)
        require(all(word in text for word in words), f"--lora {lora}: {text}")

    refused("r=4,targets=quary", "'quary' matches no weight", "query, key, value", code=1)
    refused("r=4,targets=word_embeddings", "matches no weight of a matrix product", code=1)
    refused("r=4", "lacks targets")
    refused("targets=query,x", "lacks rank r")
    refused("r=0,targets=query", "malformed item 'r=0'")
    refused("r=4,alpha=x,targets=query", "malformed item 'alpha=x'")
    refused("r=4,beta=1,targets=query", "malformed item 'beta=1'")
    refused("r=4,targets=query,dropout=1", "malformed item 'dropout=1'")
    printed(SKYCC, "export", MODEL, "freeze-ck4", "--adapter", "none", code=1)
    printed(SKYCC, "export", MODEL, "freeze-ck4", code=2)
    require(not os.path.exists("none"), "an empty adapter was written")


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        with open("one.yaml", "w", encoding="utf-8") as file:
            file.write("devices:\n  - {name: one, threads: 1, memory: 1GiB, gflops: 50}\n")
        make_data()
        check_freeze()
        check_lora()
        check_merged(6)
        check_drawn()
        check_rates()
        check_errors()
    if not failed():
        print("the same losses however cut and resumed, checkpoints of what is trained, merged weights and adapters")
    return failed()


if __name__ == "__main__":
    sys.exit(main())
