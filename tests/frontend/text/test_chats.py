#!/usr/bin/python3
"""Data sets for decoders: texts by tokenizers of the forms that decoders have, and conversations with the tokens that a
model learns, both as the Hugging Face libraries make them (make_chats.py); prompts with responses, documents in
windows;
and what is refused.

    tests/frontend/text/test_chats.py SKYCC TOKENIZERS
"""
import csv
import json
import lzma
import os
import re
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "common"))
from checks import failed, require, run  # noqa: E402
from safetensors_files import read  # noqa: E402

skycc, folder = map(os.path.abspath, sys.argv[1:3])
with lzma.open(f"{folder}/chats.json.xz", "rt", encoding="utf-8") as packed:
    cases = json.load(packed)


def json_lines(name, rows):
    with open(name, "w", encoding="utf-8") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows))


def tokenize(table, tokenizer, *options, length=300):
    """Rows of ids without padding, and for each whether it is its own label; what is printed."""
    result = run(skycc, "tokenize", table, "--tokenizer", f"{tokenizer}.json", "--max-length", str(length), "-o", "out",
                 *options)
    data = read("out")
    rows = [ids[:count].tolist() for ids, count in zip(data["input_ids"], data["lengths"])]
    if "labels" not in data:
        return rows, None, result.stderr
    labels = data["labels"]
    require(np.all((labels == -100) | (labels == data["input_ids"])), table, "has labels that are other tokens")
    require(np.all(labels[data["attention_mask"] == 0] == -100), table, "learns padding")
    return rows, [(row[:count] != -100).astype(int).tolist() for row, count in zip(labels, data["lengths"])], \
        result.stderr


def ids_of(tokenizer, *texts):
    json_lines("texts.jsonl", [{"text": text} for text in texts])
    return tokenize("texts.jsonl", tokenizer, "--text", "text", "-q")[0]


def check_texts():
    for name, wanted in cases["ids"].items():
        found = ids_of(name, *cases["texts"])
        different = [(text, a, b) for text, a, b in zip(cases["texts"], found, wanted) if a != b[:300]]
        require(len(found) == len(wanted) and not different, name, len(different), "texts differ:", different[:2])


def check_conversations():
    json_lines("chats.jsonl", [{"messages": chat} for chat in cases["chats"]])
    turns = {"system": "system", "user": "human", "assistant": "gpt"}
    json_lines("turns.jsonl", [{"conversations": [{"from": turns[m["role"]], "value": m["content"]} for m in chat]}
                               for chat in cases["chats"]])
    for name, wanted in cases["templates"].items():
        ids, learned, message = tokenize("chats.jsonl", wanted["tokenizer"], "--task", "chat")
        require(ids == wanted["ids"], name, "ids", ids, wanted["ids"])
        require(learned == wanted["learned"], name, "learns", learned, wanted["learned"])
        require(f"chat template: {name}" in message, name, message)
        other = tokenize("turns.jsonl", wanted["tokenizer"], "--task", "chat", "--text", "conversations",
                         "--chat-template", name)
        require(other[:2] == (ids, learned), name, "conversations")
        everything = tokenize("chats.jsonl", wanted["tokenizer"], "--task", "chat", "--train-on", "all")[1]
        require(all(all(row) for row in everything), name, "--train-on all")


