#!/usr/bin/env python3
"""The peer of bench/finetune: fine-tunes a Hugging Face folder with PyTorch and transformers, and prints the accuracy.

    bench/finetune_peer.py FOLDER DATA.safetensors HELD-OUT.safetensors RECIPE

RECIPE is JSON: epochs, seed, threads, batch, rate, decay, dropout, warmup, clip, window. Batches are padded to their
longest row, and rows that do not fill a batch are left out. With a `window` above 1, rows are sorted by length within
that many batches, and the order of those batches is drawn again (the Hugging Face trainer calls this grouping by
length). That makes less padding, and batches that are a little less random.
"""
import json
import sys

import torch
from torch_peer import read_data
from transformers import AutoModelForSequenceClassification


def take(data, rows):
    """A batch as the model wants it, cut to its longest row."""
    longest = int(data["attention_mask"][rows].sum(1).max())
    names = ("input_ids", "attention_mask", "token_type_ids")
    return {name: data[name][rows][:, :longest] for name in names}, data["labels"][rows]


def draw_batches(lengths, batch, window, generator):
    """The rows of an epoch, [batches, batch]."""
    rows = len(lengths) - len(lengths) % batch
    order = torch.randperm(len(lengths), generator=generator)[:rows]
    if window == 1:
        return order.view(-1, batch)
    order = torch.cat([part[lengths[part].argsort()] for part in order.split(window * batch)]).view(-1, batch)
    return order[torch.randperm(len(order), generator=generator)]


def make_optimizer(model, recipe, steps):
    exempt = {True: [], False: []}
    for name, parameter in model.named_parameters():
        exempt[name.endswith("bias") or "LayerNorm" in name].append(parameter)
    groups = [{"params": exempt[False], "weight_decay": recipe["decay"]}, {"params": exempt[True], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, recipe["rate"])
    warmup = int(recipe["warmup"] * steps)

    def scale(step):
        return (step + 1) / warmup if step < warmup else (steps - step) / (steps - warmup)

    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, scale)


def train(model, data, recipe):
    batch, rows = recipe["batch"], len(data["labels"])
    order = torch.Generator().manual_seed(recipe["seed"])
    optimizer, schedule = make_optimizer(model, recipe, recipe["epochs"] * (rows // batch))
    lengths = data["attention_mask"].sum(1)
    model.train()
    for _ in range(recipe["epochs"]):
        for chosen in draw_batches(lengths, batch, recipe["window"], order):
            inputs, labels = take(data, chosen)
            model(**inputs, labels=labels).loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), recipe["clip"])
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()


def accuracy(model, data, batch):
    model.eval()
    right, rows = 0, len(data["labels"])
    with torch.no_grad():
        for chosen in torch.arange(rows).split(batch):
            inputs, labels = take(data, chosen)
            right += int((model(**inputs).logits.argmax(1) == labels).sum())
    return right / rows


def main():
    folder, data, held_out = sys.argv[1], read_data(sys.argv[2]), read_data(sys.argv[3])
    recipe = json.loads(sys.argv[4])
    torch.manual_seed(recipe["seed"])
    torch.set_num_threads(recipe["threads"])
    dropout = {"hidden_dropout_prob": recipe["dropout"], "attention_probs_dropout_prob": recipe["dropout"]}
    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=3, **dropout)
    train(model, data, recipe)
    print(accuracy(model, held_out, recipe["batch"]))


if __name__ == "__main__":
    main()
