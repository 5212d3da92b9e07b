#!/usr/bin/python3
"""skycc finetune finds out from the columns what to train for: every task from its table to a prediction and to
metrics, and the messages where columns do not say it.

    tests/driver/finetune/test_finetune_tasks.py SKYCC FOLDERS

FOLDERS is tests/data/huggingface.
"""
import csv
import gzip
import html
import io
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "common"))
sys.path.insert(0, os.path.dirname(__file__))
import numpy as np  # noqa: E402
import onnx  # noqa: E402
import browser  # noqa: E402
import safetensors_files  # noqa: E402
from checks import check_all, failed, require, run  # noqa: E402
from finetune_data import KINDS, make_model, reviews, write_table  # noqa: E402

skycc, data = map(os.path.abspath, sys.argv[1:3])
here = os.getcwd()
QUICK = ["--epochs", "1", "--lr", "1e-3"]
PATH = dict(os.environ, PATH=os.path.dirname(skycc) + ":" + os.environ["PATH"])
generator = random.Random(5)


def finetune(table, folder, *arguments):
    tables = [table] if isinstance(table, str) else table
    return run(skycc, "finetune", "model", *tables, "-o", folder, *QUICK, *arguments).stdout


def tokenized(table, folder, *arguments):
    """What finetune would train on: of the commands that it prints, those that make data sets."""
    tables = [table] if isinstance(table, str) else table
    script = run(skycc, "finetune", "model", *tables, "-o", folder, "--dry-run", *arguments).stdout
    lines = [line for line in script.splitlines() if line.startswith(("mkdir", "skycc tokenize"))]
    run("sh", "-ec", "\n".join(lines), env=PATH)
    with open(f"{folder}/data/train.safetensors", "rb") as file:
        return file.read()


def setting(name, folder):
    with open(f"{folder}/settings.yaml") as file:
        return next((line.split(":", 1)[1].split("   #")[0].strip().strip('"') for line in file
                     if line.startswith(name + ":")), None)


def predict(folder, *arguments):
    return list(csv.DictReader(io.StringIO(run(skycc, "predict", folder, *arguments).stdout, newline="")))


def logged(folder):
    """The metrics of the best evaluation in the log."""
    best = os.listdir(f"{folder}/checkpoints/best")
    step = next(str(int(name[5:])) for name in best if name.startswith("step-"))
    with open(f"{folder}/log.csv", newline="") as file:
        return next({name[5:]: float(value) for name, value in row.items() if name.startswith("eval_") and value}
                    for row in csv.DictReader(file) if row["step"] == step)


def same_metrics(folder, *names):
    """Training, which packs rows, and skycc evaluate, which pads them, measure the same."""
    found, wanted = metrics(folder), logged(folder)
    for name in names:
        require(abs(found[name] - wanted[name]) < 1e-5, folder, name, found[name], "is logged as", wanted[name])


def metrics(folder):
    with open(f"{folder}/metrics.json") as file:
        return json.load(file)


def worst(folder, found=None):
    """The worst errors, the largest losses first, which the page shows with all that is said of them."""
    rows = metrics(folder)["worst"]
    with open(f"{folder}/report.html") as file:
        page = file.read()
    losses = [row["loss"] for row in rows]
    require(0 < len(rows) <= 20 and losses == sorted(losses, reverse=True), folder, losses)
    for row in rows:
        require(row["label"] != row["predicted"], folder, row)
        for value in (row[key] for key in ("question", "text", "label", "predicted") if key in row):
            require(html.escape(value or "none", quote=True).replace("&#x27;", "'") in page, folder, value)
    return rows


def config(folder):
    with open(f"{folder}/model/config.json") as file:
        return json.load(file)


def write_lines(path, rows):
    with open(path, "w") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


TEXTS = [text for text, _ in reviews(80)]


