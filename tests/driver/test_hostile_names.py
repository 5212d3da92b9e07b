#!/usr/bin/python3
"""Names and labels from files never reach the terminal raw, whichever command prints them: no control character, no
newline but those of the format, no C1, no bidirectional control, nothing that is not UTF-8.

    tests/driver/test_hostile_names.py SKYCC FOLDERS

FOLDERS is tests/data/huggingface.
"""
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unicodedata

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "common"))
from checks import failed, require  # noqa: E402
import safetensors_files  # noqa: E402

skycc, folders = map(os.path.abspath, sys.argv[1:3])
FORGED = "skycc: error: forged"
EVIL = f"x\n{FORGED}\r\t\x1b[31m\x07\x7f\u0085\u009b1m\u202ey\u2066z\u2028"
ODD = f"x {FORGED} \u0085\u009b1m\u202ey\u2066z\u2028"  # what is left of it in models, whose names may hold no C0


def is_clean(text):
    return all(character == "\n" or character.isascii() and character.isprintable() or
               ord(character) >= 0xA0 and unicodedata.category(character) not in ("Cc", "Cf", "Zl", "Zp")
               for character in text)


def call(*arguments, crlf=False, mentions="forged", program=None, **options):
    result = subprocess.run([program or skycc, *arguments], capture_output=True, stdin=subprocess.DEVNULL, **options)
    for name, output in (("stdout", result.stdout), ("stderr", result.stderr)):
        if crlf:
            output = output.replace(b"\r\n", b"\n")
        try:
            text = output.decode()
        except UnicodeDecodeError as error:
            require(False, arguments, name, "is not UTF-8:", error)
            continue
        require(is_clean(text), arguments, name, repr(text))
        require(not any(line.startswith(FORGED) for line in text.split("\n")), arguments, name, "is forged")
    if mentions:  # otherwise the test would show nothing
        require(mentions.encode() in result.stdout + result.stderr, arguments, "does not say the name:",
                result.stdout + result.stderr)
    return result


def graph(path, operator="Relu"):
    weight = numpy_helper.from_array(np.eye(4, dtype="f4") * 2 + 0.1, f"w{ODD}")
    nodes = [helper.make_node("MatMul", [f"in{ODD}", weight.name], ["h"], name=f"node{ODD}"),
             helper.make_node(operator, ["h"], [f"out{ODD}"], name=f"op{ODD}")]
    made = helper.make_graph(
        nodes, f"g{ODD}", [helper.make_tensor_value_info(f"in{ODD}", TensorProto.FLOAT, [f"dim{ODD}", 4])],
        [helper.make_tensor_value_info(f"out{ODD}", TensorProto.FLOAT, [f"dim{ODD}", 4])], [weight])
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)]), path)


def written(path, crlf=False, mentions="forged"):
    """A file for people."""
    with open(path, "rb") as file:
        text = file.read().replace(b"\r\n", b"\n") if crlf else file.read()
    text = text.decode()
    require(mentions in text, path, "does not say the name")
    require(is_clean(text), path, [repr(line) for line in text.split("\n") if not is_clean(line)][:3])
    require(not any(line.startswith(FORGED) for line in text.split("\n")), path, "is forged")