def check_columns():
    rows = [("Add.", "2 and 3", "5"), ("Greet.", "", "Hello")]
    with open("rows.csv", "w", newline="") as file:
        csv.writer(file).writerows([("instruction", "input", "output"), *rows])
    end = cases["tokenizers"]["llama2"]["model"]["vocab"]["</s>"]
    ids, learned, message = tokenize("rows.csv", "llama2", "--task", "chat", "--text", "instruction,input,output")
    require("chat template: alpaca" in message, message)
    task = "Below is an instruction that describes a task"
    prompts = [f"{task}, paired with an input that provides further context. Write a response that appropriately "
               "completes the request.\n\n### Instruction:\nAdd.\n\n### Input:\n2 and 3\n\n### Response:\n",
               f"{task}. Write a response that appropriately completes the request.\n\n### Instruction:\nGreet.\n\n"
               "### Response:\n"]
    wanted = ids_of("llama2", *[prompt + row[2] for prompt, row in zip(prompts, rows)])
    require(ids == [row + [end] for row in wanted], "alpaca", ids, wanted)
    before = [len(row) for row in ids_of("llama2", *prompts)]
    require(learned == [[0] * n + [1] * (len(row) - n) for n, row in zip(before, ids)], "alpaca learns", learned)
    ids, learned, _ = tokenize("rows.csv", "qwen", "--task", "chat", "--text", "instruction,output", "--chat-template",
                               "plain", "--end-of-text", "<|im_end|>")
    added = {token["content"]: token["id"] for token in cases["tokenizers"]["qwen"]["added_tokens"]}
    require([row[-1] for row in ids] == [added["<|im_end|>"]] * 2 and learned[1][-1] == 1, "plain", ids)
    with open("tokenizer_config.json", "w") as file:
        json.dump({"eos_token": {"content": "<|im_start|>"}, "model_max_length": 10**30}, file)
    ids = tokenize("rows.csv", "qwen", "--task", "chat", "--text", "instruction,output", "--chat-template", "plain")[0]
    require([row[-1] for row in ids] == [added["<|im_start|>"]] * 2, "tokenizer_config.json", ids)
    for config, wanted in (('{"eos_token": "<end>"}', "not a special token"), ('{"eos_token": ', "not valid JSON")):
        with open("tokenizer_config.json", "w") as file:
            file.write(config)
        result = subprocess.run([skycc, "tokenize", "rows.csv", "--tokenizer", "qwen.json", "--task", "chat", "--text",
                                 "instruction,output", "-o", "none"], capture_output=True, text=True)
        require(result.returncode == 1 and wanted in result.stderr, config, result.stderr)
    os.remove("tokenizer_config.json")


def check_weights_and_cuts():
    chat = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "bad", "weight": 0},
            {"role": "user", "content": "b"}, {"role": "assistant", "content": [{"type": "text", "text": "good"}]}]
    json_lines("weights.jsonl", [{"messages": chat}])
    ids, learned, _ = tokenize("weights.jsonl", "qwen", "--task", "chat")
    good = ids_of("qwen", "good")[0]
    require(sum(learned[0]) == len(good) + 1 and learned[0][-2] == 1, "weight 0", ids, learned)
    json_lines("parts.jsonl", [{"prompt": [*chat[:1], {"role": "assistant", "content": "bad"}, chat[2]],
                                "completion": chat[3:]}])
    parts = tokenize("parts.jsonl", "qwen", "--task", "chat", "--text", "prompt,completion")[:2]
    require(parts == (ids, learned), "messages in two columns", parts, ids, learned)
    long = [{"role": "user", "content": "word " * 60}, {"role": "assistant", "content": "x"}]
    json_lines("cut.jsonl", [{"messages": chat}, {"messages": long}])
    ids, _, message = tokenize("cut.jsonl", "qwen", "--task", "chat", length=40)
    require(len(ids) == 1 and "1 rows were left out: their first response" in message, message)


