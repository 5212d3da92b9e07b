#!/usr/bin/python3
"""What `skycc predict` prints of texts, tables and data sets is what numpy makes of the logits of `skycc run`, each row run
alone and without padding; and what it refuses.

    tests/driver/test_predict.py SKYCC FOLDERS

FOLDERS is tests/data/huggingface.
"""
import csv
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "common"))
import safetensors_files  # noqa: E402

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(5, 61))]
PAIRS = [("w5 w6 W7", "w8"), ("w9", "w10 w11 w12 w13"), ("w60 nothing", "w20"), *((f"w{i}", f"w{i + 1} w7") for i in range(20, 55))]
TOLERANCE = 1e-5
skycc, data = map(os.path.abspath, sys.argv[1:3])
failures = []


def require(holds, *message):
    if not holds:
        failures.append(" ".join(map(str, message)))
        print("FAILED:", failures[-1])


def call(*arguments):
    result = subprocess.run([skycc, *arguments], capture_output=True, text=True)
    require(result.returncode == 0, arguments, result.stderr)
    return result.stdout


def refused(code, reason, *arguments):
    result = subprocess.run([skycc, "predict", *arguments, "-o", "refused.csv"], capture_output=True, text=True)
    require(result.returncode == code and reason in result.stderr, arguments, "gives", result.returncode, result.stderr)
    require(not os.path.exists("refused.csv"), arguments, "leaves a file")


def predict(*arguments):
    header, *rows = csv.reader(io.StringIO(call("predict", *arguments), newline=""))
    require([int(row[0]) for row in rows] == list(range(len(rows))), arguments, "numbers its rows", rows)
    return header, rows


def ids_of(texts):
    ids, types = [2], [0]
    for segment, text in enumerate(texts):
        words = [WORDS.index(word) if word in WORDS else 1 for word in text.lower().split()] + [3]
        ids, types = ids + words, types + [segment] * len(words)
    types[0] = 0
    return np.array([ids]), np.array([types])


