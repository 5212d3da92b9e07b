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
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "common"))
sys.path.insert(0, os.path.dirname(__file__))
import safetensors_files  # noqa: E402
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
    script = finetune("model", "reviews.csv", "--dry-run", "-o", "once again", *TRAIN)
    require(not os.path.exists("once again"), "a dry run leaves a directory")
    text = finetune("model", "reviews.csv", *TRAIN)
    for decision in ("'kind' has 3 different texts", "seqcls:3", "10%", "keep-best     accuracy", "batch         32"):
        require(decision in text and decision in script, "no decision", decision, text)
    for name in ("settings.yaml", "log.csv", "metrics.json", "model/config.json", "model/vocab.txt", "model/README.md"):
        require(os.path.exists(f"run/{name}"), "no", name)
    with open("run/model/config.json") as file:
        config = json.load(file)
    require(list(config["id2label"].values()) == sorted(KINDS), "labels are called", config["id2label"])
    require([setting(name) for name in ("text", "label", "length")] == ['["review"]', '["kind"]', '"9"'],
            setting("text"), setting("label"), setting("length"))
    run("sh", "-ec", script, env=dict(os.environ, PATH=os.path.dirname(skycc) + ":" + os.environ["PATH"]))
    for name in ("model/model.safetensors", "model/config.json", "data/train.safetensors"):
        require(same_files(name, "run", "once again"), "the single commands give another", name)


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


def check_evaluation():
    write_table("test.csv", ["review", "kind"], list(reviews(50, seed=3)))
    text = run(skycc, "evaluate", "run", "test.csv", "-o", "scores.json").stdout
    with open("scores.json") as file:
        scores = json.load(file)
    with open("test.csv", newline="") as file:
        kinds = [row["kind"] for row in csv.DictReader(file)]
    write_table("unlabelled.csv", ["review"], [row[:1] for row in reviews(50, seed=3)])
    found = [row["label"] for row in predictions("run", "--data", "unlabelled.csv")]
    right = sum(a == b for a, b in zip(kinds, found)) / 50
    require(scores["rows"] == 50 and scores["accuracy"] == right and f"{100 * right:.2f}%" in text, scores, right, text)
    for number, kind in enumerate(sorted(KINDS)):
        row = scores["classes"][number]
        both = sum(a == b == kind for a, b in zip(kinds, found))
        require(row["label"] == kind and row["rows"] == kinds.count(kind), row)
        missed = abs(row["precision"] * found.count(kind) - both) + abs(row["recall"] * kinds.count(kind) - both)
        require(missed < 1e-9, row)
        require([sum(a == kind and b == other for a, b in zip(kinds, found)) for other in sorted(KINDS)] ==
                scores["confusion"][number], "confusion of", kind)
    shutil.copytree("run", "elsewhere")  # without the model that it was made from
    os.rename("model", "gone")
    require(run(skycc, "evaluate", "elsewhere", "test.csv").stdout == text, "another place, other metrics")
    finetune("--resume", "elsewhere")
    os.rename("gone", "model")
    shutil.rmtree("elsewhere")
    write_table("typo.csv", ["review", "kind"], [("The screen is great.", "goood")])
    cases = (["typo.csv"], "did you mean 'good'?"), (["absent.csv"], "cannot open"), ([], "one table")
    for arguments, reason in cases:
        result = subprocess.run([skycc, "evaluate", "run", *arguments], capture_output=True, text=True)
        require(result.returncode in (1, 2) and reason in result.stderr, arguments, result.stderr)


