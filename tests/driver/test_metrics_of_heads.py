#!/usr/bin/python3
"""What evaluation measures, head by head, is what numpy makes of the logits of `skycc run`: classes, numbers, and
labels that are there or not (--loss bce), one or several a row, however many stages and micro-batches there are; and
what cannot be measured is refused with what can. The formulas are those of scikit-learn's documentation:
accuracy_score, f1_score and matthews_corrcoef.

    tests/driver/test_metrics_of_heads.py SKYCC FOLDERS

FOLDERS is tests/data/huggingface.
"""
import csv
import os
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "common"))
from checks import failed, require, run  # noqa: E402
from safetensors_files import read, write  # noqa: E402

skycc, folders = map(os.path.abspath, sys.argv[1:3])
ROWS, LENGTH = 22, 8  # the last batch is a part of one
random = np.random.default_rng(5)


def f1(has, predicted):
    """Of one label."""
    both = (has & predicted).sum()
    return 2 * both / (has.sum() + predicted.sum()) if has.sum() + predicted.sum() else 0.0


def matthews(has, predicted):
    table = [[np.sum((has == h) & (predicted == p)) for p in (False, True)] for h in (False, True)]
    (tn, fp), (fn, tp) = np.array(table, "f8")
    product = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
    return (tp * tn - fp * fn) / np.sqrt(product) if product else 0.0


def ranks(values):
    return np.array([(values < v).sum() + ((values == v).sum() + 1) / 2 for v in values])


def correlation(a, b):
    return np.corrcoef(a, b)[0, 1]


def compile_model(model, devices, microbatches, loss):
    with open("cluster.yaml", "w") as file:
        file.write("devices:\n" + "".join(f"  - {{name: d{i}, threads: 1, memory: 1GiB, gflops: 10}}\n"
                                          for i in range(devices)))
    run(skycc, "compile", model, "-d", "cluster.yaml", "-o", "programs", "--dim", f"batch={8 // microbatches}", "--dim",
         f"seq={LENGTH}", "--microbatches", str(microbatches), "--allocate", "even", "--loss", loss, "-q")


def evaluate(*metrics):
    """The columns of an evaluation of the weights as they are, without eval_."""
    run("programs/train", "--data", "data.safetensors", "--eval-data", "data.safetensors", "--steps", "1", "--lr", "0",
        "--log", "log.csv", "--quiet", *metrics)
    with open("log.csv") as file:
        last = list(csv.DictReader(file))[-1]
    return {name[5:]: float(value) for name, value in last.items() if name.startswith("eval_") and value}


def compare(what, found, expected):
    require(set(found) == {"loss", *expected}, what, "measures", sorted(found), "not", sorted(expected))
    for name, value in expected.items():
        require(abs(found.get(name, np.inf) - value) < 2e-6, what, name, found.get(name), "not", value)


def refused(metrics, *reasons):
    result = subprocess.run(
        ["programs/train", "--data", "data.safetensors", "--eval-data", "data.safetensors", "--metric", metrics],
        capture_output=True, text=True)
    require(result.returncode == 2 and all(reason in result.stderr for reason in reasons), metrics, result.returncode,
            result.stderr)


def prepare(head):
    """A model whose logits differ from row to row, the inputs, and the logits."""
    run(skycc, "import", f"{folders}/bert", "--head", head, "-o", "model.onnx", "-q")
    inputs = {
        "input_ids": random.integers(5, 60, (ROWS, LENGTH)).astype("i4"), "attention_mask": np.ones(
            (ROWS, LENGTH), "i4"), "token_type_ids": np.zeros((ROWS, LENGTH), "i4")
    }
    write("inputs.safetensors", inputs)
    run(skycc, "run", "model.onnx", "--inputs", "inputs.safetensors", "-o", "out.safetensors")
    return inputs, read("out.safetensors")["out/logits"].astype("f8")


def spread(logits):
    """Labels in which the logits show, but not alone."""
    return logits + random.normal(0, logits.std(0), logits.shape) > np.median(logits, 0)


def check_several_labels():
    inputs, logits = prepare("seqcls:5")
    labels = spread(logits).astype("f4")
    labels[:, 4] = 0  # never there
    labels[random.random(labels.shape) < 0.15] = np.nan
    labels[3], labels[5, 1] = np.nan, -100
    write("data.safetensors", inputs | {"labels": labels})
    counts, has, predicted = ~np.isnan(labels) & (labels != -100), labels > 0.5, logits > 0
    predicted &= counts
    rows = counts.any(1)
    expected = {"accuracy": (has == predicted)[rows].all(1).mean(), "f1": f1(has.ravel(), predicted.ravel())}
    require(predicted.any() and 0 < expected["f1"] < 1, "nothing is predicted", expected)
    for devices, microbatches in (1, 1), (3, 4):
        compile_model("model.onnx", devices, microbatches, "bce")
        compare("bce, several labels", evaluate(), expected)
    macro = np.mean([f1(has[:, c], predicted[:, c]) for c in range(5)])
    compare("bce, f1-macro", evaluate("--metric", "f1-macro"), {"f1": macro})
    compare("bce, f1-micro", evaluate("--metric", "f1-micro,accuracy"), expected)
    refused("f1,matthews", "matthews cannot be measured with several labels a row", "what can be: loss, accuracy, f1\n")
    refused("pearson", "pearson cannot be measured with several labels a row")
    refused("f1-binary", "f1-binary is for one label a row, but this model has 5",
            "f1-micro counts all labels together")