def check_labels():
    write_table("stars.csv", ["text", "stars"], [(text, generator.choice([-1, 2, 10])) for text in TEXTS])
    finetune("stars.csv", "stars")
    require(setting("head", "stars") == "seqcls:3", "stars:", setting("head", "stars"))
    require(list(config("stars")["id2label"].values()) == ["-1", "2", "10"], config("stars")["id2label"])
    require(config("stars")["problem_type"] == "single_label_classification", config("stars")["problem_type"])
    require(predict("stars", "--text", "great")[0]["label"] in ("-1", "2", "10"), "no number of stars")

    write_table("score.csv", ["text", "score"], [(text, f"{generator.uniform(-2, 5):.3f}") for text in TEXTS])
    finetune("score.csv", "score")
    require(setting("task", "score") == "regression" and config("score")["problem_type"] == "regression", "regression")
    require("pearson" in metrics("score") and "value" in predict("score", "--text", "great")[0], metrics("score"))

    rows = [(text, generator.randint(0, 1), generator.randint(0, 1)) for text in TEXTS]
    write_table("flags.csv", ["text", "rude", "long"], [(text, bool(rude), float(long)) for text, rude, long in rows])
    finetune("flags.csv", "flags")
    write_lines("lists.jsonl", [{"text": text, "labels": ["rude"] * rude + ["long"] * long}
                                for text, rude, long in rows])
    finetune("lists.jsonl", "lists")
    write_lines("vectors.jsonl", [{"text": text, "labels": [rude, long, 0]} for text, rude, long in rows])
    said = run(skycc, "finetune", "model", "vectors.jsonl", "-o", "vectors", "--dry-run").stdout
    require("multilabel:3" in said, "vectors:", said)
    for folder in ("flags", "lists"):
        require(setting("head", folder) == "multilabel:2", folder, setting("head", folder))
        require(config(folder)["problem_type"] == "multi_label_classification", folder)
        require(sorted(config(folder)["id2label"].values()) == ["long", "rude"], config(folder)["id2label"])
        require(set(predict(folder, "--text", "great")[0]) == {"row", "labels", "rude", "long"}, folder)
        require("f1-macro" in metrics(folder), metrics(folder))
        row = worst(folder)[0]
        found = predict(folder, "--text", row["text"])[0]
        right = [float(found[name]) if name in row["label"] else 1 - float(found[name]) for name in ("long", "rude")]
        require(row["predicted"].split(", ") == (found["labels"] or "").split(";"), row, found)
        require(abs(row["loss"] + np.log(right).mean()) < 1e-4, row, found)

    write_table("pairs.tsv.csv", ["premise", "hypothesis", "label"],
                [(text, TEXTS[i - 1], "yes" if i % 3 else "no") for i, text in enumerate(TEXTS)])
    finetune("pairs.tsv.csv", "two")
    require(setting("text", "two") == '["premise", "hypothesis"]', setting("text", "two"))
    require(predict("two", "--text", "great", "--text2", "awful")[0]["label"] in ("yes", "no"), "pairs")


def check_words():
    names = ["O", "B-THING", "I-THING"]
    rows = [[(word, names[len(word) % 3]) for word in text.replace(".", " .").split()] for text in TEXTS]
    write_lines("ner.jsonl", [{"id": i, "tokens": [word for word, _ in row], "ner_tags": [tag for _, tag in row]}
                              for i, row in enumerate(rows)])
    with open("ner.conll", "w") as file:
        file.write("\n".join("".join(f"{word} {tag}\n" for word, tag in row) for row in rows))
    finetune("ner.jsonl", "ner")
    require(setting("head", "ner") == "tokcls:3", setting("head", "ner"))
    require({row["label"] for row in predict("ner", "--text", "the battery is great")} <= set(names), "tags")
    with open("words.jsonl", "w") as file:  # the same rows as texts, and without tags
        file.writelines(json.dumps({"tokens": " ".join(word for word, _ in row)}) + "\n" for row in rows)
    tags = [predict("ner", "--data", name) for name in ("ner.jsonl", "ner.conll", "words.jsonl")]
    require([row["text"] for row in tags[0]] == [word for row in rows for word, _ in row], tags[0][:20])
    require(tags[0] == tags[1] == tags[2], "the same words in another form have other tags")
    for form, name in (("json", "ner.jsonl"), ("conll", "ner.conll")):
        with open(name) as file:
            said = run(skycc, "predict", "ner", "--data", "-", input=file.read()).stdout
        require(list(csv.DictReader(io.StringIO(said, newline=""))) == tags[0], form, "from standard input")
    write_lines("odd.jsonl", [{"tokens": ["the battery", "", "\u200b", 7, "is great."]}, {"tokens": []}])
    odd = predict("ner", "--data", "odd.jsonl")
    require([(row["row"], row["word"], row["text"]) for row in odd] ==
            [("0", "0", "the battery"), ("0", "3", "7"), ("0", "4", "is great.")], odd)
    write_lines("no-list.jsonl", [{"tokens": ["a"]}, {"tokens": {"a": 1}}])
    said = run(skycc, "predict", "ner", "--data", "no-list.jsonl", code=1).stderr
    require(said.startswith("no-list.jsonl:2: error: 'words' is not a list"), said)
    require([row["label"] for row in metrics("ner")["classes"]] == ["THING"], metrics("ner")["classes"])
    same_metrics("ner", "accuracy", "f1", "loss")
    row = next(row for row in worst("ner") if row["text"].endswith(" ."))  # of words that no quotes adjoin
    found = predict("ner", "--text", row["text"])
    right = [names[len(word["text"]) % 3] for word in found]
    wrong = [(word["text"], tag, word["label"]) for word, tag in zip(found, right) if tag != word["label"]]
    for key, tag in ("label", 1), ("predicted", 2):
        require(row[key] == ", ".join(f"{word[0]} {word[tag]}" for word in wrong), row, found)
    loss = -np.log([float(word[tag]) for word, tag in zip(found, right)]).mean()
    require(abs(row["loss"] - loss) < 1e-4, row, loss)
    with open("ner.tsv", "w") as file:
        file.write("tokens\tner_tags\n")
        file.writelines("\t".join(" ".join(cells) for cells in zip(*row)) + "\n" for row in rows)
    with open("ner.conll") as whole, open("half.conll", "w") as half:
        half.write("\n\n".join(whole.read().split("\n\n")[:40]))
    write_lines("half.jsonl", [{"tokens": [word for word, _ in row], "ner_tags": [tag for _, tag in row]}
                               for row in rows[40:]])
    wanted = safetensors_files.read("ner/data/train.safetensors")
    for form in "ner.conll", "ner.tsv", ["half.conll", "half.jsonl"]:
        tokenized(form, "forms")
        found = safetensors_files.read("forms/data/train.safetensors")
        require(all(np.array_equal(wanted[name], found[name]) for name in ("input_ids", "labels")), form,
                "the same words in another form give other rows")
    shutil.copy("ner.conll", "words.txt")
    said = run(skycc, "predict", "ner", "--data", "words.txt", code=1).stderr
    require("names no column 'tokens'" in said and "needs a name in .conll" in said, said)
    said = run(skycc, "predict", "ner", "--data", "-", input="words\ttags\nthe battery is\tO O O\n", code=1).stderr
    require("standard input:1: error: names no column 'tokens'" in said, said)

    finetune("plain.txt", "mlm")
    found = metrics("mlm")
    require(setting("task", "mlm") == "mlm" and "perplexity" in found, found)
    require(not {"f1", "classes"} & set(found), "pieces are measured as classes", found)
    with open("model/vocab.txt") as file:
        pieces = set(file.read().split())
    rows = worst("mlm")
    require(any("[MASK]" in row["text"] for row in rows), "masks are not shown", rows)
    require(all(set(row[key].split(", ")) <= pieces for row in rows for key in ("label", "predicted")), rows)
    require(len(predict("mlm", "--text", "the [MASK] is great")) == 5, "no five pieces for a mask")