def ranks():
    """What stage programs say of names of the model, of its data and of files; what is in the report and the log."""
    loss = ("--loss", f"output:out{ODD}")
    graph("scalar.onnx", operator="Relu")
    model = onnx.load("scalar.onnx")
    last = f"out{ODD}"
    model.graph.node.append(helper.make_node("ReduceMean", [last], ["mean"], name="mean", keepdims=0))
    model.graph.output.append(helper.make_tensor_value_info("mean", TensorProto.FLOAT, []))
    onnx.save(model, "scalar.onnx")
    loss = ("--loss", "output:mean")
    made = call("compile", "scalar.onnx", "-d", "one.yaml", *loss, "--dim", f"dim{ODD}=2", "--microbatches", "1", "-o",
                "job", "--report", "job.html", mentions=None)
    require(made.returncode == 0, made.stderr)
    written("job.html", mentions="bound")
    train = dict(program="job/train")
    good = np.random.default_rng(1).normal(size=(8, 4)).astype("f4")
    safetensors_files.write("good.safetensors", {f"in{ODD}": good})
    safetensors_files.write("none.safetensors", {"x": good})
    safetensors_files.write("wide.safetensors", {f"in{ODD}": np.zeros((8, 5), "f4")})
    safetensors_files.write("nan.safetensors", {f"in{ODD}": good * np.float32("inf")})
    for name in ("none", "wide", "nan"):
        result = call("--data", f"{name}.safetensors", "--steps", "2", mentions="forged" if name != "nan" else None,
                      **train)
        require(result.returncode != 0, name, result.stdout, result.stderr)
    call("--data", f"absent{EVIL}", **train)
    call("--data", "good.safetensors", "--log", f"absent{EVIL}/log.csv", "--steps", "1", **train)
    call("--data", "good.safetensors", f"--{ODD}", **train)
    os.mkdir(f"at{EVIL}")
    kept = f"at{EVIL}/kept"
    require(call("--data", "good.safetensors", "--checkpoint", kept, "--steps", "2", **train).returncode == 0, kept)
    with open(f"{kept}/step-00000002/MANIFEST.json", "a") as file:
        file.write(EVIL)
    call("--data", "good.safetensors", "--checkpoint", kept, "--steps", "3", "--resume", **train)


def federations():
    """Names in federation.yaml, and what coordinator and members say of odd files."""
    for name in ("paris", "coordinator"):
        subprocess.run([skycc, "key", name], check=True, capture_output=True)
    key = {name: open(f"{name}.pub").read().strip() for name in ("paris", "coordinator")}
    for site, address, further in [(EVIL, "127.0.0.1:1", ""), (ODD, "127.0.0.1:1", ""), ("paris", EVIL, ""),
                                   ("paris", ODD, ""), ("paris", "127.0.0.1:1", EVIL)]:
        with open("f.yaml", "w") as file:
            json.dump({"sites": [{"name": site, "cluster": "one.yaml", "key": key["paris"], "rows_per_step": 2}],
                       "coordinator": {"address": address, "key": key["coordinator"]}, "rounds": 1, "local_steps": 1,
                       "aggregate": "plain", **({further: 1} if further else {})}, file)
        result = call("federate", "scalar.onnx", "-c", "f.yaml", "--loss", "output:mean", "--dim",
                      f"dim{ODD}=2", "-o", "fed", mentions="forged" if further else None)
        require(result.returncode in (1, 2), result.stdout, result.stderr)
    with open("f.yaml", "w") as file:
        json.dump({"sites": [{"name": "paris", "cluster": "one.yaml", "key": key["paris"], "rows_per_step": 2}],
                   "coordinator": {"address": "127.0.0.1:1", "key": key["coordinator"]}, "rounds": 1,
                   "local_steps": 1, "aggregate": "plain"}, file)
    made = call("federate", "scalar.onnx", "-c", "f.yaml", "--loss", "output:mean", "--dim", f"dim{ODD}=2",
                "-o", "fed", mentions=None)
    require(made.returncode == 0, made.stderr)
    os.rename("fed", f"fed{EVIL}")
    call("coordinate", f"fed{EVIL}/coordinator", "--key", f"absent{EVIL}")
    call("coordinate", f"fed{EVIL}/coordinator", "--log", f"absent{EVIL}/log")
    call("--join", "--data", "good.safetensors", "--checkpoint", "joined", "--key", f"absent{EVIL}",
         program=f"fed{EVIL}/paris/train")


