#!/usr/bin/python3
"""Data sets that meet each other, or a model, agree on what the numbers of labels mean: names decide. A set that is
numbered otherwise gives the same evaluation as one made with --labels-of; a label that the other lacks, and tokens of
another tokenizer, are refused by name.

    tests/driver/test_data_origins.py SKYCC FOLDERS

FOLDERS is tests/data/huggingface.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "common"))
import federations  # noqa: E402
from checks import check_all, failed, require, run  # noqa: E402
from safetensors_files import read, write  # noqa: E402

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(5, 61))]
skycc, folders = map(os.path.abspath, sys.argv[1:3])


def lines(path, words):
    with open(path, "w") as file:
        file.write("\n".join(words) + "\n")


def tokenize(output, rows, *options, label="kind", vocabulary="vocab.txt"):
    lines("rows.csv", [f"text,{label}", *rows])
    run(skycc, "tokenize", "rows.csv", "--vocab", vocabulary, "--text", "text", "--label", label, "--max-length", "8",
        "-o", output, "-q", *options)


def table(*labels):
    return [f"w{5 + 3 * i % 50} w{7 + i},{label}" for i, label in enumerate(labels)]


def compile_model(model, output, *options):
    lines("here.yaml", ["devices: [{name: here, threads: 1, memory: 1GiB, gflops: 10}]"])
    run(skycc, "compile", model, "-d", "here.yaml", "-o", output, "--dim", "batch=4", "--dim", "seq=8",
        "--microbatches", "1", "-q", *options)


def evaluate(program, evaluation, data="train.safetensors", log="log.csv"):
    return subprocess.run([f"{program}/train", "--data", data, "--eval-data", evaluation, "--steps", "2", "--seed",
                           "1", "--log", log, "--quiet"], capture_output=True, text=True)


def same(program, evaluation, reference, said, data="train.safetensors"):
    """Both sets give the same log, and the first is commented upon."""
    results = [evaluate(program, name, data, f"{name}.csv") for name in (evaluation, reference)]
    logs = [np.genfromtxt(f"{name}.csv", delimiter=",", names=True)["eval_loss"] for name in (evaluation, reference)]
    require(all(result.returncode == 0 for result in results), [result.stderr for result in results])
    require(np.array_equal(logs[0], logs[1], equal_nan=True), evaluation, "is evaluated as", logs)
    require(said in results[0].stderr, evaluation, "says", results[0].stderr)


def refused(result, *reasons):
    require(result.returncode == 1 and all(reason in result.stderr for reason in reasons), reasons, "but",
            result.returncode, result.stderr)


def check_two_sets():
    compile_model("model.onnx", "programs")
    tokenize("train.safetensors", table("no", "maybe", "yes", "no", "maybe", "yes"))
    tokenize("reference.safetensors", table("yes", "no", "yes", "no"), "--labels-of", "train.safetensors")
    tokenize("two.safetensors", table("yes", "no", "yes", "no"))
    require(read("two.safetensors")["labels"].tolist() == [1, 0, 1, 0], "labels of a set alone")
    same("programs", "two.safetensors", "reference.safetensors", "by their names")
    said = evaluate("programs", "reference.safetensors").stderr
    require("warning" not in said and "names" not in said, "a set of the same numbering is commented upon:", said)
    tokenize("typo.safetensors", table("yes", "no", "mabye"))
    refused(evaluate("programs", "typo.safetensors"), "row 2 has the label 'mabye'", "did you mean 'maybe'?",
            "--labels-of train.safetensors")
    result = subprocess.run([skycc, "tokenize", "rows.csv", "--vocab", "vocab.txt", "--text", "text", "--label", "kind",
                             "--labels-of", "train.safetensors", "-o", "out"], capture_output=True, text=True)
    refused(result, "rows.csv:4", "'mabye'", "did you mean 'maybe'?", "maybe, no, yes")
    require(not os.path.exists("out"), "a refused table leaves a file")


def check_numbers():
    """Labels without names, on either side."""
    tokenize("numbers.safetensors", table(2, 0, 2, 0))
    same("programs", "numbers.safetensors", "numbers.safetensors", "numbers without names")
    refused(evaluate("programs", "two.safetensors", "numbers.safetensors"), "the label 'yes'", "numbers without names")
    tokenize("names.safetensors", [*table(2, 0, 2, 0), "w9,other"])
    data = read("names.safetensors")
    require(data["labels"].tolist() == [1, 0, 1, 0, 2], data["labels"])
    refused(evaluate("programs", "names.safetensors", "numbers.safetensors"), "row 4 has the label 'other'")
    refused(evaluate("programs", "numbers.safetensors", "names.safetensors"), "has the name '0'")
    write("many.safetensors", {**read("numbers.safetensors"), "labels": np.array([3, 0, 0, 0], "i4")})
    refused(evaluate("programs", "many.safetensors"), "3")


def check_columns():
    """Several labels a row: the columns have names."""
    compile_model("model.onnx", "several", "--loss", "bce")
    for name, columns, rows in (("three", "a,b,c", ["w5,1,0,0", "w6,0,1,0", "w7,0,1,1", "w8,1,1,0"]),
                                ("turned", "c,a,b", ["w5,0,1,0", "w6,0,0,1", "w7,1,0,1", "w8,0,1,1"]),
                                ("others", "a,b,d", ["w5,1,0,0", "w6,0,1,0", "w7,0,1,1", "w8,1,1,0"])):
        tokenize(f"{name}.safetensors", rows, label=columns)
    same("several", "turned.safetensors", "three.safetensors", "by their names", data="three.safetensors")
    refused(evaluate("several", "others.safetensors", "three.safetensors"), "the label 'd'")


def check_tokenizers():
    lines("other.txt", WORDS[:5] + WORDS[:4:-1])
    tokenize("other.safetensors", table("no", "maybe", "yes"), vocabulary="other.txt")
    refused(evaluate("programs", "other.safetensors"), "another tokenizer than train.safetensors")
    tokenize("cased.safetensors", table("no", "maybe", "yes"), "--cased")
    refused(evaluate("programs", "cased.safetensors"), "another tokenizer than train.safetensors")
    result = subprocess.run([skycc, "tokenize", "rows.csv", "--vocab", "other.txt", "--text", "text", "--label", "kind",
                             "--labels-of", "train.safetensors", "-o", "out"], capture_output=True, text=True)
    require(result.returncode == 2 and "made by another tokenizer" in result.stderr, result)


def check_model():
    """A folder names its labels and has its tokenizer."""
    os.mkdir("folder")
    for name in ("config.json", "model.safetensors"):
        shutil.copy(f"{folders}/bert/{name}", "folder")
    with open("folder/config.json") as file:
        config = json.load(file)
    config["id2label"] = {"0": "YES", "1": "NO"}
    with open("folder/config.json", "w") as file:
        json.dump(config, file)
    shutil.copy("vocab.txt", "folder")
    run(skycc, "import", "folder", "-o", "named.onnx")
    compile_model("named.onnx", "named")
    write("as-model.safetensors", {**read("two.safetensors"), "labels": np.array([0, 1, 0, 1], "i4")})
    same("named", "two.safetensors", "as-model.safetensors",
         "those of the model: skycc takes them by their names (YES, NO)", data="two.safetensors")
    refused(evaluate("named", "two.safetensors"), "the label 'maybe'", "the model lacks", "YES, NO")
    refused(evaluate("named", "two.safetensors", "other.safetensors"), "another tokenizer than the model")
    refused(subprocess.run([skycc, "compile", "named.onnx", "-d", "here.yaml", "-o", "packed", "--dim", "batch=4",
                            "--dim", "seq=auto:8", "--microbatches", "1", "--lengths", "other.safetensors"],
                           capture_output=True, text=True), "another tokenizer than named.onnx")
    require(not os.path.exists("packed"), "a refused model is compiled")
    refused(subprocess.run([skycc, "predict", "named.onnx", "--data", "other.safetensors"], capture_output=True,
                           text=True), "another tokenizer than named.onnx")
    tokenize("foreign.safetensors", table("left", "right", "left", "right"))
    tokenize("turned.safetensors", table("right", "right"))
    tokenize("expected.safetensors", table("right", "right"), "--labels-of", "foreign.safetensors")
    same("named", "turned.safetensors", "expected.safetensors", "its head learns other labels", "foreign.safetensors")
    for data, names in (("two.safetensors", ["YES", "NO"]), ("foreign.safetensors", ["left", "right"])):
        header = run(skycc, "predict", "named.onnx", "--text", "w5", "--labels", data).stdout.splitlines()[0]
        require(header.split(",")[-2:] == names, data, "names", header)
    refused(subprocess.run([skycc, "predict", "named.onnx", "--text", "w5", "--labels", "train.safetensors"],
                           capture_output=True, text=True), "the label 'maybe'")


def check_federation():
    """A site is told if nothing says that the others number labels alike."""
    def said(model, folder):
        os.mkdir(folder)
        scene = federations.Scene(skycc, os.path.abspath(model), folder, {"oslo": (1, 8), "paris": (1, 8)}, 2)
        result = scene.federate("out", "rounds: 1", "aggregate: plain", dims=("batch=4", "seq=8"))
        require(result.returncode == 0, result.stdout)
        with open(f"{folder}/out/oslo/federation.yaml") as file:
            recipe = next(line for line in file if "recipe:" in line).split('"')[1]
        return run(f"{folder}/out/oslo/train", "--data", "two.safetensors", "--steps", "1", "--quiet",
                   env={**os.environ, "SKYCC_RECIPE": recipe}).stderr
    tokenize("two.safetensors", table(*["yes", "no"] * 8))
    require("must number them alike" in said("model.onnx", "open"), "labels without common names")
    found = said("named.onnx", "closed")
    require("alike" not in found and "those of the model" in found, found)


with tempfile.TemporaryDirectory(prefix="skycc-test-") as scratch:
    os.chdir(scratch)
    lines("vocab.txt", WORDS)
    run(skycc, "bert", "--layers", "1", "--hidden", "16", "--heads", "2", "--vocab", str(len(WORDS)), "--classes",
        "3", "-o", "model.onnx")
    check_all((check_two_sets, check_numbers, check_columns, check_tokenizers, check_model, check_federation),
              not_less=(check_numbers, check_columns))
sys.exit(failed())