def check_places(data):
    """Tokens stand for the bytes that make them, and answers for the answer."""
    strings = bytes(data["texts"]).split(b"\0\0")
    with open("model/vocab.txt") as file:
        words = file.read().split("\n")
    numbers = sorted(set(data["row"].tolist()))
    for row, ids, begins, ends, first, last in zip(*(data[name] for name in (
            "row", "input_ids", "text_begin", "text_end", "start_positions", "end_positions"))):
        context, answer = strings[numbers.index(row)].split(b"\0")[:2]
        for number, begin, end in zip(ids, begins, ends):
            piece = words[number] if begin >= 0 else ""
            require(begin < 0 or piece == "[UNK]" or context[begin:end].decode().lower() == piece, piece, begin, end)
        require(not first or context[begins[first]:ends[last]] == answer, context, answer, first, last)
    require((data["start_positions"] > 0).any() and (data["text_begin"] >= 0).any(), "no answers")


def check_answers():
    rows = [{"id": str(i), "question": "was the battery great ?", "context": text + " the camera is " + word + " .",
             "answers": {"text": [word], "answer_start": [len(text) + 15]}}
            for i, (text, word) in enumerate((text, generator.choice(["great", "awful"])) for text in TEXTS)]
    write_lines("qa.jsonl", rows)
    write_lines("short.jsonl", [{"question": "great ?", "context": "the camera is great .",
                                 "answers": {"text": [word], "answer_start": [start]}}
                                for word, start in (("great", 14), ("camera", 4)) * 4])  # half are answered wrongly
    finetune("qa.jsonl", "qa", "--max-length", "20", "--eval", "short.jsonl")
    mask = safetensors_files.read("qa/data/train.safetensors")["attention_mask"]
    with open("qa/settings.yaml") as file:
        said = int(re.search(r"about (\d+)% of the tokens computed are padding", file.read())[1])
    require(abs(said - 100 * (1 - mask.mean())) < 6, "padding is said to be", said, "%, not", 100 * (1 - mask.mean()))
    require(setting("head", "qa") == "qa" and setting("stride", "qa") == "6", setting("stride", "qa"))
    same_metrics("qa", "exact", "f1", "loss")
    with open("qa/report.html") as file:
        require(">exact<" in file.read(), "the report lacks a metric")
    require(len(worst("qa")) >= 4, worst("qa"))
    check_places(safetensors_files.read("qa/data/train.safetensors"))
    require(metrics("qa")["rows"] == 8, metrics("qa"))
    tokenized("qa.jsonl", "held", "--max-length", "20")
    held = safetensors_files.read("held/data/train.holdout.safetensors")["row"]
    require(len(set(held.tolist())) == 8, "of 80 rows, 8 are held out, not", held)
    before, after = (safetensors_files.read(f"{folder}/model.safetensors")["bert.embeddings.word_embeddings.weight"][0]
                     for folder in ("model", "qa/model"))
    ratio = (after / before).mean()
    require(0.99 < ratio < 1 and np.abs(after - ratio * before).max() < 1e-7,
            "the library's padding takes weight decay alone, this one", np.abs(after - before).max())
    answer = predict("qa", "--text", rows[0]["question"], "--text2", rows[0]["context"])
    require(answer[0]["answer"] in rows[0]["context"], answer)
    far = "the screen is lovely . " * 40
    write_lines("wrong.jsonl", [dict(rows[0], context=far + rows[0]["context"] + far,
                                     answers={"text": ["camera"], "answer_start": [len(far + TEXTS[0]) + 5]}),
                                dict(rows[0], answers={"text": ["the camera"], "answer_start": [len(TEXTS[0]) + 1]}),
                                dict(rows[0], context=far + rows[0]["context"] + far,
                                     answers={"text": ["screen"], "answer_start": [4]})])
    run(skycc, "evaluate", "qa", "wrong.jsonl", "-o", "wrong.json", "--tokenizer", "model/vocab.txt")
    with open("wrong.json") as file:
        found = {row["row"]: row for row in json.load(file)["worst"]}
    require("was the battery great" in found[0]["question"] and found[0]["label"] == "camera", found)
    require(rows[0]["context"] in found[0]["text"] and found[0]["text"].startswith("...") and
            found[0]["text"].endswith("...") and len(found[0]["text"]) < 420, found)
    require(found[2]["text"].startswith("the screen is"), "what surrounds the right answer is not shown", found[2])
    require(found[1]["text"] == rows[0]["context"] and found[1]["predicted"] == answer[0]["answer"], found, answer)


