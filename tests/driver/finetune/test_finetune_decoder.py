#!/usr/bin/python3
"""skycc finetune of a decoder: conversations, prompts with responses and plain text become a trained folder, measured
by the loss of the next token and perplexity; and what is refused.

    tests/driver/finetune/test_finetune_decoder.py SKYCC TOKENIZERS
"""
import filecmp
import json
import lzma
import math
import os
import random
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "common"))
from checks import failed, printed, require, run  # noqa: E402
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import browser  # noqa: E402
import safetensors_files  # noqa: E402

skycc, tokenizers = map(os.path.abspath, sys.argv[1:3])
here = os.getcwd()
with lzma.open(f"{tokenizers}/chats.json.xz", "rt", encoding="utf-8") as packed:
    TOKENIZER = json.load(packed)["tokenizers"]["qwen"]
KEPT = ["special_tokens_map.json", "added_tokens.json", "chat_template.jinja", "generation_config.json"]
HIDDEN, INNER, WORDS = 16, 24, ["red", "green", "blue", "one", "two", "three"]


def make_folder(folder, vocabulary):
    os.mkdir(folder)
    draw = np.random.default_rng(1)
    shapes = {"model.embed_tokens.weight": (vocabulary, HIDDEN), "model.norm.weight": (HIDDEN,)}
    for layer in range(2):
        scope = f"model.layers.{layer}."
        shapes.update({f"{scope}self_attn.{name}_proj.weight": (HIDDEN, HIDDEN) for name in "qkvo"})
        shapes.update({f"{scope}mlp.{name}_proj.weight": (INNER, HIDDEN) for name in ("gate", "up")})
        shapes.update({f"{scope}{name}_layernorm.weight": (HIDDEN,) for name in ("input", "post_attention")})
        shapes[f"{scope}mlp.down_proj.weight"] = HIDDEN, INNER
    safetensors_files.write(f"{folder}/model.safetensors",
                            {name: draw.normal(1 if len(shape) == 1 else 0, 0.1, shape).astype("f4")
                             for name, shape in shapes.items()})
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": vocabulary,
              "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": 2, "num_attention_heads": 2,
              "max_position_embeddings": 128, "tie_word_embeddings": True, "eos_token_id": 0}
    for name, content in (("config", config), ("tokenizer", TOKENIZER),
                          ("tokenizer_config", {"eos_token": "<|endoftext|>"})):
        with open(f"{folder}/{name}.json", "w") as file:
            json.dump(content, file)
    for name in KEPT:
        with open(f"{folder}/{name}", "w") as file:
            file.write("{}")


def make_tables():
    draw = random.Random(3)
    pairs = [(f"Say {a} and {b}.", f"{a} {b}") for a, b in (draw.choices(WORDS, k=2) for _ in range(60))]
    chats = [[{"role": "user", "content": ask}, {"role": "assistant", "content": say}] for ask, say in pairs]
    with open("chats.jsonl", "w") as file:
        file.writelines(json.dumps({"messages": chat}) + "\n" for chat in chats)
    with open("prompts.jsonl", "w") as file:
        file.writelines(json.dumps({"instruction": ask, "input": "", "output": say}) + "\n"
                        for ask, say in pairs)
    with open("book.txt", "w") as file:
        file.write("".join(f"{ask} {say}\n" for ask, say in pairs))


def finetune(table, folder, *arguments):
    result = run(skycc, "finetune", "folder", table, "-o", folder, "--epochs", "2", "--lr", "3e-2", "--batch", "16",
                 *arguments)
    with open(f"{folder}/settings.yaml") as file:
        lines = [line.split("   #")[0].strip().split(": ", 1) for line in file if ": " in line]
    settings = {key: value.strip('"') for key, value in lines}
    with open(f"{folder}/metrics.json") as file:
        return settings, json.load(file), result.stdout


def check_chats():
    settings, metrics, text = finetune("chats.jsonl", "chats")
    require(settings["task"] == "chat" and settings["head"] == "lm" and settings["chat-template"] == "chatml", settings)
    require(abs(metrics["perplexity"] - math.exp(metrics["loss"])) < 1e-6 * metrics["perplexity"], metrics)
    losses = [float(line.split("loss ")[1].split(",")[0]) for line in text.splitlines() if "evaluation after" in line]
    require(len(losses) > 1 and losses[-1] < losses[0] - 0.5, "does not learn:", losses)
    require(abs(min(losses) - metrics["loss"]) < 1e-4, "evaluate measures another loss:", losses, metrics)
    with open("chats/model/config.json") as file:
        require(json.load(file)["architectures"] == ["LlamaForCausalLM"], "the class of the trained folder")
    for name in ("tokenizer.json", "tokenizer_config.json", *KEPT):
        require(filecmp.cmp(f"folder/{name}", f"chats/model/{name}", False), "the trained folder has another", name)
    found = run(skycc, "evaluate", "chats", "chats.jsonl").stdout
    require("perplexity" in found, found)
    turn = "<|im_start|>user\nWell?<|im_end|>\n<|im_start|>assistant\n"
    asked = run(skycc, "predict", "chats", "--prompt", "Well?", "--tokens", "3")
    written = run(skycc, "predict", "chats", "--prompt", turn, "--tokens", "3")
    require("'chatml'" in asked.stderr and not written.stderr, asked.stderr, written.stderr)
    require(turn + asked.stdout == written.stdout, asked.stdout, written.stdout)
    for prompt in ("<|im", "<|im_start|>use"):  # no marks of the template
        require("'chatml'" in run(skycc, "predict", "chats", "--prompt", prompt, "--tokens", "1").stderr, prompt)
    plain = run(skycc, "predict", "chats", "--prompt", "Well?", "--tokens", "3", "--chat-template", "plain")
    require(plain.stdout.startswith("Well?") and not plain.stderr, plain.stdout, plain.stderr)
    require("is for --prompt" in printed(skycc, "predict", "chats", "--text", "a", "--chat-template", "plain", code=2))
    worst = metrics["worst"]
    require(all("Say " in row["text"] and "label" not in row for row in worst), worst)
    with open("chats/report.html") as file:
        require("Worst errors" in file.read() and len(worst) == min(metrics["rows"], 20), worst)
    require([row["loss"] for row in worst] == sorted((row["loss"] for row in worst), reverse=True), worst)


