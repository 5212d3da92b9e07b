#!/usr/bin/python3
"""The peer of bench/text: trains a BERT classifier with PyTorch on rows of several lengths, padded batch by batch.

    bench/torch_text.py WEIGHTS.npz DATA.safetensors HEADS BATCH WARM_UP STEPS THREADS f32|bf16 longest|grouped
                        eager|compiled

longest: batches are the rows in the order of the file. grouped: rows are sorted by length first, and STEPS batches
are taken at equal distances. All batches run twice and the second time counts, because PyTorch prepares for every new
shape; of longest, the first WARM_UP do not count. Prints a JSON object: seconds, rows, tokens computed and unpadded
tokens of what counts, the losses of the first time, and the version.
"""

import json
import sys
import time

import torch
import torch.nn.functional as F

sys.dont_write_bytecode = True
from torch_peer import Model, adamw, read_data, read_weights  # noqa: E402


def choose_batches(lengths, grouped, batch, warm_up, steps):
    """Indices of rows, a tensor a batch."""
    if not grouped:
        return list(torch.arange((warm_up + steps) * batch).split(batch))
    batches = torch.argsort(lengths, stable=True)[: len(lengths) // batch * batch].split(batch)
    return [batches[int((step + 0.5) * len(batches) / steps)] for step in range(steps)]


def main():
    heads, batch, warm_up, steps, threads = map(int, sys.argv[3:8])
    bf16, grouped, compiled = (sys.argv[8 + i] == name for i, name in enumerate(("bf16", "grouped", "compiled")))
    torch.set_num_threads(threads)
    model, data = Model(read_weights(sys.argv[1]), heads), read_data(sys.argv[2])
    logits = torch.compile(model.logits, dynamic=True) if compiled else model.logits
    optimizer = adamw(model)
    lengths = data["attention_mask"].sum(1)
    batches = choose_batches(lengths, grouped, batch, warm_up, steps)

    def train(rows):
        width = int(lengths[rows].max())
        inputs = [data[name][rows, :width] for name in ("input_ids", "token_type_ids", "attention_mask")]
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = F.cross_entropy(logits(*inputs).float(), data["labels"][rows])
        loss.backward()
        optimizer.step()
        return loss.item()

    losses = [train(rows) for rows in batches]
    counted = batches if grouped else batches[warm_up:]
    start = time.perf_counter()
    for rows in counted:
        train(rows)
    result = {
        "seconds": time.perf_counter() - start,
        "rows": sum(len(rows) for rows in counted),
        "tokens": sum(len(rows) * int(lengths[rows].max()) for rows in counted),
        "valid": sum(int(lengths[rows].sum()) for rows in counted),
        "losses": losses,
        "version": torch.__version__,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