def check_pairs():
    """Both texts go through the same weights: each embedding is that of the text alone."""
    write_table("two.csv", ["anchor", "positive"], list(zip(TEXTS, TEXTS[1:] + TEXTS[:1])))
    finetune("two.csv", "apart", "--test", "two.csv")
    same_metrics("apart", "accuracy", "loss")
    with open("apart/test.json") as file:
        require(json.load(file)["rows"] == 80, "no test of pairs")
    text = run(skycc, "evaluate", "apart", "two.csv").stdout
    require("accuracy" in text and "rows         80" in text, text)
    require([setting(name, "apart") for name in ("task", "head", "loss")] ==
            ["pairs", "pairs:mean", "contrastive:embedding:embedding_2"], "pairs:", setting("head", "apart"))
    rows = safetensors_files.read("apart/data/train.safetensors")
    both = {name: tensor[:5] for name, tensor in rows.items() if name != "lengths"}
    safetensors_files.write("both.safetensors", both)
    run(skycc, "run", "apart/model.onnx", "--inputs", "both.safetensors", "-o", "pairs.safetensors")
    run(skycc, "import", "model", "--head", "embedding:mean", "-o", "single.onnx", "-q")
    found = safetensors_files.read("pairs.safetensors")
    for suffix in ("", "_2"):
        names = ("input_ids", "attention_mask", "token_type_ids")
        safetensors_files.write("one.safetensors", {name: both[name + suffix] for name in names})
        run(skycc, "run", "single.onnx", "--inputs", "one.safetensors", "-o", "single.safetensors")
        alone = safetensors_files.read("single.safetensors")["out/embedding"]
        require(np.abs(found[f"out/embedding{suffix}"] - alone).max() < 1e-5, "embedding" + suffix, "is another")
    similarity = float(predict("apart", "--text", "great", "--text2", "awful")[0]["similarity"])
    require(-1 <= similarity <= 1.0001, similarity)
    write_table("alone.csv", ["anchor", "positive"], [TEXTS[:2]])
    write_table("equal.csv", ["anchor", "positive"], [TEXTS[:1] * 2] * 8)
    for command in (["evaluate", "apart", "alone.csv"],
                    ["finetune", "model", "two.csv", "--eval", "alone.csv", "-o", "refused", "--epochs", "1"]):
        result = run(skycc, *command, code=1)
        require("has only one pair: there is no other to tell it from" in result.stderr, command, result.stderr)
    text = run(skycc, "evaluate", "apart", "equal.csv").stdout
    require("accuracy     0.00%" in text, "what tells nothing apart is right:", text)
    finetune("two.csv", "equal", "--eval", "equal.csv")
    same_metrics("equal", "accuracy", "loss")
    with open("equal/metrics.json") as file:
        require(json.load(file)["accuracy"] == 0, "training finds what tells nothing apart right")
    result = run(skycc, "compile", "single.onnx", "-d", "apart/cluster.yaml", "-o", "none", "--dim", "seq=9", code=2)
    require("--head pairs:mean" in result.stderr, result.stderr)