def check_own_template():
    own = cases["own"]
    json_lines("own.jsonl", own["chats"])

    def check(template, rows, wanted, learned=None, name="chat_template.jinja"):
        with open(name, "w", encoding="utf-8") as file:
            file.write(template)
        found = tokenize(rows, "qwen", "--task", "chat", "--chat-template", "folder", length=1000)
        require(found[0] == wanted, "the folder's template:", found[0], wanted)
        require(not learned or found[1] == learned, "the folder's template learns", found[1], learned)
        os.remove(name)
        return found[2]

    check(own["template"], "own.jsonl", own["ids"], own["learned"])
    columns = ["messages", "tools", "documents", "chat_template_kwargs"]
    with open("own.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns] + [
            [json.dumps(chat[name]) if chat.get(name) else "" for name in columns] for chat in own["chats"]])
    check(own["template"], "own.csv", own["ids"], own["learned"])
    refuse("own.csv", 1, "has 'tools', which the chat template chatml does not write")
    unmarked = re.sub("{%- (end)?generation %}", "{%- if true %}{% endif -%}", own["template"])
    check(json.dumps({"chat_template": unmarked}), "own.jsonl", own["ids"], own["learned"],
          "tokenizer_config.json")
    json_lines("plain.jsonl", [{"messages": own["chats"][1]["messages"]}])
    features = own["features"].replace("{{- \"<|im_end|>\" }}", "{%- generation %}<|im_end|>{% endgeneration %}")
    check(features, "plain.jsonl", [own["features_ids"]])
    # Objects and lists are compared by what they hold: a template that asks whether a message is the last question
    template = ('{% set asked = messages | selectattr("role", "equalto", "user") | list %}{% for m in messages %}'
                '{{ "<|im_start|>" + m.role }}{% if m == asked[-1] and [m, [1]] == [asked[-1], [1.0]] %}{{ "last" }}'
                '{% elif m == {"role": m.role, "content": m.content} %}{{ m.content }}{% endif %}'
                '{% generation %}<|im_end|>{% endgeneration %}{% endfor %}')
    chat = own["chats"][1]["messages"]
    last = max(i for i, message in enumerate(chat) if message["role"] == "user")
    check(template, "plain.jsonl", ids_of("qwen", "".join(
        f"<|im_start|>{m['role']}{'last' if i == last else m['content']}<|im_end|>" for i, m in enumerate(chat))))
    # Tools stand before the last question, so that they move when the conversation goes on. Reasoning has no place.
    template = ('{% set asked = messages | selectattr("role", "equalto", "user") | list %}{% for m in messages %}'
                '{% if m.role == "user" %}{% if tools and m == asked[-1] %}{{ "[" + tools[0].name + "]" }}{% endif %}'
                '{{ m.content + "<|im_start|>" }}'
                '{% elif m.tool_calls is defined %}{{ "call " + m.tool_calls[0].name + "<|im_end|>" }}'
                '{% else %}{{ m.content + ("<|im_start|>" if m.role == "tool" else "<|im_end|>") }}{% endif %}'
                '{% endfor %}')
    turns = [("user", "Ask"), ("assistant", "called"), ("tool", "seven"), ("assistant", "said"), ("user", "Again"),
             ("assistant", "end")]
    chat = [{"role": role, "content": content} for role, content in turns]
    chat[1]["tool_calls"] = [{"name": "find"}]
    chat[3]["reasoning_content"] = "hm"
    parts = ["Ask<|im_start|>", "call find<|im_end|>", "seven<|im_start|>", "said<|im_end|>",
             "[find]Again<|im_start|>", "end<|im_end|>"]
    json_lines("tools.jsonl", [{"messages": chat, "tools": [{"name": "find"}]}])
    learned = [[i % 2 for i, part in enumerate(parts) for _ in ids_of("qwen", part)[0]]]
    message = check(template, "tools.jsonl", ids_of("qwen", "".join(parts)), learned)
    require("'reasoning_content', so that 1 conversations are learned without it" in message, message)
    chat[4]["content"] = "end<|im_end|>"
    json_lines("tools.jsonl", [{"messages": chat, "tools": [{"name": "end<|im_end|>"}]}])
    with open("chat_template.jinja", "w") as file:
        file.write(template)
    refuse("tools.jsonl", 1, "does not say where the assistant's part", "--chat-template", "folder")
    for template, wanted in (("{% for i in range(9) %}", "there is no endfor"), ("{{ messages | nop }}", "'nop'"),
                             ("{{ messages[0].no.no }}", "undefined"), ("{{ raise_exception('no way') }}", "no way"),
                             ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "too deep"),
                             ("{{ messages[0].content }}", "does not say where the assistant's part"),
                             ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "too")):
        with open("chat_template.jinja", "w") as file:
            file.write(template)
        refuse("plain.jsonl", 1, wanted, "--chat-template", "folder")
    refuse("own.jsonl", 1, "does not write 'tools'", "--chat-template", "folder")
    os.remove("chat_template.jinja")
    refuse("own.jsonl", 1, "has no chat template", "--chat-template", "folder")