def models():
    graph("m.onnx")
    graph("unknown.onnx", operator=f"Odd{ODD}")
    call("check", "m.onnx", "-v")
    call("check", "m.onnx", "--json")
    call("check", "unknown.onnx")
    call("check", "unknown.onnx", "--json")
    call("check", "m.onnx", "--dim", f"{ODD}=2")
    call("check", f"absent{EVIL}.onnx")
    with open("one.yaml", "w") as file:
        file.write("devices: [{name: a, memory: 1GiB}]\n")
    loss = ("--loss", f"output:out{ODD}")
    call("compile", "m.onnx", "-d", "one.yaml", *loss, "--dim", f"dim{ODD}=2", "--emit=graph", "-o", "-")
    call("compile", "m.onnx", "-d", "one.yaml", "--loss", f"output:{ODD}", "-o", "out")
    call("compile", "m.onnx", "-d", "one.yaml", *loss, "--freeze", EVIL, "-o", "out", mentions=None)
    call("run", "m.onnx", "--inputs", "absent.safetensors", "-o", "out", mentions=None)
    safetensors_files.write("bad.safetensors", {f"in{ODD}": np.zeros((2, 5), "f4")})
    call("run", "m.onnx", "--inputs", "bad.safetensors", "-o", "out")
    call("run", "m.onnx", "--inputs", "bad.safetensors", "-o", "out", "--no-gradient-row", f"{ODD}=1")
    with open("odd.yaml", "w") as file:
        file.write("devices: [{name: a, " + json.dumps(EVIL) + ": 1}]\n")
    call("compile", "m.onnx", "-d", "odd.yaml", "-o", "out")
    call(EVIL)
    call("check", f"--{ODD}")


def plans():
    devices = [{"name": f"d{i}{EVIL}", "slowdown": 1.0, "memory_bytes": 10000, "region": f"r{i}{EVIL}"}
               for i in range(2)]
    layers = [{
        "name": f"l{i}{EVIL}", "forward_s": 0.01, "backward_s": 0.02, "update_s": 0, "memory_bytes": 6000,
        "output_bytes": 10
    } for i in range(2)]
    links = {"regions": [device["region"] for device in devices], "latency_s": [[0, 0.01], [0.01, 0]],
             "bandwidth_Bps": [[1e9, 1e9], [1e9, 1e9]]}
    costs = {
        "format": "skycc.costs/1", "name": f"c{EVIL}", "microbatches": 4, "layers": layers, "devices": devices,
        "links": links
    }
    with open("costs.json", "w") as file:
        json.dump(costs, file)
    for report in ("text", "json", "html", "svg"):
        call("plan", "--costs", "costs.json", "--report", report, "-o", "plan.json")
    for report in ("html", "svg", "txt"):
        call("plan", "--costs", "costs.json", "--report", f"report.{report}", "-o", "plan.json", mentions=None)
        if os.path.exists(f"report.{report}"):
            written(f"report.{report}")
    call("explain", "plan.json", mentions=None)
    call("verify", "plan.json", "--costs", "costs.json", mentions=None)
    call("diff", "plan.json", "plan.json", mentions=None)
    with open("plan.json") as file:
        plan = json.load(file)
    for entry in plan["stages"] + plan["ranks"]:
        entry["device"] = "other" + entry["device"]
    with open("moved.json", "w") as file:
        json.dump(plan, file)
    call("diff", "plan.json", "moved.json")
    call("verify", "moved.json", "--costs", "costs.json")
    call("plan", "--costs", "costs.json", "--without", EVIL, "-o", "-")
    devices[0]["region"] = f"nowhere{EVIL}"
    with open("bad.json", "w") as file:
        json.dump(costs, file)
    call("plan", "--costs", "bad.json")
    layers[0][f"key{EVIL}"] = 1
    layers[0]["forward_s"] = EVIL
    with open("bad.json", "w") as file:
        json.dump(costs, file)
    call("plan", "--costs", "bad.json", mentions=None)