def check_one_label():
    inputs, logits = prepare("seqcls:1")
    labels = spread(logits)[:, 0].astype("f4")
    labels[7] = np.nan
    write("data.safetensors", inputs | {"labels": labels})
    counts = ~np.isnan(labels)
    has, predicted = labels[counts] > 0.5, logits[counts, 0] > 0
    compile_model("model.onnx", 2, 2, "bce")
    expected = {"accuracy": (has == predicted).mean(), "f1": f1(has, predicted), "matthews": matthews(has, predicted)}
    compare("bce, one label", evaluate(), expected)
    compare("bce, f1-binary", evaluate("--metric", "f1-binary"), {"f1": expected["f1"]})
    compare("bce, one label, f1-macro", evaluate("--metric", "f1-macro"),
            {"f1": (f1(has, predicted) + f1(~has, ~predicted)) / 2})
    refused("perplexity", "perplexity cannot be measured with one label that is there or not",
            "what can be: loss, accuracy, f1, matthews\n")


def check_numbers():
    inputs, logits = prepare("regression")
    labels = (np.round(logits[:, 0] * 40) / 40 + random.normal(0, 1e-2, ROWS)).astype("f4")
    labels[:4] = labels[4]  # ties
    labels[9] = np.nan
    write("data.safetensors", inputs | {"labels": labels})
    counts = ~np.isnan(labels)
    a, b = logits[counts, 0], labels[counts].astype("f8")
    compile_model("model.onnx", 2, 2, "mse")
    compare("mse", evaluate(), {"pearson": correlation(a, b), "spearman": correlation(ranks(a), ranks(b))})
    refused("accuracy", "accuracy cannot be measured with labels that are numbers",
            "what can be: loss, pearson, spearman\n")


def check_several_numbers():
    inputs, logits = prepare("seqcls:3")
    labels = (logits * [1, -1, 100] + random.normal(0, logits.std(0), logits.shape)).astype("f4")
    write("data.safetensors", inputs | {"labels": labels})
    compile_model("model.onnx", 1, 2, "mse")
    columns = [(logits[:, c], labels[:, c].astype("f8")) for c in range(3)]
    compare(
        "mse, several numbers", evaluate(), {
            "pearson": np.mean([correlation(a, b) for a, b in columns]), "spearman": np.mean(
                [correlation(ranks(a), ranks(b)) for a, b in columns])
        })


def check_classes():
    inputs, logits = prepare("seqcls:3")
    labels = random.integers(0, 3, ROWS).astype("i4")
    labels[2] = -100
    write("data.safetensors", inputs | {"labels": labels})
    counts = labels >= 0
    has, predicted = labels[counts], logits[counts].argmax(1)
    accuracy = (has == predicted).mean()
    compile_model("model.onnx", 1, 2, "cross-entropy")
    occurring = sorted({*has, *predicted})
    macro = np.mean([f1(has == c, predicted == c) for c in occurring])
    compare("classes", evaluate("--metric", "accuracy,f1"), {"accuracy": accuracy, "f1": macro})
    compare("classes, f1-micro", evaluate("--metric", "f1-micro"), {"f1": accuracy})
    refused("spearman", "spearman cannot be measured with labels that are classes",
            "what can be: loss, accuracy, f1, matthews, perplexity\n")
    refused("f1-binary", "f1-binary is for two classes, but this model has 3")
    refused("f1-macro,f1-micro", "one of f1-macro, f1-binary and f1-micro")


def check_large_logits():
    """`skycc evaluate` gives the loss of labels whose probability is no float64."""
    inputs, logits = prepare("seqcls:3")
    labels = np.arange(ROWS, dtype="i4") % 3
    write("data.safetensors", inputs | {"labels": labels})
    run(skycc, "run", "model.onnx", "--inputs", "data.safetensors", "--loss", "cross-entropy", "--train", "1", "-o",
        "trained.safetensors")
    write("large.safetensors", read("trained.safetensors") | {"param/classifier.bias": np.array([1e4, 0, -1e4], "f4")})
    found = run(skycc, "evaluate", "model.onnx", "large.safetensors", "data.safetensors").stdout
    loss = float(found.split("loss")[1].split()[0])
    wanted = 1e4 * labels.mean()
    require(abs(loss - wanted) < 1, "large logits have the loss", loss, "not", wanted)


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    for check in check_several_labels, check_one_label, check_numbers, check_several_numbers, check_classes, \
            check_large_logits:
        check()
    os.chdir("/")
sys.exit(failed())
