#!/usr/bin/env python3
"""Makes tests/data/tokenizers/splits.golden.xz: what the `tokenizers` package makes of odd texts with the
pre-tokenizers of today's language models, and with every behavior of Split. test_splits.py uses the same tokenizers and
texts.

    make_splits.py TOKENIZERS     needs the package tokenizers (0.23)
"""
import json
import lzma
import random
import sys

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+" \
         r"|\s+(?!\S)|\s+"
SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + SUFFIX,
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + SUFFIX, r"\p{N}{1,3}",
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
CL100K = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]" \
         r"|\s+(?!\S)|\s+"
ENDS = {"llama3": (LLAMA3, "Isolated", False), "qwen2": (LLAMA3.replace("{1,3}", ""), "Isolated", False),
        "o200k": (O200K, "Isolated", False)}
SPLITS = {
    "cl100k": (CL100K, "Removed", True), "bloom": (r" ?[^(\s|[.,!?…。，、।۔،])]+", "Isolated", False),
    "boundary": (r"\b", "Isolated", False), "no-boundary": (r"\B", "Isolated", False),
    "bracket": (r"[\w-]+", "Isolated", False), "interval": (r"a{,2}b{2,}", "Isolated", False),
    "vertical": (r"\v|[[:punct:]]|[^[:alnum:]]+", "Isolated", False), "case": (r"[[:upper:]][[:lower:]]|[[:blank:]]",
                                                                            "Isolated", False),
    "empty-contiguous": (r"x*", "Contiguous", False), "previous": (r"\s+", "MergedWithPrevious", False),
    "next": (r"[\p{P}\d]", "MergedWithNext", False), "contiguous": (r"\w", "Contiguous", False),
    "removed": (r"\S", "Removed", True), "empty": (r"(?=[A-Z])", "Isolated", False),
    "previous-inverted": (r"\s", "MergedWithPrevious", True), "next-inverted": (r"\s", "MergedWithNext", True),
    "contiguous-inverted": (r"\h", "Contiguous", True),
}
WORDS = [
    "the", "cat's", "DON'T", "we'LL", "it'ſ", "naïve", "e\u0301te\u0301", "ΟΔΟΣ", "ǅungla", "ʰx", "½", "x²",
    "１２３４", "12345", "漢字", "नमस्ते", "😀", "👩\u200d👧", "a_b", "--", "...", "://", "\t", "\n", "\r\n", "\n\n",
    " ", "  ", "    ", "\u00a0", "\u3000", "\u180e", "\u0085", "\u2028", "\u200b", "\x1c", "\x00", "<|end|>",
    "▁", "Ġ", "camelCaseHTML", "9.99$", "/path/to", "'", "''s", "Ⅳ", "①", "\u0301", "\ue000", "x", "aab", "abb", "\x0b"
]


def texts():
    draw = random.Random(5)
    return WORDS + ["".join(draw.choice(WORDS) + draw.choice(["", "", " ", "\n"]) for _ in range(draw.randint(2, 9)))
                    for _ in range(200)]


def tokenizers(folder):
    """tokenizer.json by name."""
    with lzma.open(f"{folder}/roberta.json.xz") as file:
        roberta = json.load(file)
    for member in ("truncation", "padding", "post_processor", "normalizer"):
        roberta[member] = None
    roberta["added_tokens"] = []
    letters = ["[UNK]", *(start + letter for start in ("", "##") for letter in roberta["model"]["vocab"]
                          if len(letter) == 1)]
    pieces = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
              "max_input_chars_per_word": 1000, "vocab": {letter: i for i, letter in enumerate(letters)}}
    for name, (pattern, behavior, invert) in {**ENDS, **SPLITS}.items():
        steps = [{"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert},
                 {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]
        bytes_apart = {**roberta["model"], "ignore_merges": name != "qwen2"} if name in ENDS else pieces
        yield name, {**roberta, "model": bytes_apart, "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}}
    gemma = {**roberta, "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "Ġ"},
             "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
                               "invert": False}}
    yield "gemma", gemma
    for behavior in ("Removed", "Contiguous"):
        yield f"punctuation-{behavior}", {**roberta, "model": pieces, "pre_tokenizer": {
            "type": "Sequence", "pretokenizers": [{"type": "Punctuation", "behavior": behavior}, steps[1]]}}


if __name__ == "__main__":
    from tokenizers import Tokenizer

    golden = {}
    for name, description in tokenizers(sys.argv[1]):
        library = Tokenizer.from_str(json.dumps(description))
        golden[name] = [library.encode(text).ids for text in texts()]
    with lzma.open(f"{sys.argv[1]}/splits.golden.xz", "wt") as file:
        json.dump(golden, file, separators=(",", ":"))
