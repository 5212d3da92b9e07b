#!/usr/bin/env python3
"""Makes tests/data/tokenizers/tasks.json: rows of words with tags and of questions with answers, and what the Hugging
Face library's example scripts (run_ner.py, run_qa.py) make of them with the small tokenizers of that folder.

    make_tasks.py TOKENIZERS     needs the package transformers (5.24)
"""
import json
import lzma
import os
import sys
import tempfile

from transformers import PreTrainedTokenizerFast

FOLDER = sys.argv[1]
LENGTH, STRIDE = 24, 6
WORDS = [
    (["EU", "rejects", "German", "call", "to", "boycott", "British", "lamb", "."], "BOMOOOMOO"),
    (["naïve", "Съешь", "don't", "1,500", "e-mail@host.org", "😀", "the"], "BIOBIOO"), (["x"], "O"),
    (["The", "island", "of", "Milos"] * 9, "OOOB" * 9),
]
STORY = "The island of Milos is not far. It has 1,500 inhabitants, e-mail@host.org says; a naïve visitor (who can't " \
        "swim) co-operates. Съешь же ещё — the end."
ANSWERS = ["The island", "1,500", "500", "inhabitants, e-mail", "naïve", "can't swim"[:5], "operates", "Съешь же",
           "the end", "end.", "", "not far"]


def question_rows():
    for answer in ANSWERS:
        yield {"question": " Where is it?", "context": STORY,
               "answers": {"text": [answer] * bool(answer), "answer_start": [STORY.index(answer)] * bool(answer)}}


def places(encoding, window, row):
    """As run_qa.py finds them."""
    if not row["answers"]["text"]:
        return 0, 0
    offsets, of = encoding["offset_mapping"][window], encoding.sequence_ids(window)
    begin = row["answers"]["answer_start"][0]
    end = begin + len(row["answers"]["text"][0])
    first, last = of.index(1), len(of) - 1 - of[::-1].index(1)
    if offsets[first][0] > begin or offsets[last][1] < end:
        return 0, 0
    while first < len(offsets) and of[first] == 1 and offsets[first][0] <= begin:
        first += 1
    while offsets[last][1] >= end:
        last -= 1
    return first - 1, last + 1


def with_blanks(node):
    """The library asks for this where words are given one by one."""
    if node["type"] == "ByteLevel":
        node["add_prefix_space"] = True
    for child in node.get("pretokenizers", []):
        with_blanks(child)


def expected(family, pad):
    with lzma.open(f"{FOLDER}/{family}.json.xz") as file:
        description = json.load(file)
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "tokenizer.json")
        def load():
            with open(path, "w") as file:
                json.dump(description, file)
            return PreTrainedTokenizerFast(tokenizer_file=path, pad_token=pad)
        plain = load()
        with_blanks(description["pre_tokenizer"])
        spaced = load()
    ner, qa = [], []
    for words, tags in WORDS:
        encoding = spaced(words, is_split_into_words=True, truncation=True, max_length=LENGTH, padding="max_length")
        of = encoding.word_ids()
        labels = [-100 if word is None or word == former else "BIMO".index(tags[word])
                  for former, word in zip([None, *of], of)]
        ner.append({"ids": encoding["input_ids"], "labels": labels})
    for row in question_rows():
        encoding = plain([row["question"].lstrip()], [row["context"]], truncation="only_second", max_length=LENGTH,
                         stride=STRIDE, return_overflowing_tokens=True, return_offsets_mapping=True,
                         padding="max_length")
        qa += [{"ids": ids, "places": places(encoding, window, row)}
               for window, ids in enumerate(encoding["input_ids"])]
    return {"ner": ner, "qa": qa}


with open(f"{FOLDER}/tasks.json", "w") as file:
    json.dump({"length": LENGTH, "stride": STRIDE, "tags": "BIMO",
               "words": [{"tokens": words, "ner_tags": list(tags)} for words, tags in WORDS],
               "questions": list(question_rows()),
               "families": {"bert": expected("bert", "[PAD]"), "roberta": expected("roberta", "<pad>"),
                            "modernbert": expected("modernbert", "[PAD]")}}, file, ensure_ascii=False)
    file.write("\n")
