#!/usr/bin/env python3
"""The peer of bench/trainer: the Hugging Face Trainer with the same rows, the same start and the same settings.

    bench/trainer_peer.py SETTINGS

SETTINGS is JSON: task, folder (what training starts from), adapter (of PEFT, or null), train, eval (tables, or data
sets of skycc tokenize for mlm), length, stride, epochs, batch, rate, seed, shuffle (and dropout), double (float64),
frozen (parts of names). Prints JSON: the loss of every step, and the metrics at the end. Tokens, labels, windows and
metrics are made here from the table, by the library and by scikit-learn, SciPy and seqeval.
"""
import json
import re
import string
import sys
from collections import Counter

import numpy as np
import torch
import trainer_tables
import transformers
from transformers import AutoTokenizer, Trainer, TrainingArguments

CLASSES = {"classes": "SequenceClassification", "regression": "SequenceClassification",
           "multi-label": "SequenceClassification", "ner": "TokenClassification", "qa": "QuestionAnswering",
           "mlm": "MaskedLM", "pairs": ""}
MOST_ANSWER, BEST = 30, 20


# ---- Rows ----

def read_mlm(path):
    from torch_peer import read_data
    data = read_data(path)
    return [{name: data[name][i].tolist() for name in ("input_ids", "attention_mask", "token_type_ids", "labels")}
            for i in range(len(data["labels"]))]


def tag_words(row, tokenizer, settings, numbers):
    encoded = tokenizer(row["tokens"], is_split_into_words=True, truncation=True, max_length=settings["length"])
    entry, words = dict(encoded), encoded.word_ids()
    entry["labels"] = [-100 if word is None or (i and words[i - 1] == word) else numbers[row["ner_tags"][word]]
                       for i, word in enumerate(words)]
    return entry


def cut_windows(row, number, tokenizer, settings):
    cut = tokenizer(row["question"], row["context"], truncation="only_second", max_length=settings["length"],
                    stride=settings["stride"], return_overflowing_tokens=True, return_offsets_mapping=True)
    begin = row["answers"]["answer_start"][0]
    end = begin + len(row["answers"]["text"][0])
    for i in range(len(cut["input_ids"])):
        places = [place if part == 1 else None for place, part in zip(cut["offset_mapping"][i], cut.sequence_ids(i))]
        inside = [t for t, place in enumerate(places) if place]
        window = {name: cut[name][i] for name in ("input_ids", "attention_mask", "token_type_ids")}
        first = last = 0
        if places[inside[0]][0] <= begin and end <= places[inside[-1]][1]:
            first = max(t for t in inside if places[t][0] <= begin)
            last = min(t for t in inside if places[t][1] >= end)
        yield {**window, "start_positions": first, "end_positions": last}, (number, places)


def make_rows(settings, tokenizer, path, numbers):
    """Rows as the Trainer takes them, and for answers where their tokens are."""
    task, length = settings["task"], settings["length"]
    if task == "mlm":
        return read_mlm(path), None
    table = trainer_tables.read(path)
    if task == "ner":
        return [tag_words(row, tokenizer, settings, numbers) for row in table], None
    if task == "qa":
        windows = [window for number, row in enumerate(table)
                   for window in cut_windows(row, number, tokenizer, settings)]
        return [window for window, _ in windows], [place for _, place in windows]

    def encode(text):
        return dict(tokenizer(text, truncation=True, max_length=length))

    if task == "pairs":
        return [{**encode(row["anchor"]), **{f"{name}_2": ids for name, ids in encode(row["positive"]).items()}}
                for row in table], None
    names = [name for name in table[0] if name != "text"]
    labels = {"classes": lambda row: numbers[row["label"]], "regression": lambda row: float(row["score"]),
              "multi-label": lambda row: [float(row[name]) for name in names]}[task]
    return [{**encode(row["text"]), "labels": labels(row)} for row in table], None