def check_tools():
    """The folder's template by itself, for a table with tools."""
    with open("chats.jsonl") as file, open("tools.jsonl", "w") as out:
        out.writelines(json.dumps({**json.loads(line), "tools": [{"name": "f"}]}) + "\n" for line in file)
    template = "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ '<|im_start|>' + m.role + " \
               "m.content + '<|im_end|>' }}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant{% endif %}"
    with open("folder/chat_template.jinja", "w") as file:
        file.write(template)
    settings = finetune("tools.jsonl", "tools", "--lora", "r=2")[0]
    require(settings["chat-template"] == "folder", settings)
    asked = run(skycc, "predict", "tools", "--prompt", "Well?", "--tokens", "3")
    written = run(skycc, "predict", "tools", "--prompt", "<|im_start|>userWell?<|im_end|><|im_start|>assistant",
                  "--tokens", "3")
    require("'folder'" in asked.stderr and written.stdout.endswith(asked.stdout) and asked.stdout != written.stdout,
            asked, written)
    with open("folder/chat_template.jinja", "w") as file:
        file.write("{}")


def check_others():
    settings, metrics, text = finetune("prompts.jsonl", "all", "--chat-template", "plain", "--lora", "r=2")
    require(settings["task"] == "chat" and settings["chat-template"] == "plain" and metrics["loss"] > 0, settings)
    require(os.path.exists("all/adapter/adapter_model.safetensors"), "no adapter")
    with open("all/adapter/adapter_config.json") as file:
        targets = sorted({target.split(".")[-1] for target in json.load(file)["target_modules"]})
    require(settings["lora"].endswith("targets=all-linear") and targets == [
        "down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"], settings["lora"], targets)
    require('next          skycc predict all --prompt "..."' in text, text)
    result = run(skycc, "plan", "all/model.onnx", "-d", "all/cluster.yaml", "--dim", "batch=2", "--dim", "seq=8",
                 "--loss", "cross-entropy", "-o", "plan.json")
    require("scores the next token" in result.stderr and "cross-entropy,shift" in result.stderr, result.stderr)
    result = run(skycc, "plan", "all/model.onnx", "-d", "all/cluster.yaml", "--dim", "batch=2", "--dim", "seq=8",
                 "--loss", "cross-entropy,shift", "-o", "plan.json")
    require("scores the next token" not in result.stderr, result.stderr)
    settings, metrics, _ = finetune("book.txt", "book", "--max-length", "32", "--end-of-text", "<|im_end|>")
    require(settings["task"] == "lm" and settings["end-of-text"] == "<|im_end|>", settings)
    require(metrics["perplexity"] > 1 and metrics["rows"] > 1, metrics)


def check_refusals():
    def refuse(code, wanted, *arguments, model="folder"):
        result = subprocess.run([skycc, "finetune", model, *arguments, "-o", "refused"], capture_output=True, text=True)
        require(result.returncode == code and wanted in result.stderr, arguments, result.returncode, result.stderr)
        require(not os.path.exists("refused"), arguments, "leaves a run")

    refuse(2, "<|begin_of_text|>", "chats.jsonl", "--chat-template", "llama3")
    refuse(2, "is for conversations", "book.txt", "--chat-template", "chatml")
    refuse(2, "</none> is not a special token", "book.txt", "--end-of-text", "</none>")
    refuse(1, "vocabulary", "chats.jsonl", model="small")


with tempfile.TemporaryDirectory(prefix="skycc-test-", ignore_cleanup_errors=True) as scratch:
    os.chdir(scratch)
    make_folder("folder", len(TOKENIZER["model"]["vocab"]) + 3)
    make_folder("small", 31)
    make_tables()
    check_chats()
    check_tools()
    check_others()
    check_refusals()
    browser.look({name: f"{name}/report.html" for name in ("chats", "all", "book")}, here)
    os.chdir(here)
sys.exit(failed())
