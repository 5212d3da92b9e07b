#!/usr/bin/python3
"""`skycc tokenize --task mlm` with WordPiece, byte-level BPE and Unigram: what is masked, how often and by what,
against the tokens that the same rows have unmasked and against what tokenizer.json says is special.

    tests/frontend/text/test_masked_tokens.py SKYCC TOKENIZERS

TOKENIZERS is tests/data/tokenizers.
"""
import json
import lzma
import os
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "common"))
from checks import failed, require  # noqa: E402
from safetensors_files import read  # noqa: E402

skycc, tokenizers = map(os.path.abspath, sys.argv[1:3])
ROWS, LENGTH, IGNORED = 300, 40, -100


def tokenize(output, *options):
    subprocess.run([
        skycc, "tokenize", "--tokenizer", "tokenizer.json", "--max-length",
        str(LENGTH), "rows.csv", "-o", output, "-q", *options
    ], check=True)
    return read(output)


def file_of(family):
    """Writes tokenizer.json; the special ids, the ids of all pieces, and the id of the mask."""
    with lzma.open(f"{tokenizers}/{family}.json.xz") as file:
        text = file.read()
    with open("tokenizer.json", "wb") as file:
        file.write(text)
    content = json.loads(text)
    vocabulary, added = content["model"]["vocab"], content["added_tokens"]
    known = set(vocabulary.values() if isinstance(vocabulary, dict) else range(len(vocabulary))) | {
        token["id"]
        for token in added
    }
    mask, = (token["id"] for token in added if token["content"] in ("[MASK]", "<mask>"))
    return {token["id"]
            for token in added
            if token["special"]}, known, mask, [token["content"] for token in added if token["special"]]


def check_family(family, columns):
    special, known, mask, names = file_of(family)
    with open("rows.csv", "w", encoding="utf-8") as file:
        file.write("first,second\n")
        for row in range(ROWS):  # of one word to more than fit, now and then with special tokens and what is unknown
            words = "The dog was not there when others saw a house by the river".split()
            text = " ".join(words[(row + i) % len(words)] for i in range(1 + row % 60))
            file.write(
                f"{text}{f' {names[row % len(names)]} {chr(0x1f40c)} end' if row % 3 == 0 else ''},it was {row}\n")
    plain = tokenize("plain.safetensors", "--text", columns)
    masked = tokenize("masked.safetensors", "--task", "mlm", "--text", columns, "--seed", "5")
    for name in "attention_mask", "token_type_ids", "lengths":
        require(np.array_equal(masked[name], plain[name]), family, name, "differs")
    ids, original, labels = masked["input_ids"], plain["input_ids"], masked["labels"]
    chosen = labels != IGNORED
    is_special = np.isin(original, list(special)) | (plain["attention_mask"] == 0)
    require(labels.shape == ids.shape == (ROWS, LENGTH), family, labels.shape)
    require(not (chosen & is_special).any(), family, "masks special tokens", original[chosen & is_special])
    require((is_special & (plain["attention_mask"] == 1)).sum() > 2.1 * ROWS, family,
            "has no special tokens in its texts")
    require(np.array_equal(labels[chosen], original[chosen]), family, "labels are not the tokens that were there")
    require(np.array_equal(ids[~chosen], original[~chosen]), family, "changes what is not to be guessed")
    candidates = (~is_special).sum(1)
    require(np.array_equal(chosen.sum(1), np.where(candidates > 0, np.maximum(1, (candidates * 15 + 50) // 100), 0)),
            family, "masks", chosen.sum(1), "of", candidates)
    others = chosen & (ids != mask) & (ids != original)
    shares = [(chosen & (ids == mask)).sum() / chosen.sum(), others.sum() / chosen.sum()]
    require(
        abs(shares[0] - 0.8) < 0.05 and abs(shares[1] - 0.1) < 0.04, family, "shares of masks and of other pieces:",
        shares)
    require(
        set(ids[others].tolist()) <= known and len(set(ids[others].tolist())) > 20, family,
        "pieces outside the vocabulary")
    require(ids[others].max() > 0.8 * max(known), family, "takes only the first pieces", ids[others].max())
    with open("masked.safetensors", "rb") as file:
        first = file.read()
    tokenize("masked.safetensors", "--task", "mlm", "--text", columns, "--seed", "5")
    with open("masked.safetensors", "rb") as file:
        require(file.read() == first, family, "the same seed gives another file")
    other = tokenize("other.safetensors", "--task", "mlm", "--text", columns, "--seed", "6")
    require(not np.array_equal(other["labels"], labels), family, "another seed masks the same tokens")


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    for family in "bert", "roberta", "albert", "xlm-r":
        check_family(family, "first")
    check_family("bert", "first,second")
    check_family("roberta", "first,second")
    os.chdir("/")
sys.exit(failed())