def collate(rows, least=0):
    """Padded to the longest row, and to `least` tokens."""
    batch = {}
    for name in rows[0]:
        values = [row[name] for row in rows]
        if isinstance(values[0], list) and not isinstance(values[0][0], float):
            padding = -100 if name == "labels" else 0
            longest = max(least, *map(len, values))
            values = [value + [padding] * (longest - len(value)) for value in values]
        batch[name] = torch.tensor(values)
    return batch


# ---- The Trainer ----

class PairLoss(torch.nn.Module):
    """Two towers that share their weights, in-batch negatives: Sentence-BERT's MultipleNegativesRankingLoss."""

    def __init__(self, encoder):
        super().__init__()
        self.encoder, self.config = encoder, encoder.config

    def embed(self, ids, mask, types):
        states = self.encoder(input_ids=ids, attention_mask=mask, token_type_ids=types).last_hidden_state
        return torch.nn.functional.normalize((states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True), dim=1)

    def forward(self, **batch):
        names = ("input_ids", "attention_mask", "token_type_ids")
        cosines = self.embed(*(batch[n] for n in names)) @ self.embed(*(batch[n + "_2"] for n in names)).T
        loss = torch.nn.functional.cross_entropy(20 * cosines, torch.arange(len(cosines)))
        return {"loss": loss, "logits": cosines}


class Recorder(Trainer):
    """Keeps the loss of every step, and the order of the rows unless they are shuffled."""

    def __init__(self, shuffle, **others):
        super().__init__(**others)
        self.losses, self.shuffles = [], shuffle

    def _get_train_sampler(self, *others):
        return super()._get_train_sampler(*others) if self.shuffles else torch.utils.data.SequentialSampler(
            self.train_dataset)

    def compute_loss(self, model, inputs, return_outputs=False, **others):
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **others)
        if model.training:
            self.losses.append(float(loss.detach()))
        return (loss, outputs) if return_outputs else loss