def interrupt(folder, number, *arguments):
    """Ends a run by a signal after some steps."""
    process = subprocess.Popen([skycc, "finetune", "model", "many.csv", "-o", folder, *arguments],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    for _ in range(6000):
        time.sleep(0.01)
        if os.path.exists(f"{folder}/log.csv") and sum(1 for _ in open(f"{folder}/log.csv")) > 12:
            break
    process.send_signal(number)
    error = process.communicate()[1]
    require(process.returncode == (130 if number == signal.SIGINT else -number), number, process.returncode, error)
    require(not os.path.exists(f"{folder}/model"), "it was not interrupted")
    if number == signal.SIGINT:
        require(f"skycc finetune --resume {folder}" in error, error)


def check_resuming():
    long = ["--lr", "2e-3", "--epochs", "2"]
    write_table("many.csv", ["review", "kind"], reviews(2000))
    with open("two.yaml", "w") as file:
        file.write("devices: [{name: one, threads: 1, memory: 1GiB}, {name: two, threads: 1, memory: 1GiB}]\n"
                   "keep: {inputs: two}\n")  # so it is one pipeline: several sum gradients in another order
    finetune("model", "many.csv", "-o", "whole", *long)
    interrupt("killed", signal.SIGKILL, *long)
    os.remove("killed/report.html")
    os.mkdir("killed/report.html")  # the page cannot be written, and all else can
    again = run(skycc, "finetune", "--resume", "killed")
    said = again.stderr
    with open("killed/settings.yaml") as file:
        reasons = [line.split('"   # ')[1].strip() for line in file if '"   # ' in line]
    require(len(reasons) > 12 and all(reason in again.stdout for reason in reasons), "no reasons:", again.stdout)
    require(said.count("report.html") == 1 and "training goes on" in said, said)
    interrupt("stopped", signal.SIGINT, *long)
    text = finetune("--resume", "stopped", "-d", "two.yaml", "--replicas", "1")
    require("dealing" not in text, "rows are dealt as before", text)
    require(setting("replicas", "stopped") == '"1"', "the other replicas are not in settings.yaml")
    require("two.yaml" in setting("cluster", "stopped"), "the other devices are not in settings.yaml")
    interrupt("pair", signal.SIGINT, "-d", "two.yaml", "--replicas", "1", *long)
    finetune("--resume", "pair", "--without", "one")
    for folder in ("killed", "stopped", "pair"):
        require(same_files("model/model.safetensors", "whole", folder), folder, "ends with other weights")
    with open("apart.yaml", "w") as file:
        file.write("devices: [{name: one, threads: 1, memory: 1GiB}, {name: two, threads: 1, memory: 1GiB}]\n")
    text = finetune("--resume", "stopped", "-d", "apart.yaml", "--replicas", "2")
    require("dealing       rows of a step: 16 in 1 micro-batch + 16 in 1 micro-batch, before: 32 in" in text, text)
    refused(2, "takes no model", "model", "reviews.csv", "--resume", "killed")
    refused(1, "settings.yaml", "--resume", "model")
    for given, kept in (("--lr 1e-3", "--lr 2e-3"), ("--precision bf16", "as it was decided"),
                        ("--epochs 9", "--epochs 2"), ("--label kinds", "--label kind"),
                        ("--freeze bert", "as it was decided")):
        refused(2, kept, "--resume", "killed", *given.split())
    refused(2, "no device is named 'nobody'", "--resume", "killed", "-d", "two.yaml", "--without", "nobody")
    finetune("--resume", "killed", "--lr", "2e-3", "--label", "kind")
    require(setting("cluster", "killed") == '"this machine"', "what is refused changes the run")


def check_seeds():
    text = finetune("model", "reviews.csv", "-o", "seeds", "--seeds", "2", "--test", "test.csv", *TRAIN)
    found = []
    for seed in range(2):
        with open(f"seeds/seed-{seed}/metrics.json") as file:
            found.append(json.load(file)["accuracy"])
    mean, error = sum(found) / 2, abs(found[0] - found[1]) / 2
    require(f"accuracy {mean:.4f}, standard error {error:.4f}; best {max(found):.4f}" in text, found, text)
    require("test of 2 seeds" in text and predictions("seeds", "--text", "great"), "no model of the best seed")
    require(os.path.realpath("seeds/model").endswith(f"seed-{found.index(max(found))}/model"), "links to another seed")
    with open("seeds/report.html", encoding="utf-8") as file:
        page = file.read()
    require(f"shows <strong>seed-{found.index(max(found))}</strong>" in page, "the report shows another seed")
    require(f"<td class=n>{mean:.4f} ({error:.4f})</td>" in page, "the report has no mean and standard error")
    check_other_model()


def check_other_model():
    """A run goes on with the model that it began with, in all its seeds; settings that name another are refused."""
    text = "is not the model that this run began with"
    shutil.copytree("model", "other")
    with open("other/model.safetensors", "r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))
    with open("seeds/settings.yaml") as file:
        settings = file.read()
    changed = settings.replace(setting("model", "seeds"), f'"{os.path.abspath("other")}"')
    with open("seeds/settings.yaml", "w") as file:
        file.write(changed)
    for command in (["predict", "seeds", "--text", "great"], ["evaluate", "seeds", "test.csv"],
                    ["export", "seeds", "-o", "none"], ["finetune", "--resume", "seeds"]):
        require(text in run(skycc, *command, code=1).stderr, command)
    with open("seeds/settings.yaml", "w") as file:
        file.write(settings)
    shutil.rmtree("seeds/seed-1")
    os.rename("model", "first")
    os.rename("other", "model")
    require(predictions("seeds", "--text", "great"), "the run needs the model that it was made from")
    require(text in finetune("--resume", "seeds", code=1), "two seeds of two models")
    shutil.rmtree("model")
    os.rename("first", "model")


def check_existing():
    refused(2, "is an earlier run", "model", "reviews.csv")
    os.mkdir("mine")
    refused(2, "is not a run", "model", "reviews.csv", "-o", "mine", "--force")
    refused(1, "is a directory, not a table", "model", "mine")
    refused(2, "'./reviews.csv' is given twice", "model", "reviews.csv", "./reviews.csv")
    refused(1, "hint: name a file in it", "model", "reviews.csv", "--tokenizer", "model")
    write_table("commas.csv", ["text, long", "kind"], reviews(40))
    refused(1, "write a comma in a name as '\\,'", "model", "commas.csv", "--text", "text, long")
    text = finetune("model", "commas.csv", "-o", "commas", "--epochs", "1", "--text", "text\\, long")
    require("text, long" in text and setting("text", "commas") == '["text, long"]', setting("text", "commas"), text)
    require(predictions("commas", "--data", "commas.csv"), "a run does not find its column")
    refused(1, "mkdir -p 'no such'", "model", "reviews.csv", "-o", "no such/run")
    refused(1, "give the folder: model", "model/model.safetensors", "reviews.csv")
    refused(2, "what can be: loss, accuracy", "model", "reviews.csv", "-o", "no", "--keep-best", "pearson")
    require(not os.path.exists("no"), "a metric that cannot be measured leaves a run")
    text = finetune("model", "reviews.csv", "-o", "no", "--batch", "5000", "--keep-best", "f1-macro", "--dry-run")
    require("there are no more to train on" in text, "a smaller batch is not explained", text)
    before = os.stat("run/log.csv").st_mtime_ns
    os.mkdir("run/seed-5000")
    check_lost_output("--force", "--epochs", "1")
    require(os.stat("run/log.csv").st_mtime_ns != before and setting("epochs") == '"1"', "--force replaces nothing")
    require(not os.path.exists("run/seed-5000"), "--force leaves a seed that another run would go on with")


def write_mistakes():
    """What the mistakes below need."""
    for name, text in (("small.yaml", "devices: [{name: here, memory: 20KiB}]\n"), ("empty.csv", ""),
                       ("far.yaml", "devices: [{name: far, host: far.invalid, memory: 1GiB}]\n"),
                       ("nested.jsonl", '{"data": {"review": "great"}}\n' * 4), ("page.csv", "<!DOCTYPE html>\n"),
                       ("broken.jsonl", '{"review": "great", "kind": "good"}\n \n{"review": "gr'),
                       ("gap.csv", "review,kind\n" + "great,good\nawful,\nokay,bad\n" * 9),
                       ("gaps.csv", "review,one,two\n" + "great,1,0\nawful,,1\nokay,0,1\n" * 9),
                       ("spelt.csv", "review,kind\n" + "great,good\nlovely,Good\nawful,bad \nokay,bad\nokay,NaN\n" * 9),
                       ("header.csv", "review,kind\n"), ("semicolons.csv", "review;kind\ngreat;good\n"),
                       ("other.txt", "".join(f"o{i}\n" for i in range(5)) + "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n")):
        with open(name, "w") as file:
            file.write(text)
    os.mkdir("pickled")
    shutil.copy("model/config.json", "pickled")
    shutil.copy("model/vocab.txt", "pickled")
    open("pickled/pytorch_model.bin", "w").close()
    write_table("typo.csv", ["review", "kind"], [("The screen is great.", "goood")])
    write_table("apart.csv", ["anchor", "positive"], [(text, f"{kind} {text}") for text, kind in reviews(40)])
    write_table("one.csv", ["review", "kind"], [("The screen is great.", "good")])
    rows = [(text.encode("ascii", "ignore").decode() + " caf\u00e9", kind) for text, kind in reviews(40)]
    for name, encoding in (("french.csv", "cp1252"), ("wide.csv", "utf-16")):
        with open(name, "w", encoding=encoding, newline="") as file:
            csv.writer(file).writerows([("review", "kind"), *rows])
    run(skycc, "import", "model", "--head", "embedding:mean", "-o", "vectors.onnx")
    run(skycc, "import", "model", "--head", "seqcls:3", "-o", "scores.onnx")
    run(skycc, "import", "model", "--head", "pairs:mean", "-o", "pairs.onnx")


TABLE = ["finetune", "model", "reviews.csv", "-o", "none"]
MISTAKES = {
    "a column that is not there": (1, "did you mean 'kind'?", [*TABLE, "--label", "knd"]),
    "a column of texts that is not there": (1, "did you mean 'review'?", [*TABLE, "--text", "reveiw"]),
    "a label with a typo": (1, "did you mean 'good'?", [*TABLE, "--eval", "typo.csv"]),
    "weights in a .bin": (1, "pytorch_model.bin, a pickle", ["finetune", "pickled", "reviews.csv", "-o", "none"]),
    "too little memory": (4, "would be enough", [*TABLE, "-d", "small.yaml"]),
    "too little memory for pairs": (4, "or a --batch smaller than",
                                    ["finetune", "model", "apart.csv", "-o", "none", "-d", "small.yaml"]),
    "a wrong dimension": (1, "give their values: --dim seq=8",
                          ["compile", "scores.onnx", "-d", "small.yaml", "-o", "none", "--dim", "batch=2", "--dim",
                           "sequence=8"]),
    "no head": (2, "--head pairs:mean", ["compile", "vectors.onnx", "-d", "small.yaml", "-o", "none", "--dim",
                                         "seq=8"]),
    "no head, but a loss": (2, "no classes", ["compile", "vectors.onnx", "-d", "small.yaml", "-o", "none", "--dim",
                                              "seq=8", "--loss", "cross-entropy"]),
    "pairs in two micro-batches": (2, "needs a single micro-batch",
                                   ["compile", "pairs.onnx", "-d", "small.yaml", "-o", "none", "--dim", "seq=8",
                                    "--batch", "8", "--microbatches", "2"]),
    "a host that does not answer": (6, "far.invalid: no answer by ssh", [*TABLE, "-d", "far.yaml"]),
    "cp1252": (1, "--encoding cp1252", ["finetune", "model", "french.csv", "-o", "none"]),
    "UTF-16": (1, "--encoding utf-16", ["finetune", "model", "wide.csv", "-o", "none"]),
    "an empty file": (1, "is empty", ["finetune", "model", "empty.csv", "-o", "none"]),
    "a header alone": (1, "has no rows", ["finetune", "model", "header.csv", "-o", "none"]),
    "semicolons": (1, "between semicolons", ["finetune", "model", "semicolons.csv", "-o", "none"]),
    "objects for texts": (1, "has objects, not texts, in column 'data'",
                          ["finetune", "model", "nested.jsonl", "-o", "none"]),
    "half a line": (1, "broken.jsonl:3:", ["finetune", "model", "broken.jsonl", "-o", "none"]),
    "a web page": (1, "is a web page", ["finetune", "model", "page.csv", "-o", "none"]),
    "two texts for one": (0, "learned from one text a row, not two",
                          ["predict", "run", "--text", "great", "--text2", "awful"]),
    "a text without --text": (2, "give a text with --text, a table with --data", ["predict", "run", "great"]),
    "a directory without a plan": (1, "name a file in it", ["explain", "model"]),
    "a plan without costs": (2, "no costs: --costs FILE is missing", ["verify", "model/config.json"]),
    "curves as PNG": (2, "skycc plot writes SVG, not .png", ["plot", "run/log.csv", "-o", "curves.png"]),
    "a row without label": (1, "gap.csv:3: warning: has no label in column 'kind'; 9 of 27 rows",
                            ["finetune", "model", "gap.csv", "-o", "none"]),
    "one of several labels missing": (1, "gaps.csv:3: warning: has no label in column 'one'",
                                      ["finetune", "model", "gaps.csv", "-o", "none"]),
    "a cluster file that is not there": (1, "a cluster file names the devices", [*TABLE, "-d", "none.yaml"]),
    "one row": (1, "only one label", ["finetune", "model", "one.csv", "-o", "none"]),
    "another tokenizer": (1, "another tokenizer", [*TABLE, "--tokenizer", "other.txt"]),
    "a name of the hub": (1, "downloads nothing", ["finetune", "bert-base-uncased", "reviews.csv", "-o", "none"]),
    "the table first": (2, "the model comes first", ["finetune", "reviews.csv", "model", "-o", "none"]),
    "no table": (2, "give a table", ["finetune", "model"]),
    "a table that is not there": (1, "review.csv: error: cannot open",
                                  ["finetune", "model", "review.csv", "-o", "none"]),
    "a learning rate in words": (2, "--lr takes a number", [*TABLE, "--lr", "fast"]),
    "what the Trainer calls it": (2, "hint: the learning rate is --lr X", [*TABLE, "--learning_rate", "1e-3"]),
    "the Trainer's, with dashes": (2, "hint: passes over the rows are --epochs N", [*TABLE, "--num-epochs", "1"]),
    "an option with a slip": (2, "did you mean --epochs?", [*TABLE, "--epohcs", "1"]),
    "an option of another command with a slip": (2, "did you mean --microbatches?",
                                                 ["compile", "scores.onnx", "--microbathces", "2"]),
    "a rate in the optimiser": (2, "give them as --lr X", [*TABLE, "--optimizer", "adamw:lr=1e-3"]),
    "an optimiser that there is not": (2, "use sgd, momentum", [*TABLE, "--optimizer", "adagrad"]),
    "a warm-up of 200%": (2, "--warmup takes a number of steps", [*TABLE, "--warmup", "200%"]),
    "a metric that there is not": (2, "--keep-best takes", [*TABLE, "--keep-best", "bleu"]),
    "a text that is the label": (2, "the same column, 'kind'", [*TABLE, "--text", "kind", "--label", "kind"]),
    "replicas in words": (2, "--replicas takes", [*TABLE, "--replicas", "many"]),
    "low-rank branches without a rank": (2, "malformed item 'r=x'", [*TABLE, "--lora", "r=x"]),
    "dropout of 2": (2, "--dropout takes", [*TABLE, "--dropout", "2"]),
    "a run that holds what is read": (2, "holds '", ["finetune", "run/model", "reviews.csv", "--force"]),
    "a run that holds the tokenizer": (2, "holds '", ["finetune", "model", "reviews.csv", "--tokenizer",
                                                   "run/model/vocab.txt", "--force"])}
NO_HINT = {"a table that is not there", "dropout of 2", "a learning rate in words", "a warm-up of 200%",
           "replicas in words", "a metric that there is not"}


def check_places():
    """A run stands for its plan, the costs of that plan and its log."""
    plan = "run/programs/plan.json"
    for command in ("explain",), ("verify", "--costs", "run/programs/costs.json"), ("diff", plan):
        whole = run(skycc, command[0], plan, *command[1:]).stdout
        for place in "run", "run/programs":
            require(whole and run(skycc, command[0], place, *command[1:]).stdout == whole, command, "of", place)
    require(run(skycc, "verify", "run").stdout == run(skycc, "verify", plan).stdout != "", "verify without --costs")
    require(run(skycc, "plot", "run").stdout == run(skycc, "plot", "run/log.csv").stdout != "", "plot of a run")


def check_mistakes():
    """Each says what is wrong, where, and what to do, and leaves nothing."""
    write_mistakes()
    for mistake, (code, reason, arguments) in MISTAKES.items():
        before = sorted(os.listdir("."))
        result = subprocess.run([skycc, *arguments], capture_output=True, text=True)
        require(result.returncode == code and reason in result.stderr, mistake, result.returncode, result.stderr)
        require("hint:" in result.stderr or mistake in NO_HINT, mistake, "has no hint", result.stderr)
        require(sorted(os.listdir(".")) == before, mistake, "leaves something")
    said = run(skycc, "finetune", "model", "spelt.csv", "-o", "none", "--dry-run").stderr
    require("'Good' and 'good', which differ only" in said and "(2 such labels)" in said, said)
    require("has label 'NaN' in 9 of 45 rows" in said, said)
    script = finetune("model", "reviews.csv", "-o", "none", "-d", "far.yaml", "--dry-run")
    require("skycc deploy none/programs --data none/data/train.safetensors" in script, script)
    require("far.invalid" in script, script)
    text = finetune("model", "reviews.csv", "-o", "long", "--max-length", "600", "--dry-run")
    require("length        24   tokens per row" in text and "no more positions" in text, text)


def check_lora():
    with open("reviews.csv", newline="") as file:  # names with newlines, which spreadsheets write
        _, *rows = csv.reader(file)
    write_table("two\nlines.csv", ["id", "re\nview", "ki\tnd"], rows)
    text = finetune("model", "two\nlines.csv", "-o", "lora", "--lora", "r=4,alpha=8", "--text", "re\nview", *TRAIN)
    with open("lora/adapter/adapter_config.json") as file:
        targets = json.load(file)["target_modules"]
    require("every matrix of every block" in text and len(targets) >= 6, "branches are at", targets)
    require(os.path.exists("lora/adapter/adapter_model.safetensors"), "no adapter")
    require(predictions("lora", "--text", "great") == predictions("lora/model", "--text", "great"),
            "the merged model predicts something else")


def check_divergence():
    text = finetune("model", "reviews.csv", "-o", "wild", "--lr", "1e30", "--warmup", "0", "--clip", "0", code=7)
    require("training diverged" in text and "--resume" not in text, "resuming would repeat it:", text)
    with open("wild/report.html") as file:
        require("Diverged: train again with a lower --lr" in file.read(), "the report does not say so")


def check_recipe():
    """What a user of the Trainer changes reaches the single commands, and settings.yaml."""
    recipe = ("--precision bf16 --logits whole --optimizer adamw:beta2=0.98 --lr 1e-3 --weight-decay 0 --clip 0 "
              "--warmup 3 --schedule-lr cosine --eval-every 4 --keep-best loss --patience 0 --epochs 1 "
              "--freeze bert --train layer.1").split()
    script = finetune("model", "reviews.csv", "-o", "recipe", "--dry-run", *recipe)
    for words in ("--precision bf16 ", "--logits whole ", "adamw:beta2=0.98,lr=1e-3,weight_decay=0 ", "--clip 0 ",
                  "--warmup 3 ", "--schedule-lr cosine ", "--eval-every 4 ", "--keep-best loss ",
                  "--checkpoint-every 4 "):
        require(words in script, "no", words, script)
    require("--patience" not in script, "without end is no patience", script)
    finetune("model", "reviews.csv", "-o", "recipe", *recipe)
    require([setting(name, "recipe") for name in ("precision", "warmup", "patience")] == ['"bf16"', '"3"', '"0"'],
            "settings.yaml has another recipe")
    finetune("--resume", "recipe", "--precision", "bf16")
    check_frozen()


def check_frozen():
    """Patterns without wildcards are components of names, and --train comes after --freeze."""
    before, after = (safetensors_files.read(f"{folder}/model.safetensors") for folder in ("model", "recipe/model"))
    for name in before:
        if name.startswith("bert.") and name in after:
            changed = before[name].tobytes() != after[name].tobytes()
            require(changed == ("layer.1." in name) or name.endswith("key.bias"), name,
                    "is trained" if changed else "is not trained")


def check_tokenizer():
    """An imported model keeps its tokenizer: the folder may go."""
    shutil.copytree("model", "moved")
    run(skycc, "import", "moved", "--head", "seqcls:3", "-o", "kept.onnx")
    with open("moved/config.json") as file:
        config = json.load(file)
    with open("moved/config.json", "w") as file:
        json.dump({**config, "architectures": ["BertModel"]}, file)
    run(skycc, "import", "moved", "-o", "encoder.onnx")
    shutil.rmtree("moved")
    require(predictions("kept.onnx", "--text", "great"), "no prediction without the folder")
    script = finetune("kept.onnx", "reviews.csv", "--dry-run", "-o", "none")
    require("--head seqcls:3" in script and "--as-is" in script, "the head is not kept", script)
    script = finetune("encoder.onnx", "reviews.csv", "--dry-run", "-o", "none")
    require("encoder.tokenizer/vocab.txt" in script, "no tokenizer", script)
    finetune("encoder.onnx", "reviews.csv", "-o", "graph", *TRAIN[:-1], "1")
    require(os.path.exists("graph/model/config.json"), "no folder comes of an encoder")
    run(skycc, "tokenize", "reviews.csv", "--model", "kept.onnx", "--text", "review", "-o", "kept.safetensors")
    with open("model/vocab.txt") as one, open("kept.tokenizer/vocab.txt") as other:
        require(one.read() == other.read(), "another tokenizer")


def check_outputs_spare_the_run():
    """A run is an input as a whole, also what a command does not read of it."""
    write_table("again.csv", ["review", "kind"], reviews(8))
    for part in ("model/model.safetensors", "metrics.json", "log.csv"):
        with open(f"run/{part}", "rb") as file:
            before = file.read()
        for command in (["predict", "run", "--text", "great"], ["evaluate", "run", "again.csv"], ["export", "run"]):
            text = run(skycc, *command, "-o", f"run/{part}", code=2).stderr
            require("would replace" in text, command, part, text)
            with open(f"run/{part}", "rb") as file:
                require(file.read() == before, command, "replaces", part)
    for part in ("settings.yaml", "metrics.json", "report.html", "cluster.yaml", "data/train.holdout.safetensors"):
        text = run("run/programs/train", "--data", "run/data/train.safetensors", "--log", f"run/{part}", code=2).stderr
        require("would replace a part of the run" in text, part, text)
    for _ in range(2):
        run(skycc, "predict", "run", "--text", "great", "-o", "run/mine.csv")  # which is no part of it
    os.remove("run/mine.csv")


def check_lost_output(*arguments):
    """Nobody reads what is printed any more: the model is trained all the same, and the exit code says it."""
    reader, writer = os.pipe()
    os.close(reader)
    result = subprocess.run([skycc, "finetune", "model", "reviews.csv", *arguments], stdout=writer,
                            stderr=subprocess.PIPE, text=True)
    os.close(writer)
    require(result.returncode == 1 and "standard output" in result.stderr, result.returncode, result.stderr)
    require(os.path.exists("run/model/model.safetensors"), "no model")
    require(os.path.exists("run/metrics.json") and os.path.exists("run/model/README.md"), "no metrics")


def check_edited_settings():
    """settings.yaml is for people to read, and may have been edited: what is missing or makes no sense is named."""
    shutil.copytree("run", "edited")
    with open("run/settings.yaml") as file:
        lines = file.read().splitlines()
    for key in ("model", "tables", "task", "tokenizer", "cluster", "batch", "epochs", "seed"):
        for new in ([], *([[f'{key}: "nonsense"']] if key in ("task", "batch", "epochs") else [])):
            with open("edited/settings.yaml", "w") as file:
                file.write("\n".join([line for line in lines if not line.startswith(f"{key}:")] + new) + "\n")
            text = run(skycc, "finetune", "--resume", "edited", code=1).stderr
            require("edited/settings.yaml" in text and "error" in text and (key in text or new), key, new, text)


def main():
    with tempfile.TemporaryDirectory(prefix="skycc-test-") as scratch:
        os.chdir(scratch)
        make_model("model", data)
        write_table("reviews.csv", ["id", "review", "kind"], [(i, *row) for i, row in enumerate(reviews(300))])
        check_classes()
        check_predictions()
        check_evaluation()
        check_outputs_spare_the_run()
        check_edited_settings()
        check_resuming()
        check_seeds()
        check_mistakes()
        check_places()
        check_lora()
        check_divergence()
        check_recipe()
        check_tokenizer()
        check_existing()
    sys.exit(failed())


if __name__ == "__main__":
    main()