def check_tables():
    rows = list(reviews(90))
    write_table("a.csv", ["review", "kind"], rows[:50])
    write_table("b.csv", ["kind", "review"], [row[::-1] for row in rows[50:]])
    write_table("all.csv", ["review", "kind"], rows)
    require(tokenized(["a.csv", "b.csv"], "several") == tokenized("all.csv", "one"), "two files give other rows")
    with open("french.csv", "w", encoding="cp1252", newline="") as file:
        csv.writer(file).writerows([("review", "kind"), *((text.encode("ascii", "ignore").decode() + " é€", kind)
                                                          for text, kind in rows)])
    tokenized("french.csv", "french", "--encoding", "cp1252")
    write_table("eval.csv", ["review", "kind"], [("great", sorted({kind for _, kind in rows})[1])] * 3)
    finetune("all.csv", "evaluated", "--eval", "eval.csv")
    require(metrics("evaluated")["rows"] == 3 and not setting("holdout", "evaluated"), metrics("evaluated"))


def check_strata():
    """A class of 10 of 100 rows is held out as others are."""
    write_table("rare.csv", ["text", "label"], [(f"the battery is great w{i % 30 + 26}", "rare" if i < 10 else "usual")
                                                for i in range(100)])
    tokenized("rare.csv", "rare")
    held = safetensors_files.read("rare/data/train.holdout.safetensors")["labels"]
    require(sorted(np.bincount(held)) == [1, 9], "held out are", held)


def refused(reasons, table, *arguments):
    before = sorted(os.listdir("."))
    result = run(skycc, "finetune", "model", table, "-o", "none", *arguments, code=2 if "--" in reasons[-1] else 1)
    for reason in reasons:
        require(reason in result.stderr, table, arguments, "does not say", reason, result.stderr)
    require(sorted(os.listdir(".")) == before, table, "leaves something")


def check_columns():
    rows = list(zip(TEXTS, TEXTS[1:], ["a", "b"] * 40, ["x", "y"] * 40))
    write_table("twice.csv", ["first", "second", "kind", "sort"], rows)
    refused(["several columns may hold the texts", "first, second, kind, sort", "--text"], "twice.csv")
    refused(["several columns may hold the labels", "kind", "sort", "--label"], "twice.csv", "--text", "first,second")
    refused(["no column 'kinds'", "first, second, kind, sort"], "twice.csv", "--label", "kinds")
    refused(["no task 'ners'", "--task takes"], "twice.csv", "--task", "ners")
    write_table("only.csv", ["text", "note"], [(text, text) for text in TEXTS])
    refused(["no column looks like labels", "--label"], "only.csv", "--text", "text")
    write_table("same.csv", ["text", "label"], [(text, "a") for text in TEXTS])
    refused(["only one label"], "same.csv")
    open("empty.csv", "w").close()
    refused(["is empty"], "empty.csv")
    write_table("header.csv", ["text", "label"], [])
    refused(["has no rows"], "header.csv")


def check_forms():
    """Compressed tables and arrays of JSON are the tables that they hold; what is none is refused by name."""
    rows = [{"text": text, "label": "ab"[i % 2]} for i, text in enumerate(TEXTS)]
    write_lines("lines.jsonl", rows)
    with open("array.json", "w") as file:
        json.dump(rows, file, indent=1)
    with open("data.json", "w") as file:
        json.dump({"version": 1, "data": rows}, file, indent=1)
    write_table("table.csv", ["text", "label"], [tuple(row.values()) for row in rows])
    with open("table.csv", "rb") as file, gzip.open("table.csv.gz", "wb") as packed:
        packed.write(file.read())
    with open("array.json", "rb") as file, gzip.open("array.json.gz", "wb") as packed:
        packed.write(file.read())
    found = set()
    for table in ("lines.jsonl", "array.json", "data.json", "table.csv", "table.csv.gz", "array.json.gz"):
        text = run(skycc, "finetune", "model", table, "-o", "none", "--dry-run").stdout
        require("80 rows" in text and "'label' has 2 different texts" in text, table, text)
        run(skycc, "tokenize", table, "--vocab", "model/vocab.txt", "--text", "text", "--label", "label", "--classes",
            "-o", "form.safetensors")
        found.add(safetensors_files.read("form.safetensors")["input_ids"].tobytes())
    require(len(found) == 1, "the same rows in other forms have other tokens")
    with open("table.csv.gz", "rb") as file:
        packed = file.read()
    for name, content, reason in (("rows.parquet", b"PAR1..", "pandas.read_parquet"),
                                  ("book.csv", b"PK\3\4", "workbook"),
                                  ("rows.csv.xz", b"\xfd7zXZ\0.", "unxz"),
                                  ("cut.csv.gz", packed[:50], "ends too early"),
                                  ("odd.csv.gz", packed[:2] + b"odd", "not a gzip file"),
                                  ("rows.json", b"[{\"text\": ]", "error"),
                                  ("one.json", b"{\n\"a\": 1}", "a list \"data\"")):
        with open(name, "wb") as file:
            file.write(content)
        refused([reason], name)


