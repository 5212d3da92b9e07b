"""Tables for bench/trainer, one per task of skycc finetune, whose labels a model can learn in part."""
import csv
import json
import random

GOOD, BAD = ["great", "lovely", "superb", "fine"], ["awful", "broken", "useless", "slow"]
MEAN = ["okay", "average", "ordinary", "usual"]
THINGS = ["battery", "screen", "camera", "sound", "price", "box"]
KINDS = {"good \"A\"": GOOD, "bad,\nworst": BAD, "mixed \U0001f610": MEAN}
FIRST, LAST = ["Anna", "Ben", "Carla", "David", "Emma"], ["Smith", "Jones", "Brown", "Miller"]
TOWNS = ["Paris", "Rome", "Oslo", "New York", "Cape Town", "Berlin"]


def classes(chance):
    kind = chance.choice(sorted(KINDS))
    words = KINDS[kind] if chance.random() < 0.85 else chance.choice(list(KINDS.values()))
    text = chance.choice(["The {0} is {1}.", "After a week the {0} was\n{1} \U0001f600",
                          "I, \"{1}\", call the {0} so!"])
    return {"text": text.format(chance.choice(THINGS), chance.choice(words)), "label": kind}


def regression(chance):
    words = [chance.choice(GOOD + BAD + MEAN) for _ in range(chance.randint(1, 4))]
    score = sum((word in GOOD) - (word in BAD) for word in words) + chance.gauss(0, 0.4)
    return {"text": "The " + chance.choice(THINGS) + " is " + " and ".join(words) + ".", "score": f"{score:.3f}"}


def multi_label(chance):
    things = chance.sample(THINGS[:4], chance.randint(0, 3))
    row = {"text": "I like the " + " and the ".join(things or ["colour"]) + " of it."}
    return {**row, **{thing: int((thing in things) != (chance.random() < 0.05)) for thing in THINGS[:4]}}


def ner(chance):
    words, tags = [], []
    for part in chance.choice(["P lives in T .", "From T to T went P .", "P met P ."]).split():
        entity = {"P": chance.choice(FIRST) + " " + chance.choice(LAST), "T": chance.choice(TOWNS)}.get(part)
        kind = {"P": "PER", "T": "LOC"}.get(part)
        for i, word in enumerate((entity or part).split()):
            words.append(word)
            tags.append(f"{'I' if i else 'B'}-{kind}" if entity else "O")
    return {"tokens": words, "ner_tags": tags}


def qa(chance):
    people = chance.sample([f"{first} {last}" for first in FIRST for last in LAST], 6)
    towns = [chance.choice(TOWNS) for _ in people]
    text, person = "", chance.randrange(6)
    for i, (name, town) in enumerate(zip(people, towns)):
        start = len(text) + len(f"{name} lives in ")
        text += f"{name} lives in {town}, \u201cas we know\u201d. "
        if i == person:
            answer = {"text": [town], "answer_start": [start]}
    return {"question": f"Where does {people[person]} live?", "context": text.strip(), "answers": answer}


def pairs(chance):
    thing, word = chance.choice(THINGS), chance.choice(GOOD + BAD + MEAN)
    name, town = chance.choice(FIRST), chance.choice(TOWNS)
    return {"anchor": f"{name} says that the {thing} from {town} is {word}.",
            "positive": f"In {town}, {name} got a {word} {thing}."}


def mlm(chance):
    return {"text": " ".join(classes(chance)["text"].split()) + " " + " ".join(ner(chance)["tokens"])}


# How --text and --label are called, and the suffix of the file.
TABLES = {"classes": (classes, ".csv"), "regression": (regression, ".csv"), "multi-label": (multi_label, ".csv"),
          "ner": (ner, ".jsonl"), "qa": (qa, ".jsonl"), "pairs": (pairs, ".csv"), "mlm": (mlm, ".csv")}


def write(task, path, count, seed):
    make, suffix = TABLES[task]
    chance = random.Random(f"{task} {seed}")
    rows = [make(chance) for _ in range(count)]
    with open(path + suffix, "w", newline="", encoding="utf-8") as file:
        if suffix == ".jsonl":
            file.writelines(json.dumps(row) + "\n" for row in rows)
        else:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    return path + suffix


def read(path):
    with open(path, newline="", encoding="utf-8") as file:
        return [json.loads(line) for line in file] if path.endswith(".jsonl") else list(csv.DictReader(file))