def open_model(settings):
    kind = CLASSES[settings["task"]]
    dropout = {} if settings["shuffle"] else {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = getattr(transformers, f"AutoModel{'For' + kind if kind else ''}").from_pretrained(settings["folder"],
                                                                                             **dropout)
    if settings["adapter"]:
        from peft import PeftModel
        model = PeftModel.from_pretrained(model, settings["adapter"], is_trainable=True)
    for name, parameter in model.named_parameters():
        if any(prefix in name for prefix in settings["frozen"]):
            parameter.requires_grad = False
    model = model if kind else PairLoss(model)
    return model.double() if settings["double"] else model


def train(settings, rows):
    arguments = {"output_dir": settings["folder"] + ".out", "num_train_epochs": settings["epochs"],
                 "per_device_train_batch_size": settings["batch"], "learning_rate": settings["rate"],
                 "weight_decay": 0.01, "max_grad_norm": 1.0, "lr_scheduler_type": "linear", "seed": settings["seed"],
                 "report_to": [], "save_strategy": "no", "logging_strategy": "no", "disable_tqdm": True,
                 "use_cpu": True, "remove_unused_columns": False, "optim": "adamw_torch"}
    newer = int(transformers.__version__.split(".")[0]) >= 5
    arguments["warmup_steps" if newer else "warmup_ratio"] = 0.1
    trainer = Recorder(settings["shuffle"], model=open_model(settings), args=TrainingArguments(**arguments),
                       train_dataset=rows, data_collator=lambda batch: collate(batch, settings["padding"]))
    trainer.train()
    return trainer


# ---- Metrics ----

def normalise(text):
    """As SQuAD's script does."""
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def score_text(found, wanted):
    found, wanted = normalise(found).split(), normalise(wanted).split()
    common = sum((Counter(found) & Counter(wanted)).values())
    if not found or not wanted:
        return float(found == wanted), float(found == wanted)
    return float(found == wanted), 2 * common / (len(found) + len(wanted)) if common else 0.0


def measure_answers(settings, outputs, places):
    """The best of the likeliest spans of all windows, as the library's example of question answering has it."""
    table, best = trainer_tables.read(settings["eval"]), {}
    for (number, place), output in zip(places, outputs):
        starts, ends = output
        for s in np.argsort(starts)[::-1][:BEST]:
            for e in np.argsort(ends)[::-1][:BEST]:
                if s <= e < s + MOST_ANSWER and e < len(place) and place[s] and place[e]:
                    score = starts[s] + ends[e]
                    if number not in best or score > best[number][0]:
                        best[number] = (score, table[number]["context"][place[s][0]:place[e][1]])
    scores = [max(score_text(best.get(number, (0, ""))[1], answer) for answer in row["answers"]["text"])
              for number, row in enumerate(table)]
    return {name: float(np.mean([score[i] for score in scores])) for i, name in enumerate(("exact", "f1"))}


def measure(settings, trainer, rows, places, numbers):
    task, model = settings["task"], trainer.model.eval()
    losses, weights, outputs, labels = [], [], [], []
    for first in range(0, len(rows), settings["batch"]):
        batch = collate(rows[first:first + settings["batch"]], settings["padding"])
        with torch.no_grad():
            found = model(**batch)
        counted = int((batch["labels"] != -100).sum()) if task in ("ner", "mlm") else len(batch["input_ids"])
        losses.append(float(found["loss"]) * counted)
        weights.append(counted)
        if task == "qa":
            outputs += list(zip(found.start_logits.numpy(), found.end_logits.numpy()))
        else:
            outputs += list(found["logits"].numpy())
        if task == "pairs":
            labels += range(len(batch["input_ids"]))
        elif task != "qa":
            labels += list(batch["labels"].numpy())
    loss = sum(losses) / sum(weights)
    from scipy import stats
    from sklearn import metrics
    if task == "qa":
        return {"loss": loss, **measure_answers(settings, outputs, places)}
    if task == "mlm":
        return {"loss": loss, "perplexity": float(np.exp(loss))}
    if task == "pairs":
        near = [o[l] > o.max() - 1e-6 for o, l in zip(outputs, labels)]  # the same partner twice is a tie
        return {"loss": loss, "accuracy": float(np.mean(near))}
    if task == "regression":
        values = [float(output[0]) for output in outputs]
        return {"loss": loss, "pearson": float(stats.pearsonr(values, labels)[0]),
                "spearman": float(stats.spearmanr(values, labels)[0])}
    if task == "multi-label":
        found, wanted = np.array(outputs) > 0, np.array(labels) > 0.5
        return {"loss": loss, "accuracy": float(metrics.accuracy_score(wanted, found)),
                "f1": float(metrics.f1_score(wanted, found, average="micro")),
                "f1-macro": float(metrics.f1_score(wanted, found, average="macro"))}
    if task == "ner":
        from seqeval.metrics import accuracy_score, f1_score
        names = {number: name for name, number in numbers.items()}
        kept = [[(names[int(o.argmax())], names[int(l)]) for o, l in zip(output, label) if l != -100]
                for output, label in zip(outputs, labels)]
        found, wanted = ([[pair[i] for pair in row] for row in kept] for i in (0, 1))
        return {"loss": loss, "accuracy": float(accuracy_score(wanted, found)), "f1": float(f1_score(wanted, found))}
    found = [int(output.argmax()) for output in outputs]
    return {"loss": loss, "accuracy": float(metrics.accuracy_score(labels, found)),
            "f1": float(metrics.f1_score(labels, found, average="macro"))}


def main():
    settings = json.loads(sys.argv[1])
    # Scores of where an answer begins are of all tokens, padding too: the library's example pads to the length.
    settings["padding"] = settings["length"] if settings["task"] == "qa" else 0
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(2)
    torch.manual_seed(settings["seed"])
    torch.set_default_dtype(torch.float64 if settings["double"] else torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(settings["folder"])
    with open(settings["folder"] + "/config.json") as file:
        numbers = json.load(file).get("label2id", {})
    rows, _ = make_rows(settings, tokenizer, settings["train"], numbers)
    held, places = make_rows(settings, tokenizer, settings["eval"], numbers)
    trainer = train(settings, rows)
    print(json.dumps({"losses": trainer.losses, "metrics": measure(settings, trainer, held, places, numbers)}))


if __name__ == "__main__":
    main()