def check_spoilt():
    """What would spoil training or its metrics is said before it, or refused."""
    def warned(reason, header, rows, *arguments, absent=False):
        write_table("odd.csv", header, rows)
        result = run(skycc, "finetune", "model", "odd.csv", "-o", "none", "--dry-run", *arguments)
        require((reason in result.stderr) != absent, reason, "is" if absent else "is not", "said:", result.stderr)
    kinds = ["a"] * 76 + ["b"] * 4
    warned("has label 'a' in 76 of 80 rows, but 'b' in only 4", ["text", "label"], zip(TEXTS, kinds))
    warned("has label", ["text", "label"], zip(TEXTS, ["a", "b"] * 40), absent=True)
    warned("has no text in 2 of 80 rows", ["text", "label"], zip(["", ""] + TEXTS[2:], ["a", "b"] * 40))
    warned("in column 'split' which rows are for training", ["text", "label", "split"],
           zip(TEXTS, ["a", "b"] * 40, ["train"] * 60 + ["test"] * 20))
    warned("has 0 in every row of column 'long'", ["text", "rude", "long"], zip(TEXTS, [0, 1] * 40, [0] * 80),
           "--label", "rude,long")
    for reason, header, rows, arguments in (
            ("no text in any of 80 rows", ["text", "label"], zip([""] * 80, ["a", "b"] * 40), []),
            ("the same number, 2.5,", ["text", "score"], zip(TEXTS, ["2.5"] * 80), []),
            ("only one label", ["text", "label"], zip(TEXTS, ["a"] * 80), []),
            ("other values than 0 and 1 in column 'kind'", ["text", "rude", "kind"], zip(TEXTS, [0, 1] * 40, kinds),
             ["--label", "rude,kind"]),
            ("names the column 'text' twice", ["text", "text", "label"], zip(TEXTS, TEXTS, kinds), ["--text", "text"]),
            ("names the column 'kind' twice", ["text", "kind", "kind"], zip(TEXTS, kinds, kinds), ["--label", "kind"])):
        write_table("odd.csv", header, rows)
        result = run(skycc, "finetune", "model", "odd.csv", "-o", "none", "--dry-run", *arguments, code=1)
        require(reason in result.stderr and "hint:" in result.stderr, reason, result.stderr)
    apart = [(f"w{26 + i // 30} is w{26 + i % 30}", "ab"[i % 2]) for i in range(80)]
    write_table("apart.csv", ["text", "label"], apart)
    write_table("leak.csv", ["text", "label"], apart[:3] + [("great great great", "a")])
    with open("small.yaml", "w") as file:
        file.write("devices: [{name: here, memory: 20KiB}]\n")  # it is said before anything is compiled
    small = ["-d", "small.yaml"]
    result = run(skycc, "finetune", "model", "apart.csv", "-o", "leak", *small, "--eval", "leak.csv", code=4)
    require("leak.csv: warning: has only 4 rows to evaluate on" in result.stderr, result.stderr)
    require("leak.csv: warning: 3 of 4 rows to evaluate on have the same text" in result.stderr, result.stderr)
    result = run(skycc, "finetune", "model", "apart.csv", "-o", "apart.run", *small, code=4)
    require("the same text" not in result.stderr, result.stderr)