def texts():
    os.mkdir("folder")
    for name in ("config.json", "model.safetensors"):
        shutil.copy(f"{folders}/bert/{name}", "folder")
    with open("folder/config.json") as file:
        config = json.load(file)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(5, config["vocab_size"]))]
    with open("folder/vocab.txt", "w") as file:
        file.write("\n".join(words) + "\n")
    config["id2label"] = {str(i): f"label{i}{EVIL}" for i in range(len(config["id2label"]))}
    config["label2id"] = {name: int(i) for i, name in config["id2label"].items()}
    with open("folder/config.json", "w") as file:
        json.dump(config, file)
    call("import", "folder", "-o", "seqcls.onnx", mentions=None)
    call("predict", "folder", "--text", "w5 w6", crlf=True)
    call("predict", "seqcls.onnx", "--text", "w5 w6", crlf=True)
    with open("rows.tsv", "wb") as file:
        file.write(f"sentence\nw5 {ODD}\n".encode())
    call("predict", "seqcls.onnx", "--tokenizer", "folder/vocab.txt", "--data", "rows.tsv", "--text", "sentence", "-o",
         "rows.csv", mentions=None)
    written("rows.csv", crlf=True)
    with open("labels.tsv", "wb") as file:
        file.write(b"sentence\tlabel\nw5\tone\x1b[31m\nw6\ttwo\xc2\x9b31m\nw7\tthree\xe2\x80\xae\n")
    call("tokenize", "--vocab", "folder/vocab.txt", "--text", "sentence", "--label", "label", "labels.tsv", "-o",
         "t.safetensors", "--max-length", "8", mentions="three")
    call("tokenize", "--vocab", "folder/vocab.txt", "--text", EVIL, "--label", "label", "labels.tsv", "-o",
         "t.safetensors")
    odd = EVIL.replace("/", "")
    rows = [[f"w{5 + i}", f"{i % 2}{EVIL}"] for i in range(20)]
    with open(f"table{odd}.csv", "w", newline="") as file:
        csv.writer(file).writerows([[f"text{EVIL}", f"label{EVIL}"], *rows])
    call("finetune", "folder", f"table{odd}.csv", "--text", f"text{EVIL}", "--label", f"label{EVIL}", "-o", f"run{odd}",
         "--seeds", "2", "--dry-run")
    config["model_type"] = EVIL
    with open("folder/config.json", "w") as file:
        json.dump(config, file)
    call("import", "folder", "-o", "odd.onnx")


def gateway():
    """Every string of site.json, as a gateway reads it from whoever wrote it."""
    program = os.path.join(os.path.dirname(skycc), "..", "lib", "skycc", "gateway")
    key = open("paris.pub").read().strip()
    site = {"format": "skycc.site/1", "run": "0" * 32, "site": "paris", "sites": [
        {"name": "paris", "address": "127.0.0.1:1", "key": key}], "rank_sites": [0], "largest_message_bytes": 256,
        "plan": "0" * 32, "tensors": [{"tensor": "x", "kind": "activation", "from_stage": 0, "to_stage": 0, "from": 0,
                                       "to": 0, "tag": 3, "tags": 1}]}
    for owner, names in ((site, ("format", "run", "site", "plan")), (site["sites"][0], ("name", "address", "key")),
                         (site["tensors"][0], ("tensor", "kind"))):
        for name in names:
            for changed in ({**owner, name: EVIL}, {EVIL if key == name else key: owner[key] for key in owner}):
                former = dict(owner)
                owner.clear()
                owner.update(changed)
                with open("site.json", "w") as file:
                    json.dump(site, file)
                owner.clear()
                owner.update(former)
                result = call("1", program, "--site", "site.json", "--key", "paris.key", "--local",
                              f"ipc://{os.getcwd()}/g", "--place", "place", program="timeout", mentions=None)
                require(result.returncode in (1, 6, 124), name, result.returncode, result.stderr)


with tempfile.TemporaryDirectory() as scratch:
    os.chdir(scratch)
    models()
    ranks()
    federations()
    gateway()
    plans()
    texts()
sys.exit(failed())
