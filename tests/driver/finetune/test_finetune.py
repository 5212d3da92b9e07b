#!/usr/bin/python3
"""skycc finetune: what it decides, that the commands it prints give the same bits, what it leaves, and predictions from
the run.

    tests/driver/finetune/test_finetune.py SKYCC FOLDERS

FOLDERS is tests/data/huggingface.
"""
import csv
import io
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "common"))
sys.path.insert(0, os.path.dirname(__file__))
from checks import failed, require, run  # noqa: E402
from finetune_data import KINDS, make_model, reviews, write_table  # noqa: E402

skycc, data = map(os.path.abspath, sys.argv[1:3])
TRAIN = ["--lr", "2e-2", "--dropout", "off", "--epochs", "4"]


def finetune(*arguments, code=0):
    result = run(skycc, "finetune", *arguments, code=code)
    return result.stderr if code else result.stdout


def refused(code, reason, *arguments):
    before = sorted(os.listdir("."))
    error = finetune(*arguments, code=code)
    require(reason in error and "hint:" in error, arguments, "says", error)
    require(sorted(os.listdir(".")) == before, arguments, "leaves something")


def setting(name, folder="run"):
    with open(f"{folder}/settings.yaml") as file:
        lines = [line for line in file if line.startswith(name + ":")]
    return lines[0].split(":", 1)[1].split("   #")[0].strip() if lines else None


def same_files(name, one, other):
    with open(f"{one}/{name}", "rb") as a, open(f"{other}/{name}", "rb") as b:
        return a.read() == b.read()


def check_classes():
    script = finetune("model", "reviews.csv", "--dry-run", "-o", "again", *TRAIN)
    require(not os.path.exists("again"), "a dry run leaves a directory")
    text = finetune("model", "reviews.csv", *TRAIN)
    for decision in ("'kind' has 3 different texts", "seqcls:3", "10%", "keep-best     accuracy", "batch         32"):
        require(decision in text and decision in script, "no decision", decision, text)
    for name in ("settings.yaml", "log.csv", "model/config.json", "model/vocab.txt", "programs/train"):
        require(os.path.exists(f"run/{name}"), "no", name)
    with open("run/model/config.json") as file:
        config = json.load(file)
    require(list(config["id2label"].values()) == sorted(KINDS), "labels are called", config["id2label"])
    require([setting(name) for name in ("text", "label", "length")] == ['["review"]', '["kind"]', '"9"'],
            setting("text"), setting("label"), setting("length"))
    run("sh", "-ec", script, env=dict(os.environ, PATH=os.path.dirname(skycc) + ":" + os.environ["PATH"]))
    for name in ("model/model.safetensors", "model/config.json", "data/train.safetensors"):
        require(same_files(name, "run", "again"), "the single commands give another", name)


def predictions(*arguments):
    return list(csv.DictReader(io.StringIO(run(skycc, "predict", *arguments).stdout, newline="")))


def check_predictions():
    rows = list(reviews(60, seed=2))
    write_table("unseen.csv", ["review"], [row[:1] for row in rows])
    found = predictions("run", "--data", "unseen.csv")
    right = sum(row["label"] == kind for row, (_, kind) in zip(found, rows))
    require(len(found) == 60 and right >= 54, "only", right, "of 60 are right")
    one = predictions("run", "--text", rows[0][0])
    require(one[0]["label"] == found[0]["label"], one, found[0])
    require(predictions("run/model", "--text", rows[0][0]) == one, "the folder predicts something else")
    run(skycc, "export", "run", "-o", "trained.onnx")
    require(predictions("trained.onnx", "--text", rows[0][0]) == one, "the exported model too")


def check_existing():
    refused(2, "is an earlier run", "model", "reviews.csv")
    os.mkdir("mine")
    refused(2, "is not a run", "model", "reviews.csv", "-o", "mine", "--force")
    before = os.stat("run/log.csv").st_mtime_ns
    finetune("model", "reviews.csv", "--force", "--epochs", "1")
    require(os.stat("run/log.csv").st_mtime_ns != before and setting("epochs") == '"1"', "--force replaces nothing")


def main():
    with tempfile.TemporaryDirectory(prefix="skycc-test-") as scratch:
        os.chdir(scratch)
        make_model("model", data)
        write_table("reviews.csv", ["id", "review", "kind"], [(i, *row) for i, row in enumerate(reviews(300))])
        check_classes()
        check_predictions()
        check_existing()
    sys.exit(failed())


if __name__ == "__main__":
    main()