def logits(model, texts, *options):
    ids, types = ids_of(texts)
    safetensors_files.write("x.safetensors", {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": types})
    call("run", model, "--inputs", "x.safetensors", "--interpret", "-o", "out.safetensors", *options)
    return safetensors_files.read("out.safetensors")["out/logits"][0].astype("f8")


def compare(model, examples, header, rows, names):
    """`model` has the weights that the rows were predicted with."""
    require(header == ["row", "label", "score", *names], "header", header)
    require(len(rows) == len(examples), len(rows), "rows of", len(examples))
    for texts, row in list(zip(examples, rows))[:3] + list(zip(examples, rows))[-2:]:
        scores = np.exp(logits(model, texts))
        scores /= scores.sum()
        found = np.array(row[2:], "f8")
        require(row[1] == names[scores.argmax()], texts, row, scores)
        require(np.abs(found - [scores.max(), *scores]).max() < TOLERANCE, texts, row, scores)


def prepare():
    os.mkdir("folder")
    for name in ("config.json", "model.safetensors"):
        shutil.copy(f"{data}/bert/{name}", "folder")
    with open("folder/config.json") as file:
        config = json.load(file)
    config["id2label"] = {"0": 'no, "never"', "1": "yes"}
    config["label2id"] = {'no, "never"': 0, "yes": 1}
    with open("folder/config.json", "w") as file:
        json.dump(config, file)
    with open("folder/vocab.txt", "w") as file:
        file.write("\n".join(WORDS) + "\n")
    with open("rows.csv", "w", newline="") as file:
        csv.writer(file).writerows([("first", "second", "kind"), *((*pair, "ab"[i % 2]) for i, pair in enumerate(PAIRS))])
    call("import", "folder", "-o", "model.onnx")
    call("tokenize", "--vocab", "folder/vocab.txt", "--text", "first,second", "--label", "kind", "--max-length", "20", "rows.csv", "-o",
         "rows.safetensors", "-q")


def check_rows():
    names = ['no, "never"', "yes"]
    for model in ("folder", "model.onnx"):
        compare("model.onnx", [["w5 w6"]], *predict(model, "--text", "w5 w6"), names)
        compare("model.onnx", PAIRS[:1], *predict(model, "--text", PAIRS[0][0], "--text2", PAIRS[0][1]), names)
    compare("model.onnx", PAIRS, *predict("folder", "--data", "rows.csv", "--text", "first,second"), names)
    call("predict", "model.onnx", "--data", "rows.safetensors", "-o", "found.csv")
    with open("found.csv", newline="") as file:
        header, *rows = csv.reader(file)
    compare("model.onnx", PAIRS, header, rows, names)
    compare("model.onnx", PAIRS, *predict("model.onnx", "--data", "rows.safetensors", "--labels", "rows.safetensors"), ["a", "b"])
    cut = predict("folder", "--text", "w5 w6 w7 w8 w9", "--max-length", "5")
    compare("model.onnx", [["w5 w6 w7"]], *cut, names)
    compare("model.onnx", [["w9 " * 22]], *predict("folder", "--text", "w9 " * 30), names)  # positions of 24 tokens


def check_trained():
    safetensors_files.write("step.safetensors", {"labels": np.zeros(len(PAIRS), "i8"), **{
        name: tensor for name, tensor in safetensors_files.read("rows.safetensors").items() if name != "labels"}})
    before = predict("model.onnx", "--data", "rows.safetensors")[1]
    for lora in ([], ["--lora", "r=4,alpha=8,targets=query,value"]):
        call("run", "model.onnx", "--inputs", "step.safetensors", "--loss", "cross-entropy", "--train", "3", "--optimizer", "sgd:lr=2",
             *lora, "-o", "trained.safetensors")
        call("export", "model.onnx", "trained.safetensors", "-o", "trained.onnx")
        header, rows = predict("model.onnx", "trained.safetensors", "--data", "rows.safetensors")
        require(rows != before, "training changes nothing", lora)
        compare("trained.onnx", PAIRS, header, rows, ['no, "never"', "yes"])
    require(predict("folder", "trained.safetensors", "--data", "rows.safetensors") == (header, rows), "a folder with a checkpoint")


def check_regression():
    call("import", "folder", "--head", "regression", "-o", "regression.onnx", "-q")
    header, rows = predict("regression.onnx", "--text", "w5 w6")
    require(header == ["row", "value"], header)
    require(abs(float(rows[0][1]) - logits("regression.onnx", ["w5 w6"])[0]) < TOLERANCE, rows)


def check_refusals():
    refused(2, "nothing is given to judge", "folder")
    refused(2, "which columns", "folder", "--data", "rows.csv")
    refused(2, "token ids", "folder", "--data", "rows.safetensors", "--text", "w5")
    refused(2, "--text2 goes with", "folder", "--data", "rows.csv", "--text2", "w5")
    refused(1, "no column 'third'", "folder", "--data", "rows.csv", "--text", "third")
    refused(1, "there is neither tokenizer.json nor vocab.txt", f"{data}/bert", "--text", "w5")
    call("import", "folder", "--head", "tokcls:2", "-o", "tokens.onnx", "-q")
    refused(1, "has the head tokcls:2", "tokens.onnx", "--text", "w5")
    call("import", "folder", "--head", "embedding:mean", "-o", "mean.onnx", "-q")
    refused(1, "has the head embedding:mean", "mean.onnx", "--text", "w5")
    with open("large.txt", "w") as file:
        file.write("\n".join([*WORDS, "beyond"]) + "\n")
    refused(1, "row 0 has 61, outside the model's table of 61 rows", "folder", "--tokenizer", "large.txt", "--text", "w5 beyond")
    call("import", "folder", "--head", "seqcls:3", "-o", "three.onnx", "-q")
    refused(1, "has names of 2 labels, but the model has 3", "three.onnx", "--data", "rows.safetensors", "--labels", "rows.safetensors")
    refused(1, "another shape in the checkpoint", "three.onnx", "trained.safetensors", "--data", "rows.safetensors")
    safetensors_files.write("long.safetensors", {"input_ids": np.full((1, 30), 5), "attention_mask": np.ones((1, 30), "i8")})
    refused(1, "has rows of 30 tokens, but the model has positions for 24", "folder", "--data", "long.safetensors")
    refused(1, "missing.onnx", "missing.onnx", "--text", "w5")


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["TMPDIR"] = f"{folder}/temporary"
        os.mkdir("temporary")
        prepare()
        for check in (check_rows, check_trained, check_regression, check_refusals):
            check()
        require(not os.listdir("temporary"), "left behind:", os.listdir("temporary"))
        os.chdir("/")
    return bool(failures)


sys.exit(main())
