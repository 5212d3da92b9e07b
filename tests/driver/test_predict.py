#!/usr/bin/python3
"""What `skycc predict` prints of texts, tables and data sets, head by head, is what numpy makes of the outputs of
`skycc run`, each row run alone and without padding; and what it refuses.

    tests/driver/test_predict.py SKYCC FOLDERS

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

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "common"))
from checks import failed, require, run  # noqa: E402
import safetensors_files  # noqa: E402

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(5, 61))]
PAIRS = [("w5 w6 W7", "w8"), ("w9", "w10 w11 w12 w13"), ("w60 nothing", "w20"),
         *((f"w{i}", f"w{i + 1} w7") for i in range(20, 55))]
TOLERANCE = 1e-5
skycc, data = map(os.path.abspath, sys.argv[1:3])


def call(*arguments):
    return run(skycc, *arguments).stdout


def refused(code, reason, *arguments):
    result = subprocess.run([skycc, "predict", *arguments, "-o", "refused.csv"], capture_output=True, text=True)
    require(result.returncode == code and reason in result.stderr, arguments, "gives", result.returncode, result.stderr)
    require(not os.path.exists("refused.csv"), arguments, "leaves a file")


def predict_lines(*arguments):
    header, *rows = csv.reader(io.StringIO(call("predict", *arguments), newline=""))
    return header, rows


def predict(*arguments):
    header, rows = predict_lines(*arguments)
    require([int(row[0]) for row in rows] == list(range(len(rows))), arguments, "numbers its rows", rows)
    return header, rows


def ids_of(texts):
    ids, types = [2], [0]
    for segment, text in enumerate(texts):
        words = [WORDS.index(word) if word in WORDS else 1 for word in text.lower().split()] + [3]
        ids, types = ids + words, types + [segment] * len(words)
    types[0] = 0
    return np.array([ids]), np.array([types])


def outputs(model, texts):
    """Of one row, without the prefix of their names."""
    ids, types = ids_of(texts)
    safetensors_files.write("x.safetensors",
                            {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": types})
    call("run", model, "--inputs", "x.safetensors", "--interpret", "-o", "out.safetensors")
    return {name[4:]: tensor[0].astype("f8") for name, tensor in safetensors_files.read("out.safetensors").items()}


def logits(model, texts):
    return outputs(model, texts)["logits"]


def softmax(values):
    exponents = np.exp(values - values.max(-1, keepdims=True))
    return exponents / exponents.sum(-1, keepdims=True)


def compare(model, examples, header, rows, names):
    """`model` has the weights that the rows were predicted with."""
    require(header == ["row", "label", "score", *names], "header", header)
    require(len(rows) == len(examples), len(rows), "rows of", len(examples))
    for texts, row in list(zip(examples, rows))[:3] + list(zip(examples, rows))[-2:]:
        scores = softmax(logits(model, texts))
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
        csv.writer(file).writerows([("first", "second", "kind"),
                                    *((*pair, "ab"[i % 2]) for i, pair in enumerate(PAIRS))])
    call("import", "folder", "-o", "model.onnx")
    call("tokenize", "--vocab", "folder/vocab.txt", "--text", "first,second", "--label", "kind", "--max-length", "20",
         "rows.csv", "-o", "rows.safetensors", "-q")


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
    compare("model.onnx", PAIRS, *predict("model.onnx", "--data", "rows.safetensors", "--labels", "rows.safetensors"),
            ["a", "b"])
    cut = predict("folder", "--text", "w5 w6 w7 w8 w9", "--max-length", "5")
    compare("model.onnx", [["w5 w6 w7"]], *cut, names)
    compare("model.onnx", [["w9 " * 22]], *predict("folder", "--text", "w9 " * 30), names)  # positions of 24 tokens


def check_trained():
    safetensors_files.write("step.safetensors", {"labels": np.zeros(len(PAIRS), "i8"), **{
        name: tensor for name, tensor in safetensors_files.read("rows.safetensors").items() if name != "labels"}})
    before = predict("model.onnx", "--data", "rows.safetensors")[1]
    for lora in ([], ["--lora", "r=4,alpha=8,targets=query,value"]):
        call("run", "model.onnx", "--inputs", "step.safetensors", "--loss", "cross-entropy", "--train", "3",
             "--optimizer", "sgd:lr=2", *lora, "-o", "trained.safetensors")
        call("export", "model.onnx", "trained.safetensors", "-o", "trained.onnx")
        header, rows = predict("model.onnx", "trained.safetensors", "--data", "rows.safetensors")
        require(rows != before, "training changes nothing", lora)
        compare("trained.onnx", PAIRS, header, rows, ['no, "never"', "yes"])
    require(
        predict("folder", "trained.safetensors", "--data", "rows.safetensors") == (header, rows),
        "a folder with a checkpoint")


def check_regression():
    call("import", "folder", "--head", "regression", "-o", "regression.onnx", "-q")
    header, rows = predict("regression.onnx", "--text", "w5 w6")
    require(header == ["row", "value"], header)
    require(abs(float(rows[0][1]) - logits("regression.onnx", ["w5 w6"])[0]) < TOLERANCE, rows)


def check_several_labels():
    """Every label has a probability of its own: as config.json says, or --multi-label."""
    shutil.copytree("folder", "several")
    with open("several/config.json") as file:
        config = json.load(file)
    with open("several/config.json", "w") as file:
        json.dump(config | {"problem_type": "multi_label_classification"}, file)
    names = list(config["id2label"].values())
    weights = safetensors_files.read("folder/model.safetensors")
    middle = np.median([logits("model.onnx", texts) for texts in PAIRS[:8]], 0)  # between two: no logit becomes 0
    # so that texts have none of the labels, one or both
    weights["classifier.bias"] = weights["classifier.bias"] - middle.astype("f4")
    safetensors_files.write("several/model.safetensors", weights)
    call("import", "several", "-o", "several.onnx", "-q")
    header, rows = predict("several", "--data", "rows.csv", "--text", "first,second")
    require(header == ["row", "labels", *names] and len(rows) == len(PAIRS), header, len(rows))
    for texts, row in list(zip(PAIRS, rows))[:9]:
        logit = logits("several.onnx", texts)
        require(np.abs(np.array(row[2:], "f8") - 1 / (1 + np.exp(-logit))).max() < TOLERANCE, texts, row, logit)
        require(row[1] == ";".join(name for name, value in zip(names, logit) if value > 0), texts, row, logit)
    require(len({row[1] for row in rows[:9]}) > 1, "all texts have the same labels")
    call("import", "folder", "--head", "seqcls:1", "-o", "single.onnx", "-q")
    header, (row,) = predict("single.onnx", "--text", "w5 w6", "--multi-label")
    probability = 1 / (1 + np.exp(-logits("single.onnx", ["w5 w6"])[0]))
    require(len(header) == 3 and abs(float(row[2]) - probability) < TOLERANCE, header, row, probability)
    refused(2, "--multi-label is only for heads that label whole texts", "tokens.onnx", "--text", "w5",
            "--multi-label")


def check_tokens():
    """A label for every word, as its first token has it, also of words that are several tokens, and in tables."""
    call("import", "folder", "--head", "tokcls:3", "-o", "tokens.onnx", "-q")
    names, texts = ["LABEL_0", "LABEL_1", "LABEL_2"], ("w5  W6, w7 ", "w8")
    header, rows = predict_lines("tokens.onnx", "--text", texts[0], "--text2", texts[1])
    require(header == ["row", "word", "text", "label", "score", *names], header)
    require([row[:3] for row in rows] == [["0", str(i), word] for i, word in enumerate(["w5", "W6,", "w7", "w8"])],
            rows)
    # After [CLS]; "," is a token, and [SEP] comes before w8.
    scores = softmax(logits("tokens.onnx", ("w5 w6 , w7", "w8")))[[1, 2, 4, 6]]
    for row, expected in zip(rows, scores):
        require(row[3] == names[expected.argmax()] and abs(float(row[4]) - expected.max()) < TOLERANCE, row, expected)
        require(np.abs(np.array(row[5:], "f8") - expected).max() < TOLERANCE, row, expected)
    rows = predict_lines("tokens.onnx", "--data", "rows.csv", "--text", "first,second")[1]
    require([row[2] for row in rows if row[0] == "1"] == " ".join(PAIRS[1]).split(), rows[:9])
    expected = softmax(logits("tokens.onnx", PAIRS[1]))[[1, 3, 4, 5, 6]]
    found = np.array([row[5:] for row in rows if row[0] == "1"], "f8")
    require(np.abs(found - expected).max() < TOLERANCE, found, expected)


def check_answers():
    """The likeliest span of the second text, as it is written there."""
    call("import", "folder", "--head", "qa", "-o", "answers.onnx", "-q")
    texts = ("w5 w6", "w9 \u00e9\u00e9 (w10). W11, w12!")
    tokens = ["w9", "\u00e9\u00e9", "(", "w10", ")", ".", "W11", ",", "w12", "!"]
    places = [texts[1].index(token) for token in tokens]
    header, ((row, answer, score, start, end),) = predict_lines("answers.onnx", "--text", texts[0], "--text2", texts[1])
    require(header == ["row", "answer", "score", "start", "end"], header)
    found = outputs("answers.onnx", (texts[0], " ".join(tokens)))
    starts, ends = (softmax(found[f"{name}_logits"][4:14]) for name in ("start", "end"))
    best = max(((starts[s] * ends[e], -s, -e) for s in range(10) for e in range(s, 10)))
    first, last = -best[1], -best[2]
    require(abs(float(score) - best[0]) < TOLERANCE, score, best)
    require((int(start), int(end)) == (places[first], places[last] + len(tokens[last])), start, end, first, last)
    require(answer == texts[1][int(start):int(end)], answer)
    table = predict_lines("answers.onnx", "--data", "rows.csv", "--text", "first,second")[1]
    require(len(table) == len(PAIRS) and all(row[1] in PAIRS[i][1] for i, row in enumerate(table)), table[:3])


def check_masks():
    call("import", "folder", "--head", "mlm", "-o", "masked.onnx", "-q")
    header, rows = predict_lines("masked.onnx", "--text", "w5 [MASK] w7[MASK]")
    require(header == ["row", "mask", "rank", "token", "score"], header)
    ids, types = np.array([[2, 5, 4, 7, 4, 3]]), np.zeros((1, 6), "i8")
    safetensors_files.write("x.safetensors",
                            {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": types})
    call("run", "masked.onnx", "--inputs", "x.safetensors", "--interpret", "-o", "out.safetensors")
    scores = softmax(safetensors_files.read("out.safetensors")["out/logits"][0].astype("f8"))[[2, 4]]
    require(len(rows) == 10, rows)
    for i, row in enumerate(rows):
        mask, rank = divmod(i, 5)
        best = np.argsort(-scores[mask])[rank]
        require(row[:4] == ["0", str(mask), str(rank + 1), WORDS[best]], row, best)
        require(abs(float(row[4]) - scores[mask][best]) < TOLERANCE, row)


def check_embeddings():
    call("import", "folder", "--head", "embedding:mean", "-o", "mean.onnx", "-q")
    texts = ("w5 w6 w7", "w8")
    vectors = np.array([outputs("mean.onnx", [text])["embedding"] for text in texts])
    header, rows = predict("mean.onnx", "--text", texts[0])
    require(header == ["row", *map(str, range(16))] and len(rows) == 1, header)
    require(np.abs(np.array(rows[0][1:], "f8") - vectors[0]).max() < TOLERANCE, rows)
    call("predict", "mean.onnx", "--data", "rows.csv", "--text", "first", "-o", "found.jsonl")
    with open("found.jsonl") as file:
        lines = [json.loads(line) for line in file]
    require([line["row"] for line in lines] == list(range(len(PAIRS))), "rows of JSON lines")
    expected = outputs("mean.onnx", [PAIRS[1][0]])["embedding"]
    require(np.abs(np.array(lines[1]["embedding"]) - expected).max() < TOLERANCE, lines[1], expected)
    header, ((similarity,),) = predict_lines("mean.onnx", "--text", texts[0], "--text2", texts[1])
    cosine = vectors[0] @ vectors[1] / np.prod(np.linalg.norm(vectors, axis=1))
    require(header == ["similarity"] and abs(float(similarity) - cosine) < TOLERANCE, similarity, cosine)


def check_standard_input():
    """A table as a file has it, also where it is read twice, or a text per line."""
    with open("rows.csv") as file:
        table = file.read()
    with open("lines.csv", "w") as file:
        file.write("text\nw5 w6\nw7\n")
    for model, text, name in (("folder", "first,second", "rows.csv"), ("tokens.onnx", "first", "rows.csv")):
        found = run(skycc, "predict", model, "--text", text, "--data", "-", input=table).stdout
        require(found == call("predict", model, "--text", text, "--data", name), model, text, found)
    found = run(skycc, "predict", "tokens.onnx", "--text", "-", input="w5 w6\nw7\n").stdout
    require(found == call("predict", "tokens.onnx", "--data", "lines.csv", "--text", "text"), found)
    found = run(skycc, "predict", "folder", "--text", "nowhere", "--data", "-", code=1, input=table)
    require("standard input:1: error: names no column 'nowhere'" in found.stderr, found)


def check_refusals():
    refused(2, "give a text (--text TEXT), a file (--data FILE), or a text to go on with", "folder")
    refused(2, "name the columns", "folder", "--data", "rows.csv")
    refused(2, "token ids", "folder", "--data", "rows.safetensors", "--text", "w5")
    refused(2, "--text2 does not go with --data", "folder", "--data", "rows.csv", "--text2", "w5")
    refused(1, "no column 'third'", "folder", "--data", "rows.csv", "--text", "third")
    refused(1, "there is neither tokenizer.json nor vocab.txt", f"{data}/bert", "--text", "w5")
    refused(2, "this head needs words", "tokens.onnx", "--data", "rows.safetensors")
    refused(2, "answers a question from a text", "answers.onnx", "--text", "w5")
    refused(2, "an embedding takes one text, not a pair", "mean.onnx", "--data", "rows.csv", "--text", "first,second")
    refused(1, "row 0 has no mask to fill", "masked.onnx", "--text", "w5 w6")
    os.mkdir("bare")
    for name in ("config.json", "vocab.txt"):
        shutil.copy(f"folder/{name}", "bare")
    refused(1, "bare", "bare", "--text", "w5")
    with open("large.txt", "w") as file:
        file.write("\n".join([*WORDS, "beyond"]) + "\n")
    refused(1, "row 0 has token 61, but the model's vocabulary ends before 61", "folder", "--tokenizer", "large.txt",
            "--text", "w5 beyond")
    call("import", "folder", "--head", "seqcls:3", "-o", "three.onnx", "-q")
    refused(1, "names 2 labels, but the model has 3", "three.onnx", "--data", "rows.safetensors", "--labels",
            "rows.safetensors")
    safetensors_files.write("other.safetensors", {"classifier.weight": np.zeros((5, 5), "f4")})
    for model in "folder", "model.onnx":  # not the file that was made of the folder
        named = subprocess.run([skycc, "predict", model, "other.safetensors", "--text", "w5"], capture_output=True,
                               text=True)
        require(named.returncode == 1 and named.stderr and os.environ["TMPDIR"] not in named.stderr, model,
                named.stderr)
        require(named.stderr.startswith(f"{model}: error:"), named.stderr)
    refused(1, "another shape in the checkpoint", "three.onnx", "trained.safetensors", "--data", "rows.safetensors")
    safetensors_files.write("long.safetensors",
                            {"input_ids": np.full((1, 30), 5), "attention_mask": np.ones((1, 30), "i8")})
    refused(1, "has rows of 30 tokens, but the model takes at most 24", "folder", "--data", "long.safetensors")
    refused(1, "missing.onnx", "missing.onnx", "--text", "w5")


def check_overwritten():
    """A data set that is overwritten by others of its ids while it is in use."""
    rows = {"input_ids": np.full((10000, 24), 5, "i4"), "attention_mask": np.ones((10000, 24), "i4"),
            "token_type_ids": np.zeros((10000, 24), "i4")}
    for change, code in (("write", 1), ("replace", 0)):
        safetensors_files.write("large.safetensors", rows)
        process = subprocess.Popen([skycc, "predict", "folder", "--data", "large.safetensors", "-o", "large.csv"],
                                   stderr=subprocess.PIPE, text=True)
        mapped = False
        while process.poll() is None and not mapped:
            with open(f"/proc/{process.pid}/maps") as maps:
                mapped = "large.safetensors" in maps.read()
        process.send_signal(signal.SIGSTOP)
        if change == "write":
            with open("large.safetensors", "r+b") as file:
                file.seek(-24 * 4, os.SEEK_END)
                file.write(np.zeros(24, "i4").tobytes())
        else:
            safetensors_files.write("next.safetensors", rows)
            os.rename("next.safetensors", "large.safetensors")
        process.send_signal(signal.SIGCONT)
        said = process.communicate()[1]
        require(process.returncode == code and ("was overwritten while it was in use" in said) == (code == 1), change,
                process.returncode, said)
        require(os.path.exists("large.csv") == (code == 0), change, "large.csv")


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["TMPDIR"] = f"{folder}/temporary"
        os.mkdir("temporary")
        prepare()
        for check in (check_rows, check_trained, check_regression, check_tokens, check_several_labels, check_answers,
                      check_masks, check_embeddings, check_standard_input, check_refusals, check_overwritten):
            check()
        require(not os.listdir("temporary"), "temporary files are left:", os.listdir("temporary"))
        os.chdir("/")
    return failed()


sys.exit(main())