def check_siblings():
    """What people's tables hold besides what the manual shows: the task and the head, or why there is none."""
    short, kinds, words = TEXTS[:60], ["a", "b"] * 30, [f"{i / 7:.3f}" for i in range(60)]
    tags = [["O", "B-X", "I-X"][: 2 + i % 2] for i in range(60)]
    tokens = [[f"w{i}", "great", "screen"][: 2 + i % 2] for i in range(60)]
    answers = [{"question": f"is w{i} it", "context": f"the w{i} was great", "answer": f"w{i}"} for i in range(30, 60)]
    many = [(f"w{i % 30 + 26} is w{i // 60 + 26}", f"c{i // 2}") for i in range(3000)]
    for name, header, rows, arguments, expected in (
            ("booleans.csv", ["text", "a", "b"], zip(short, ["True", "False"] * 30, ["False"] * 59 + ["True"]), [],
             ["multi-label", "multilabel:2"]),
            ("vectors.jsonl", ["text", "labels"], zip(short, [[1, 0, 1], [0, 0, 1]] * 30), [], ["multilabel:3"]),
            ("numbers.jsonl", ["text", "labels"], zip(short, [[0], [4, 1]] * 30), [], ["multilabel:5"]),
            ("named.jsonl", ["text", "labels"], zip(short, [["b"], ["a", "b"]] * 30), [], ["classes: a, b"]),
            ("whole.csv", ["text", "label"], zip(short, ["0.0", "1.0", "2.0"] * 20), [],
             ["regression", "--task classes takes them"]),
            ("thousands.csv", ["text", "label"], many, [], ["seqcls:1500", "and 1488 more"]),
            ("cut.csv", ["words", "tags"], [map(" ".join, row) for row in zip(tokens, tags)], [],
             ["ner", "tokcls:3", "classes: B-X, I-X, O", "length        5 "]),
            ("lists.csv", ["words", "tags"], [map(json.dumps, row) for row in zip(tokens, tags)], [],
             ["tokcls:3", "length        5 "]),
            ("other.jsonl", ["w", "t"], zip(tokens, tags), [], ["ner", "text          w ", "label         t "]),
            ("pair.csv", ["a", "b"], zip(TEXTS, TEXTS[1:]), [], ["pairs:mean"]),
            ("answers.jsonl", list(answers[0]), [row.values() for row in answers], [], ["head          qa"]),
            ("yes.jsonl", list(answers[0]), [(*list(row.values())[:2], "yes" if i % 2 else "no")
                                             for i, row in enumerate(answers)], [], ["seqcls:2", "classes: no, yes"]),
            ("late.jsonl", ["text", "label"], zip(short, [None, *kinds[1:]]), [], ["seqcls:2"]),
            ("bracket.csv", ["text", "label"], zip(["[SPOILER] it is great"] + short[1:], kinds), [], ["seqcls:2"]),
            ("odd.csv", ["text", "score"], zip(short, ["n/a", *words[1:]]), [],
             ["odd.csv:2: error: 'n/a' in column 'score' is not a number, but 59 of its 60 values are"]),
            ("forced.csv", ["text", "score"], zip(short, ["n/a", *words[1:]]), ["--task", "regression"],
             ["forced.csv:2: error: 'n/a' in column 'score' is not a number"]),
            ("unique.csv", ["text", "label"], zip(short, range(60)), ["--label", "label"],
             ["60 different labels in 60 rows"]),
            ("bare.csv", [short[0], "a"], zip(short[1:], kinds[1:]), [], ["bare.csv:1: error", "'a' is also a value"]),
            ("line.txt", ["the battery is great"], [[text.replace("\n", " ")] for text in short], [],
             ["line.txt:1: warning: 'the battery is great' is taken as the name of a column"]),
            ("twin.csv", ["text", "text"], zip(short, kinds), [], ["names the column 'text' twice"]),
            ("ragged.csv", ["text", "label"], [*zip(short, kinds), ("great",)], [], ["error: has 1 columns where"]),
            ("ends.csv", ["text", "label"], zip(short, kinds), ["--eval", "absent.csv"], ["absent.csv: error"])):
        if name.endswith(".jsonl"):
            write_lines(name, [{key: value for key, value in zip(header, row) if value is not None} for row in rows])
        else:
            write_table(name, header, rows)
        result = subprocess.run([skycc, "finetune", "model", name, "-o", "none", "--dry-run", *arguments],
                                capture_output=True, text=True)
        text = result.stdout + result.stderr
        require(all(words in text for words in expected) and result.returncode == int("error:" in text), name, expected,
                result.returncode, text)
    finetune("vectors.jsonl", "vectors", "--eval", "vectors.jsonl")
    require(metrics("vectors")["rows"] == 60 and list(config("vectors")["id2label"].values()) == ["0", "1", "2"],
            config("vectors"))
    write_lines("floats.jsonl", [{"text": text, "labels": [1.0, 0.0, 1.0]} for text in short])
    found = run(skycc, "evaluate", "vectors", "floats.jsonl").stdout
    require("rows         60" in found, "the same vectors as fractions", found)


def graph(name, folder, labels=None):
    """An ONNX file of PyTorch's exporter with a vocabulary next to it and, if it has names of labels, config.json."""
    os.makedirs(folder)
    shutil.copy(f"{data}/../bert/bert-nano-{name}.onnx", f"{folder}/model.onnx")
    shutil.copy("model/vocab.txt", folder)
    if labels:
        with open(f"{folder}/config.json", "w") as file:
            json.dump({"id2label": dict(enumerate(labels))}, file)
    return f"{folder}/model.onnx"


def share(path):
    """Both layers of the graph read one matrix, of which imports warn."""
    model = onnx.load(path)
    one, other = [tensor.name for tensor in model.graph.initializer if list(tensor.dims) == [32, 64]]
    for node in model.graph.node:
        node.input[:] = [one if name == other else name for name in node.input]
    onnx.save(model, path)
    return path


