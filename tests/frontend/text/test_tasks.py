#!/usr/bin/python3
"""`skycc tokenize` of words with tags, questions with answers, pairs and lists of labels: token by token what the
Hugging Face library makes of them (make_tasks.py), in every format of tables; and what is refused.

    tests/frontend/text/test_tasks.py SKYCC TOKENIZERS
"""
import csv
import json
import lzma
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "common"))
from checks import failed, require, run  # noqa: E402
from safetensors_files import metadata, read  # noqa: E402

skycc, tokenizers = map(os.path.abspath, sys.argv[1:3])
with open(f"{tokenizers}/tasks.json") as file:
    cases = json.load(file)


def text_file(name, text):
    with open(name, "w", encoding="utf-8") as file:
        file.write(text)


def json_lines(name, rows):
    text_file(name, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def table(name, rows, write=str):
    with open(name, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([list(rows[0]), *([write(cell) if isinstance(cell, (list, dict)) else cell
                                                      for cell in row.values()] for row in rows)])


def tokenize(name, *options, tokenizer="bert", length=cases["length"]):
    run(skycc, "tokenize", name, "--tokenizer", f"{tokenizer}.json", "--max-length", str(length), "-o", "out", "-q",
        *options)
    return read("out")


def refused(name, text, *reasons, options=("--task", "ner"), code=1):
    text_file(name, text)
    if os.path.exists("out"):
        os.remove("out")
    result = subprocess.run([skycc, "tokenize", name, "--tokenizer", "bert.json", "-o", "out", *options],
                            capture_output=True, text=True)
    require(result.returncode == code and all(reason in result.stderr for reason in reasons), text, "gives",
            result.returncode, result.stderr)
    require(not os.path.exists("out"), text, "leaves a file")


def check_words():
    json_lines("words.jsonl", cases["words"])
    table("python.csv", cases["words"])
    table("json.csv", cases["words"], json.dumps)
    table("numpy.csv", cases["words"], lambda cell: str(np.array(cell, dtype=object)))
    table("blanks.csv", cases["words"], " ".join)
    sentences = ["".join(f"{word} x {tag}\n" for word, tag in zip(row["tokens"], row["ner_tags"]))
                 for row in cases["words"]]
    text_file("words.conll", "-DOCSTART- -X- O\n\n" + "\n\n".join(sentences))
    text_file("words.tsv", "\n".join(sentences).replace(" ", "\t").replace("\n", "\r\n"))
    for family, expected in cases["families"].items():
        names = sorted(cases["tags"])
        labels = [[names.index(cases["tags"][label]) if label >= 0 else label for label in row["labels"]]
                  for row in expected["ner"]]
        for name in ("words.jsonl", "python.csv", "json.csv", "numpy.csv", "blanks.csv", "words.conll", "words.tsv"):
            data = tokenize(name, "--task", "ner", tokenizer=family)
            require(data["input_ids"].tolist() == [row["ids"] for row in expected["ner"]], family, name, "ids")
            require(data["labels"].tolist() == labels, family, name, "labels", data["labels"])
            require(json.loads(metadata("out")["labels"]) == names, metadata("out"))
    os.replace("out", "train.safetensors")
    refused("x.jsonl", '{"tokens": ["a", "b"], "ner_tags": ["O"]}', "x.jsonl:1", "2 words, but 1 tags")
    refused("x.jsonl", '{"tokens": "a b", "tags": "O"}', "has no 'ner_tags'", "tokens, tags")
    refused("x.conll", "a O\nb\n", "x.conll:2", "another number of columns")
    refused("x.conll", "a X\n", "'X' is not a label", "B, I, M, O", options=(
        "--task", "ner", "--labels-of", "train.safetensors", "--tokenizer", "modernbert.json"), code=1)
    refused("x.jsonl", '{"tokens": [["a"]], "ner_tags": ["O"]}', "word 1, or its tag")
    refused("x.conll", "a O\n", "--task ner", options=("--text", "a", "--label", "b"), code=2)


def check_answers():
    json_lines("answers.jsonl", cases["questions"])
    lists = [{**row, "answers": [{"text": t, "answer_start": s} for t, s in zip(*row["answers"].values())]}
             for row in cases["questions"]]
    json_lines("lists.jsonl", lists)
    table("python.csv", cases["questions"])
    parts = [{"question": row["question"], "context": row["context"], "answer": (row["answers"]["text"] + [""])[0],
              "start": (row["answers"]["answer_start"] + [""])[0]} for row in cases["questions"]]
    table("parts.csv", parts)
    columns = ("--text", "question,context", "--label", "answer,start")
    for family, expected in cases["families"].items():
        places = [row["places"] for row in expected["qa"]]
        for name, options in (("answers.jsonl", ()), ("lists.jsonl", ()), ("python.csv", ()), ("parts.csv", columns)):
            data = tokenize(name, "--task", "qa", "--stride", str(cases["stride"]), *options, tokenizer=family)
            require(data["input_ids"].tolist() == [row["ids"] for row in expected["qa"]], family, name, "ids")
            found = np.stack([data["start_positions"], data["end_positions"]], 1).tolist()
            require(found == places, family, name, "places", found, places)
    require(np.array_equal(np.unique(data["row"]), np.arange(len(cases["questions"]))), "rows of windows", data["row"])
    tokenize("answers.jsonl", "--task", "qa", "--stride", "6", "--holdout", "25%")
    held, kept = (set(read(name)["row"].tolist()) for name in ("out.holdout", "out"))
    require(len(held) == 3 and not held & kept, "windows of a row are apart", held, kept)
    row = '{{"question": "q", "context": "é a b a", "answers": {}}}'
    tasks = ("--task", "qa")
    refused("x.jsonl", row.format('{"text": ["c"], "answer_start": [2]}'), "'c' is not at answer_start", options=tasks)
    refused("x.jsonl", row.format('["c"]'), "'c' is not in the text", options=tasks)
    refused("x.jsonl", row.format('"a"'), "lower --stride", options=(*tasks, "--max-length", "16", "--stride", "12"))
    text_file("x.jsonl", row.format('"a"'))
    result = run(skycc, "tokenize", "x.jsonl", "--tokenizer", "bert.json", "-o", "out", *tasks, "--stride", "4")
    require("1 answers have no answer_start" in result.stderr, result.stderr)


def check_lists_of_labels():
    rows = [{"text": "a b", "tags": ["rude", "long"]}, {"text": "c", "tags": []}, {"text": "d", "tags": ["long"]}]
    json_lines("lists.jsonl", rows)
    table("lists.csv", rows)
    table("joined.csv", rows, ";".join)
    columns = ("--text", "text", "--label", "tags")
    for name, options in (("lists.jsonl", ()), ("lists.csv", ()), ("joined.csv", ("--task", "multi-label"))):
        labels = tokenize(name, *columns, *options)["labels"]
        require(labels.dtype == "f4" and labels.tolist() == [[1, 1], [0, 0], [1, 0]], name, labels)
        require(metadata("out")["problem_type"] == "multi_label_classification" and
                metadata("out")["labels"] == '["long","rude"]', metadata("out"))
    for name, lists, expected in (("ids", [[0, 2], [1], []], [[1, 0, 1], [0, 1, 0], [0, 0, 0]]),
                                  ("vectors", [[0, 1, 1], [0, 0, 0], [1, 0, 0]], [[0, 1, 1], [0, 0, 0], [1, 0, 0]]),
                                  ("two", [[0, 1], [1, 0]], [[0, 1], [1, 0]]),
                                  ("reals", [[0.0, 1.0], [1.0, 0.5], [0.0, 0.0]], [[0, 1], [1, .5], [0, 0]])):
        json_lines("x.jsonl", [{"text": "a", "tags": tags} for tags in lists])
        require(tokenize("x.jsonl", *columns)["labels"].tolist() == expected, name)
    for former, lists, expected in (([[0, 1, 1], [0, 0, 0]], [[0.0, 1.0, 0.0]], [[0, 1, 0]]),
                                    ([[0, 1], [1, 1]], [[1, 0]], [[1, 0]]), ([[0, 2], [1]], [[0, 1]], [[1, 1, 0]]),
                                    ([["a", "b"], ["a"]], [["a", "b"]], [[1, 1]])):
        json_lines("x.jsonl", [{"text": "a", "tags": tags} for tags in former])
        tokenize("x.jsonl", *columns)
        os.replace("out", "former")
        json_lines("x.jsonl", [{"text": "a", "tags": tags} for tags in lists])
        require(tokenize("x.jsonl", *columns, "--labels-of", "former")["labels"].tolist() == expected, former, lists)
    refused("x.jsonl", '{"text": "a", "tags": []}', "no row has a label", options=columns)
    refused("x.jsonl", '{"text": ["a"], "tags": 1}', "neither text nor a number", options=columns)


def check_pairs():
    json_lines("pairs.jsonl", [{"a": "one two", "b": "three"}, {"a": "x", "b": "y z z"}])
    apart = tokenize("pairs.jsonl", "--task", "pairs", "--text", "a,b", length=8)
    for name, column in (("input_ids", "a"), ("input_ids_2", "b")):
        alone = run(skycc, "tokenize", "pairs.jsonl", "--tokenizer", "bert.json", "--text", column, "--max-length",
                    "8", "-o", "alone", "-q") and read("alone")
        require(np.array_equal(apart[name], alone["input_ids"]), name)
    require(apart["lengths"].tolist() == (np.maximum(*(apart[name].sum(1) for name in (
        "attention_mask", "attention_mask_2")))).tolist(), apart["lengths"])


def check_encodings():
    text, columns = "text,label\nnaïve “quote”,a\n", ("--text", "text", "--label", "label")
    text_file("x.csv", text)
    ids = tokenize("x.csv", *columns)["input_ids"].tolist()
    for encoding, hint in (("cp1252", "--encoding cp1252"), ("utf-16", "--encoding utf-16"), ("utf-16le", "utf-16")):
        with open("x.csv", "wb") as file:
            file.write(text.encode(encoding))
        result = subprocess.run([skycc, "tokenize", "x.csv", "--tokenizer", "bert.json", "-o", "none", *columns],
                                capture_output=True, text=True)
        require(result.returncode == 1 and hint in result.stderr and "x.csv:" in result.stderr, encoding, result.stderr)
        require(tokenize("x.csv", *columns, "--encoding", encoding)["input_ids"].tolist() == ids, encoding)
    refused("x.csv", "text,label\né,a\n", "is not ascii: byte 12 is 0xc3", options=(*columns, "--encoding", "ascii"))
    refused("x.csv", text, "encoding 'none'", "utf-16", options=(*columns, "--encoding", "none"), code=2)
    refused("x.csv", "", "the file is empty", options=columns)
    refused("x.csv", "\ufefftext,label\r\n", "it has a header, but no rows", options=columns)
    refused("x.csv", "txet,label\na,b\n", "did you mean 'txet'?", "the columns are txet, label", options=columns)
    refused("x.tsv", text, "--format csv", options=columns)


def check_model():
    """Its tokenizer is the default, and its positions limit the rows: RoBERTa and MPNet count from the padding's on."""
    text_file("x.csv", "text\n" + "the " * 99 + "\n")
    for kind, first in (("bert", 0), ("roberta", 2), ("mpnet", 2)):
        os.mkdir(kind)
        for name in ("config.json", "model.safetensors"):
            shutil.copy(f"{tokenizers}/../huggingface/{kind}/{name}", kind)
        shutil.copy("bert.json", f"{kind}/tokenizer.json")
        with open(f"{kind}/config.json") as file:
            most = json.load(file)["max_position_embeddings"] - first
        run(skycc, "import", kind, "-o", "model.onnx", "-q")
        for model in (kind, "model.onnx"):
            result = run(skycc, "tokenize", "x.csv", "--model", model, "--text", "text", "-o", "out")
            require(f"has positions for {most} tokens: skycc takes --max-length {most} instead of 128" in result.stderr,
                    kind, result)
            require(read("out")["input_ids"].shape == (1, most), model)


with tempfile.TemporaryDirectory(prefix="skycc-test-") as scratch:
    os.chdir(scratch)
    for family in cases["families"]:
        with lzma.open(f"{tokenizers}/{family}.json.xz", "rt", encoding="utf-8") as file:
            text_file(f"{family}.json", file.read())
    check_words()
    check_answers()
    check_lists_of_labels()
    check_pairs()
    check_encodings()
    check_model()
sys.exit(failed())
