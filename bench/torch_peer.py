#!/usr/bin/python3
"""The peer of bench/step: trains a BERT classifier with PyTorch's own operators.

    bench/torch_peer.py WEIGHTS.npz DATA.safetensors HEADS BATCH STEPS THREADS f32|bf16 [cpu|cuda]

WEIGHTS.npz is what write_weights of training_data.py makes of an ONNX file. bf16 means autocast. PyTorch 2 uses its
fused attention and optimiser. Prints a JSON object: the seconds and the loss of every step, and the most memory that
was resident, in bytes.
"""
import json
import math
import resource
import struct
import sys
import time

import numpy
import torch
import torch.nn.functional as F


def read_weights(path):
    weights = {}
    for name, values in numpy.load(path).items():
        array = torch.from_numpy(values)
        linear = name.startswith("bert.encoder") and name.endswith("weight") and array.dim() == 2
        weights[name] = (array.T.contiguous() if linear else array).requires_grad_()
    return weights


def seconds_now(device):
    if device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter()


def read_data(path):
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
        body = file.read()
    tensors = {}
    header.pop("__metadata__", None)
    for name, tensor in header.items():
        begin, end = tensor["data_offsets"]
        tensors[name] = torch.frombuffer(bytearray(body[begin:end]), dtype=torch.int32).view(tensor["shape"]).long()
    return tensors


class Model:
    def __init__(self, weights, heads):
        self.weights, self.heads = weights, heads
        self.layers = 1 + max(int(name.split(".")[3]) for name in weights if name.startswith("bert.encoder.layer."))

    def linear(self, x, name):
        return F.linear(x, self.weights[name + ".weight"], self.weights[name + ".bias"])

    def norm(self, x, name):
        return F.layer_norm(x, x.shape[-1:], self.weights[name + ".weight"], self.weights[name + ".bias"], 1e-12)

    def embed(self, ids, types):
        tables = {
            name: self.weights[f"bert.embeddings.{name}_embeddings.weight"]
            for name in ("word", "token_type", "position")
        }
        x = F.embedding(ids, tables["word"]) + F.embedding(types, tables["token_type"])
        return self.norm(x + tables["position"][: ids.shape[1]], "bert.embeddings.LayerNorm")

    def attention(self, x, blocked, block):
        width = x.shape[-1] // self.heads
        q, k, v = (
            self.linear(x, f"{block}attention.self.{which}").view(*x.shape[:2], self.heads, width).permute(0, 2, 1, 3)
            for which in ("query", "key", "value")
        )
        if hasattr(F, "scaled_dot_product_attention"):
            context = F.scaled_dot_product_attention(q, k, v, attn_mask=blocked.to(q.dtype))
            return context.permute(0, 2, 1, 3).reshape(x.shape)
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(width) + blocked
        return torch.matmul(torch.softmax(scores, -1), v).permute(0, 2, 1, 3).reshape(x.shape)

    def logits(self, ids, types, mask):
        x = self.embed(ids, types)
        blocked = (1.0 - mask[:, None, None, :].float()) * torch.finfo(torch.float32).min
        for layer in range(self.layers):
            block = f"bert.encoder.layer.{layer}."
            context = self.linear(self.attention(x, blocked, block), block + "attention.output.dense")
            x = self.norm(context + x, block + "attention.output.LayerNorm")
            inner = F.gelu(self.linear(x, block + "intermediate.dense"))
            x = self.norm(self.linear(inner, block + "output.dense") + x, block + "output.LayerNorm")
        return self.linear(torch.tanh(self.linear(x[:, 0], "bert.pooler.dense")), "classifier")


def adamw(model):
    fused = {"fused": True} if int(torch.__version__.split(".")[0]) >= 2 else {}
    return torch.optim.AdamW(model.weights.values(), 1e-4, weight_decay=0.01, **fused)


def main():
    model_path, data_path = sys.argv[1:3]
    heads, batch, steps, threads = map(int, sys.argv[3:7])
    bf16 = sys.argv[7] == "bf16"
    device = (sys.argv[8:] + ["cpu"])[0]
    torch.set_num_threads(threads)
    model, data = Model(read_weights(model_path), heads), read_data(data_path)
    model.weights = {name: weight.detach().to(device).requires_grad_() for name, weight in model.weights.items()}
    optimizer = adamw(model)
    rows = [data[name][:batch].to(device) for name in ("input_ids", "token_type_ids", "attention_mask", "labels")]
    seconds, losses = [], []
    for _ in range(steps):
        start = seconds_now(device)
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=bf16):
            loss = F.cross_entropy(model.logits(*rows[:3]).float(), rows[3])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        seconds.append(seconds_now(device) - start)
    resident = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"seconds": seconds, "losses": losses, "resident": resident}))


if __name__ == "__main__":
    main()