def check_graphs():
    """Graphs that skycc did not import: encoders get a head, and a head that fits is trained as it is."""
    names = sorted(KINDS, reverse=True)  # other numbers than the table's
    write_table("kinds.csv", ["review", "kind"], reviews(200))
    arguments = ["finetune", graph("seqcls-opset17-dyn", "own", names), "kinds.csv", "--lr", "1e-2", "--epochs", "6"]
    text = run(skycc, *arguments, "-o", "kept").stdout
    require("own labels" in text and "by their names" in text and "no Hugging Face folder" in text, text)
    require(metrics("kept")["accuracy"] > 0.9, "learns other labels than the table's", metrics("kept"))
    found = predict("kept", "--text", "great")
    require(list(found[0])[3:] == names and found[0]["label"] == "good", "labels are", found)
    require("accuracy" in run(skycc, "evaluate", "kept", "kinds.csv").stdout, "no evaluation")
    run(skycc, "export", "kept", "-o", "exported.onnx")
    for model in ("exported.onnx", "kept/model/model.onnx", "kept/model"):
        require(predict(model, "--text", "great", "--tokenizer", "own/vocab.txt") == found, model, "predicts another")
    run("sh", "-ec", run(skycc, *arguments, "-o", "steps", "--dry-run").stdout, env=PATH)
    with open("kept/model/model.onnx", "rb") as one, open("steps/model/model.onnx", "rb") as other:
        require(one.read() == other.read(), "the single commands give another model")
    with open("two.yaml", "w") as file:
        file.write("devices: [{name: one, threads: 1, memory: 1GiB}, {name: two, threads: 1, memory: 1GiB}]\n"
                   "keep: {inputs: two}\n")
    towers = [skycc, "finetune", share(graph("model-opset14-dyn", "bare")), "two.csv", "-o", "towers", *QUICK,
              "--freeze", "embeddings", "-d", "two.yaml", "--replicas", "1"]
    for more in ("--dry-run",), ("--seeds", "2"):
        said = run(*towers, *more).stderr
        require(said.count("skycc trains one parameter for both") == 1, more, "warns otherwise of the import:", said)
    require("similarity" in predict("towers", "--text", "great", "--text2", "awful")[0], "no embeddings")
    run(skycc, "finetune", graph("tokcls-opset17-dyn", "tags"), "ner.jsonl", "-o", "tagged", *QUICK, "--lora", "r=2")
    require(predict("tagged", "--text", "great")[0]["label"] in ("O", "B-THING", "I-THING"), "no tags")
    os.makedirs("none.onnx")
    shutil.copy("own/model.onnx", "none.onnx/model.onnx")
    partly = graph("seqcls-opset17-dyn", "partly", ["good", "bad", "worse"])
    for model, table, reason in (("none.onnx/model.onnx", "kinds.csv", "no tokenizer next to it"),
                                 (partly, "kinds.csv", "but not for 'mixed"),
                                 ("own/model.onnx", "rare.csv", "has a head of 3 labels, but the table has 2"),
                                 ("own/model.onnx", "ner.jsonl", "the task 'ner' of this table needs tokcls:3"),
                                 ("tags/model.onnx", "kinds.csv", "has another head: tokcls:3")):
        text = run(skycc, "finetune", model, table, "-o", "none", code=1).stderr
        require(reason in text and "hint:" in text and not os.path.exists("none"), model, table, text)
    for name, table, head in (("qa-opset17-dyn", "qa.jsonl", "head qa"), ("mlm-opset17-dyn", "plain.txt", "head mlm"),
                              ("seqcls-opset17-fix", "kinds.csv", "max-length 16"),
                              ("model-opset14-dyn", "plain.txt", "head mlm")):
        text = run(skycc, "finetune", graph(name, f"{name}.{table}"), table, "-o", "none", "--dry-run").stdout
        require(head in text and ("--as-is" in text.split("skycc head")[1].split("\n")[0]) == ("model" not in name),
                name, text)


def main():
    with tempfile.TemporaryDirectory(prefix="skycc-test-", ignore_cleanup_errors=True) as scratch:
        os.chdir(scratch)
        make_model("model", data)
        write_table("plain.txt", ["text"], [[text.replace("\n", " ")] for text in TEXTS])
        check_all((check_labels, check_words, check_answers, check_pairs, check_tables, check_strata, check_siblings,
                   check_graphs, check_columns, check_forms, check_spoilt),
                  not_less=(check_labels, check_pairs, check_tables, check_strata, check_graphs))
        browser.look({name: f"{name}/report.html" for name in ("score", "lists", "ner", "mlm", "qa", "apart")}, here)
        os.chdir(here)
    sys.exit(failed())


if __name__ == "__main__":
    main()
