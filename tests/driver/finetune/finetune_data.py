"""A small model with a tokenizer, and tables whose labels it can learn."""
import csv
import os
import random
import shutil

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "is", "was", "and", ".", ",", "!", '"', "'", "battery",
         "screen", "camera", "great", "lovely", "superb", "awful", "broken", "useless", "okay", "average", "ordinary"]
KINDS = {"good": WORDS[17:20], "bad": WORDS[20:23], "mixed, \"so-so\"": WORDS[23:26]}


def make_model(folder, data):
    """`data`: tests/data/huggingface."""
    os.makedirs(folder)
    for name in ("config.json", "model.safetensors"):
        shutil.copy(f"{data}/bert/{name}", folder)
    with open(f"{folder}/vocab.txt", "w") as file:
        file.write("\n".join(WORDS + [f"w{i}" for i in range(len(WORDS), 61)]) + "\n")


def reviews(count, seed=1):
    """Texts with quotes, line breaks and emoji, and the names of their classes."""
    generator = random.Random(seed)
    for _ in range(count):
        kind = generator.choice(sorted(KINDS))
        text = generator.choice(["The {0} is {1}.", "\"{1}\" was the {0}!", "{1}, the {0}\nis {1} \U0001f600"])
        yield text.format(generator.choice(WORDS[14:17]), generator.choice(KINDS[kind])), kind


def write_table(path, header, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