def check_documents():
    texts = ["one two three four five six seven eight nine ten " * 8, "short"]
    with open("book.txt", "w") as file:
        file.write(texts[0])
    json_lines("documents.jsonl", [{"text": text} for text in texts])
    end = cases["tokenizers"]["llama2"]["model"]["vocab"]["</s>"]
    whole = ids_of("llama2", *texts)
    ids, learned, _ = tokenize("documents.jsonl", "llama2", "--task", "lm", "--text", "text", length=32)
    require(all(row[0] == whole[0][0] and len(row) <= 32 for row in ids), "windows", ids)
    joined = [token for row in ids[:-1] for token in row[1:]]
    require(joined == whole[0][1:] + [end] and ids[-1] == whole[1] + [end], "windows", ids)
    require(all(all(row) for row in learned), "windows learn", learned)
    alone = tokenize("book.txt", "llama2", "--task", "lm", length=32)
    require(alone[0] == ids[:-1], "a plain text is one document", alone[0])


def refuse(table, code, wanted, *options, tokenizer="qwen"):
    result = subprocess.run([skycc, "tokenize", table, "--tokenizer", f"{tokenizer}.json", "--task", "chat", "-o",
                             "none", *options], capture_output=True, text=True)
    require(result.returncode == code and wanted in result.stderr, table, wanted, options, result.stderr)
    require(not os.path.exists("none"), wanted, "leaves a file")


def check_refusals():
    def refuse_rows(code, wanted, rows, *options, tokenizer="qwen"):
        json_lines("refused.jsonl", rows)
        refuse("refused.jsonl", code, wanted, *options, tokenizer=tokenizer)

    ask, answer = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}
    refuse_rows(1, "has no response", [{"messages": [ask]}])
    refuse_rows(1, "role 'tool'", [{"messages": [ask, {"role": "tool", "content": "x"}, answer]}])
    refuse_rows(1, "calls tools", [{"messages": [ask, {"role": "assistant", "content": None, "tool_calls": []}]}])
    calls = {"role": "assistant", "content": "", "tool_calls": [{"id": 1}]}
    refuse_rows(1, "calls tools", [{"messages": [ask, calls]}])
    for name, value in (("tools", [{"type": "function"}]), ("documents", [{"title": "x"}]), ("tools", '[{"a": 1}]'),
                        ("chat_template_kwargs", {"enable_thinking": False})):
        refuse_rows(1, f"has '{name}', which the chat template chatml does not write",
                    [{"messages": [ask, answer], name: value}])
    refuse_rows(1, "'tools' is not valid JSON", [{"messages": [ask, answer], "tools": "x"}])
    refuse_rows(1, "has 'thinking'", [{"messages": [ask, {**answer, "thinking": "hm"}]}])
    refuse_rows(1, "content is not a text", [{"messages": [{"role": "user", "content": [{"type": "image"}]}, answer]}])
    refuse_rows(1, "is not a list of messages", [{"messages": "a"}])
    refuse_rows(1, "not the first", [{"messages": [ask, {"role": "system", "content": "x"}, answer]}])
    for name in "gemma", "mistral":
        for rows in ([ask, ask, answer], [answer, ask], [ask, answer, answer]):
            refuse_rows(1, f"which the chat template {name} cannot write", [{"messages": rows}], "--chat-template",
                        name, tokenizer=name)
    refuse_rows(1, "has no 'messages'", [{"prompt": "a", "response": "b"}])
    refuse_rows(2, "the token <|begin_of_text|>", [{"messages": [ask, answer]}], "--chat-template", "llama3")
    refuse_rows(2, "not a special token", [{"messages": [ask, answer]}], "--end-of-text", "<end>")
    refuse_rows(2, "leave out --label", [{"messages": [ask, answer]}], "--label", "x")


with tempfile.TemporaryDirectory(prefix="skycc-test-") as scratch:
    os.chdir(scratch)
    for tokenizer_name, form in cases["tokenizers"].items():
        with open(f"{tokenizer_name}.json", "w", encoding="utf-8") as out:
            json.dump(form, out)
    check_texts()
    check_conversations()
    check_columns()
    check_weights_and_cuts()
    check_own_template()
    check_documents()
    check_refusals()
sys.exit(failed())
