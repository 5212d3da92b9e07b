#!/usr/bin/python3
"""Tokens per second of a training step (forward, loss, backward, AdamW): skycc's stage program beside PyTorch, one process.

    bench/step.py [--skycc build/bin/skycc] [--layers 2 --hidden 128 --heads 2] [--batch 32] [--sequence 128]
                  [--threads 1] [--pairs 5] [--steps 22] [--no-prune]

The default is bert-tiny. Both train the same model from the same weights on the same rows, one after the other in pairs, so
that a machine that slows down slows both; of every run the median step counts, without the first two, and of all runs the
median. PyTorch runs with the fastest BLAS that Debian has for it (BLIS) and without giving memory back between steps.
With one thread the processor time of a step is measured too: where other programs take turns on the machine, only that
compares. A classifier reads one token of the last block, and skycc leaves out what only the others need; --no-prune has it
compute everything, as PyTorch does.
"""
import argparse
import csv
import importlib.util
import json
import os
import resource
import statistics
import struct
import subprocess
import sys
import tempfile

BLIS = "/usr/lib/x86_64-linux-gnu/blis-openmp"
WARM_UP = 2


def write_data(path, rows, sequence, vocabulary, classes):
    """A data set of pseudo-random rows, as `skycc tokenize` would write it."""
    state = 12345

    def draw(bound):
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (state >> 33) % bound

    tensors = {
        "input_ids": [draw(vocabulary) for _ in range(rows * sequence)],
        "attention_mask": [1] * (rows * sequence),
        "token_type_ids": [0] * (rows * sequence),
        "labels": [draw(classes) for _ in range(rows)],
    }
    header, offset = {}, 0
    for name, values in tensors.items():
        size = 4 * len(values)
        shape = [rows] if name == "labels" else [rows, sequence]
        header[name] = {"dtype": "I32", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for values in tensors.values():
            file.write(struct.pack(f"<{len(values)}i", *values))
    return tensors


def prepare_skycc(options, folder):
    skycc = os.path.abspath(options.skycc)
    shape = ["--layers", options.layers, "--hidden", options.hidden, "--heads", options.heads]
    subprocess.run([skycc, "bert", *map(str, shape), "-o", f"{folder}/model.onnx"], check=True)
    with open(f"{folder}/cluster.yaml", "w") as file:
        file.write(f"devices:\n  - {{name: here, threads: {options.threads}, memory: 64GiB, gflops: 100, bandwidth: 20GB/s}}\n")
    command = [skycc, "compile", f"{folder}/model.onnx", "-d", f"{folder}/cluster.yaml", "-o", f"{folder}/programs", "-q"]
    command += ["--dim", f"batch={options.batch}", "--dim", f"seq={options.sequence}", "--microbatches", "1"]
    command += ["--optimizer", "adamw:lr=1e-4,weight_decay=0.01"]
    subprocess.run(command + ["--no-prune"] * options.no_prune, check=True)


def train_with_skycc(folder, steps):
    """The log, and the processor time of the whole run."""

    def processor_time():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = processor_time()
    command = [f"{folder}/programs/train", "--data", f"{folder}/data.safetensors", "--steps", str(steps)]
    subprocess.run(command + ["--no-shuffle", "--quiet", "--log", f"{folder}/log.csv"], check=True)
    with open(f"{folder}/log.csv", newline="") as file:
        return list(csv.DictReader(file)), processor_time() - before


def run_skycc(options, folder):
    """Seconds of every step after the first, processor time of a step, and the losses."""
    rows, whole = train_with_skycc(folder, options.steps)
    _, start = train_with_skycc(folder, WARM_UP)
    ends = [float(row["seconds"]) for row in rows]
    seconds = [after - before for before, after in zip(ends, ends[1:])]
    return seconds, (whole - start) / (options.steps - WARM_UP), [float(row["loss"]) for row in rows]


def torch_environment(threads):
    return {
        **os.environ,
        "LD_LIBRARY_PATH": BLIS,
        "OMP_NUM_THREADS": str(threads),
        "MALLOC_TOP_PAD_": "536870912",
        "MALLOC_MMAP_THRESHOLD_": "1073741824",
        "MALLOC_TRIM_THRESHOLD_": "4294967296",
    }


def run_torch(options, folder):
    command = [sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--as-peer", folder]
    result = subprocess.run(command, check=True, env=torch_environment(options.threads), stdout=subprocess.PIPE)
    return json.loads(result.stdout)


def train_with_torch(options, folder):
    """What the peer's process does: the same model in PyTorch's own operators."""
    import math
    import time

    import onnx
    import onnx.numpy_helper
    import torch
    import torch.nn.functional as F

    torch.set_num_threads(options.threads)
    weights = {}
    for tensor in onnx.load(f"{folder}/model.onnx").graph.initializer:
        array = torch.from_numpy(onnx.numpy_helper.to_array(tensor).copy())
        linear = tensor.name.startswith("bert.encoder") and tensor.name.endswith("weight") and array.dim() == 2
        weights[tensor.name] = (array.T.contiguous() if linear else array).requires_grad_()
    vocabulary = weights["bert.embeddings.word_embeddings.weight"].shape[0]
    classes = weights["classifier.bias"].shape[0]
    data = write_data(os.devnull, options.batch, options.sequence, vocabulary, classes)
    ids = torch.tensor(data["input_ids"]).view(options.batch, options.sequence)
    types = torch.zeros_like(ids)
    mask = torch.ones_like(ids)
    labels = torch.tensor(data["labels"])

    def linear(x, name):
        return F.linear(x, weights[name + ".weight"], weights[name + ".bias"])

    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], weights[name + ".weight"], weights[name + ".bias"], 1e-12)

    def forward():
        embeddings = "bert.embeddings."
        x = F.embedding(ids, weights[embeddings + "word_embeddings.weight"])
        x = x + F.embedding(types, weights[embeddings + "token_type_embeddings.weight"])
        x = norm(x + weights[embeddings + "position_embeddings.weight"][: options.sequence], embeddings + "LayerNorm")
        blocked = (1.0 - mask[:, None, None, :].float()) * torch.finfo(torch.float32).min
        width = options.hidden // options.heads
        for layer in range(options.layers):
            block = f"bert.encoder.layer.{layer}."
            q, k, v = (
                linear(x, f"{block}attention.self.{which}").view(*ids.shape, options.heads, width).permute(0, 2, 1, 3)
                for which in ("query", "key", "value")
            )
            scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(width) + blocked
            context = torch.matmul(torch.softmax(scores, -1), v).permute(0, 2, 1, 3).reshape(*ids.shape, options.hidden)
            x = norm(linear(context, block + "attention.output.dense") + x, block + "attention.output.LayerNorm")
            inner = F.gelu(linear(x, block + "intermediate.dense"))
            x = norm(linear(inner, block + "output.dense") + x, block + "output.LayerNorm")
        return linear(torch.tanh(linear(x[:, 0], "bert.pooler.dense")), "classifier")

    optimizer = torch.optim.AdamW(weights.values(), 1e-4, weight_decay=0.01)
    seconds, processor, losses = [], [], []
    for _ in range(options.steps):
        start, processor_start = time.perf_counter(), time.process_time()
        optimizer.zero_grad()
        loss = F.cross_entropy(forward(), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
        processor.append(time.process_time() - processor_start)
    print(json.dumps([seconds[1:], sum(processor[WARM_UP:]) / len(processor[WARM_UP:]), losses]))


def missing_peer():
    for module, package in (("torch", "python3-torch"), ("onnx", "python3-onnx")):
        if importlib.util.find_spec(module) is None:
            return f"{package} is not installed"
    if not os.path.exists(BLIS):
        return "libblis4-openmp is not installed, and with another BLAS PyTorch is no fair peer"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--skycc", default="build/bin/skycc")
    for name, default in (("layers", 2), ("hidden", 128), ("heads", 2), ("batch", 32), ("sequence", 128)):
        parser.add_argument("--" + name, type=int, default=default)
    for name, default in (("threads", 1), ("pairs", 5), ("steps", 22)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--no-prune", action="store_true")
    parser.add_argument("--as-peer", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.steps < 10:
        parser.error("a run takes at least 10 steps")
    if options.as_peer:
        train_with_torch(options, options.as_peer)
        return
    peer = missing_peer()
    if peer:
        print(f"No comparison: {peer}.")
    tokens = options.batch * options.sequence
    rates = {"skycc": [], "PyTorch": []}
    processor_rates = {"skycc": [], "PyTorch": []}
    with tempfile.TemporaryDirectory() as folder:
        prepare_skycc(options, folder)
        write_data(f"{folder}/data.safetensors", options.batch, options.sequence, 30522, 3)
        train_with_skycc(folder, WARM_UP)  # brings the files into memory
        for pair in range(options.pairs):
            all_losses = []
            for name, run in (("skycc", run_skycc), ("PyTorch", run_torch)):
                if name == "PyTorch" and peer:
                    continue
                seconds, processor, losses = run(options, folder)
                rates[name].append(tokens / statistics.median(seconds[WARM_UP - 1 :]))
                processor_rates[name].append(tokens / processor)
                all_losses.append(losses)
            if not peer and any(abs(a - b) > 1e-3 * b for a, b in zip(*all_losses)):
                sys.exit(f"The two did not train the same: {all_losses}")
            print(f"pair {pair + 1}: " + ", ".join(f"{name} {r[-1]:.0f} tokens/s" for name, r in rates.items() if r), flush=True)
    size = f"L{options.layers} H{options.hidden} A{options.heads}, batch {options.batch}, sequence {options.sequence}"
    print(f"BERT {size}, {options.threads} thread(s), medians of {options.pairs} runs of {options.steps} steps")
    report("by the clock", rates)
    if options.threads == 1:
        report("by processor time", processor_rates)


def report(how, rates):
    print(f"tokens/s {how}:")
    median = {name: statistics.median(r) for name, r in rates.items() if r}
    for name, rate in median.items():
        print(f"  {name:<8} {rate:8.0f}   ({min(rates[name]):.0f} to {max(rates[name]):.0f})")
    if len(median) == 2:
        print(f"  skycc / PyTorch: {median['skycc'] / median['PyTorch']:.2f}")


if __name__ == "__main__":
    main()
