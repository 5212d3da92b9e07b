#!/usr/bin/python3
"""Pre-tokenizers that are regular expressions (Llama 3, Qwen 2, o200k, Gemma, and all behaviors of Split) give the ids
of the `tokenizers` package; an expression that takes too long, or that PCRE2 would read differently, is an error.

    tests/frontend/text/test_splits.py SKYCC TOKENIZERS
"""
import json
import lzma
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "common"))
from checks import failed, require  # noqa: E402
from make_splits import texts, tokenizers  # noqa: E402
from safetensors_files import read  # noqa: E402

skycc, folder = map(os.path.abspath, sys.argv[1:3])


def tokenize(description, rows):
    with open("tokenizer.json", "w") as file:
        json.dump(description, file)
    with open("rows.jsonl", "w") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in rows)
    return subprocess.run([skycc, "tokenize", "rows.jsonl", "--tokenizer", "tokenizer.json", "--text", "text",
                           "--max-length", "512", "-o", "out", "-q"], capture_output=True, text=True, timeout=60)


def refused(description, pattern, rows, code, *reasons):
    description["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {"Regex": pattern}
    result = tokenize(description, rows)
    require(result.returncode == code and all(reason in result.stderr for reason in reasons), pattern, "gives",
            result.returncode, result.stderr)


with tempfile.TemporaryDirectory(prefix="skycc-test-") as scratch:
    os.chdir(scratch)
    with lzma.open(f"{folder}/splits.golden.xz") as file:
        golden = json.load(file)
    for name, description in tokenizers(folder):
        result = tokenize(description, texts())
        require(result.returncode == 0, name, result.stderr)
        if result.returncode == 0:
            data = read("out")
            for text, ids, row, mask in zip(texts(), golden.pop(name), data["input_ids"], data["attention_mask"]):
                require(row[:mask.sum()].tolist() == ids, name, repr(text), row[:mask.sum()].tolist(), ids)
    require(not golden, "not compared:", list(golden))
    description = dict(tokenizers(folder))["llama3"]
    refused(description, r"(?:a|aa)+$", ["a" * 64 + "b"], 1, "rows.jsonl:1", "takes a regular expression")
    refused(description, r"(?:x+x+)+(?:y|z)", ["x" * 3000], 1, "takes a regular expression")
    refused(description, "(", ["a"], 3, "pre_tokenizer.pretokenizers[0].pattern", "missing closing parenthesis")
    refused(description, r"[\p{L}&&[^\p{Han}]]+", ["a"], 3, "PCRE2 reads a part of it differently")
    for pattern in (r"[\S\d]", r"\p{N}{1,3}+", r"\PL", r"\Qa.b\E", r"(?m)a.b", r"[[:graph:]]"):
        refused(description, pattern, ["a"], 3, "PCRE2 reads a part of it differently")
    refused(description, "(" * 99 + ")" * 99, ["a"], 3, "too deeply nested")
    refused(description, r"\C", ["a"], 3, "\\C")
sys.exit(failed())
