#!/usr/bin/env python3
"""Makes tests/data/tokenizers/chats.json.xz: small tokenizers of the forms that decoders have, and what the Hugging
Face
libraries make of texts and of conversations with them.

    make_chats.py TOKENIZERS     needs the packages tokenizers (0.23) and transformers (5.24)

TOKENIZERS is that folder. The file holds each tokenizer, the ids of odd texts by it, and the ids and assistant masks of
conversations by a template in Jinja that says the same as skycc's.
"""
import json
import lzma
import os
import random
import re
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

HERE = os.path.dirname(os.path.abspath(__file__))
with open(f"{HERE}/make_tokenizers.py", encoding="utf-8") as file:  # its texts, without what it makes
    source = file.read().split("def charsmap")[0].replace("OUT = sys.argv[1]", "")
given = {"__file__": f"{HERE}/make_tokenizers.py"}
exec(re.sub("(import|from) sentencepiece.*", "", source), given)
TEXTS = given["TEXTS"][:6000] + given["FOREIGN"] * 20

WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|" \
        r"\s+(?!\S)|\s+"
BYTES = [f"<0x{i:02X}>" for i in range(256)]


def byte_level(digits, specials, normalizer=None, first=None, **options):
    t = Tokenizer(models.BPE(**options))
    if normalizer:
        t.normalizer = normalizer
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(WORDS % digits), "isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    ])
    t.train_from_iterator(
        TEXTS,
        trainers.BpeTrainer(vocab_size=700, special_tokens=[AddedToken(s, special=True, normalized=False)
                                                            for s in specials], show_progress=False,
                            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    if first:
        t.post_processor = processors.TemplateProcessing(single=f"{first} $A", special_tokens=[(first,
                                                                                                t.token_to_id(first))])
    return t


def sentencepiece(specials, first, normalizer, pre_tokenizer):
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Replace(" ", "▁")
    t.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    t.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=900, special_tokens=specials + BYTES,
                                                     limit_alphabet=100, show_progress=False))
    form = json.loads(t.to_str())
    form["added_tokens"] = [token for token in form["added_tokens"] if token["content"] not in BYTES]
    form["normalizer"], form["pre_tokenizer"] = normalizer, pre_tokenizer
    t = Tokenizer.from_str(json.dumps(form))
    t.post_processor = processors.TemplateProcessing(single=f"{first} $A", special_tokens=[(first,
                                                                                            t.token_to_id(first))])
    return t


BLANKS = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
TOKENIZERS = {
    "qwen": byte_level("", ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], normalizers.NFC()),
    "llama3": byte_level("{1,3}", ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
                                   "<|eot_id|>"], first="<|begin_of_text|>", ignore_merges=True),
    "gemma": sentencepiece(["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"], "<bos>", BLANKS,
                           {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
                            "invert": False}),
    "mistral": sentencepiece(["<unk>", "<s>", "</s>", "[INST]", "[/INST]"], "<s>", None,
                             {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}),
    "llama2": sentencepiece(["<unk>", "<s>", "</s>"], "<s>", {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"}, BLANKS]}, None),
}

SPOKEN = "{% if m.role == 'assistant' %}{% generation %}{{ TEXT }}{% endgeneration %}{% else %}{{ TEXT }}{% endif %}"
SYSTEM = "{% if messages[0].role == 'system' %}{% set before = messages[0].content + '\n\n' %}" \
         "{% set messages = messages[1:] %}{% else %}{% set before = '' %}{% endif %}"
TEMPLATES = {
    "chatml": ("qwen", "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}" +
               SPOKEN.replace("TEXT", "m.content + '<|im_end|>'") + "{{ '\n' }}{% endfor %}"),
    "llama3": ("llama3", "{{ '<|begin_of_text|>' }}{% for m in messages %}"
               "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' }}" +
               SPOKEN.replace("TEXT", "m.content|trim + '<|eot_id|>'") + "{% endfor %}"),
    "gemma": ("gemma", "{{ '<bos>' }}" + SYSTEM + "{% for m in messages %}{{ '<start_of_turn>' + ('model' if m.role == "
              "'assistant' else 'user') + '\n' + (before if loop.first else '') }}" +
              SPOKEN.replace("TEXT", "m.content|trim + '<end_of_turn>'") + "{{ '\n' }}{% endfor %}"),
    "mistral": ("mistral", "{{ '<s>' }}" + SYSTEM + "{% for m in messages %}{% if m.role == 'assistant' %}{{ ' ' }}"
                "{% generation %}{{ m.content|trim + '</s>' }}{% endgeneration %}{% else %}"
                "{{ '[INST] ' + (before if loop.first else '') + m.content + '[/INST]' }}{% endif %}{% endfor %}"),
}

def say(*texts, system=None):
    first = [{"role": "system", "content": system}] if system else []
    return first + [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]


# A folder's own template: with tools and documents, thoughts only after the last question, and, in FEATURES, what else
# the language has. Without its marks around answers it says the same.
OWN = """{#- Answers may call tools. -#}
{%- macro called(call, more=true) -%}
    {{- '<call>' }}{{ call.name }}({{ call.arguments | tojson }}){{ '</call>' if more else '' -}}
{%- endmacro %}
{%- set state = namespace(last=-1) %}
{%- for m in messages if m.role == 'user' %}
    {%- set state.last = loop.index0 %}
{%- endfor %}
{%- set head = messages[0].content if messages and messages[0].role == 'system' else '' %}
{%- if tools or head or documents %}
<|im_start|>system
{{ head | trim }}
    {%- for tool in tools or [] %}

{{ tool.function | tojson(indent=2) }}
    {%- else %}

none
    {%- endfor %}
    {% if documents %}{{ documents | map(attribute='title') | join(', ') }}{% endif %}
<|im_end|>
{% endif %}
{%- set asked = namespace(count=-1) %}
{%- set rest = messages[1:] if head else messages %}
{%- for m in rest %}
    {%- if m.role == 'assistant' %}
        {{- '<|im_start|>assistant\n' }}
        {%- generation %}
        {%- if asked.count == state.last and enable_thinking is not false %}
            {{- '<think>' ~ (m.reasoning_content | default('')) ~ '</think>' }}
        {%- endif %}
        {{- m.content if m.content is string }}
        {%- for c in m.tool_calls %}{{ called(c.function, more=not loop.last) }}{% endfor %}
        {{- '<|im_end|>' }}
        {%- endgeneration %}
        {{- '\n' }}
    {%- elif m.role == 'tool' %}
        {{- '<|im_start|>user\nresult: ' + m['content'] + '<|im_end|>\n' }}
    {%- elif m.role == 'user' %}
        {%- set asked.count = asked.count + 1 %}
        {{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}
"""
FEATURES = r"""{% set o = {'b': 2, 'A': 'x', 'n': none, 'l': [1, 2.5, true]} %}
  {% if 1 < 2 <= 3 and not 'z' in 'abc' and 'b' in o %}line{% endif +%}
{{ [1, 2, 3][::-1] | tojson }} {{ 'häßlich'[1:-1] }} {{ 'abc'[-1] }} {{ o | tojson }} {{ o.l }} {{ o }}
{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 1e3 if false else 1.0 }} {{ 2 * 3 + 4 - 1 }} {{ 'a' ~ 1 ~ none }}
{% for k, v in o | dictsort %}{{ loop.index }}{{ k }}{{ loop.last }}{% if k == 'l' %}{% break %}{% endif %}{% endfor %}
{% for k, v in o.items() %}
{% if v is none %}{% continue %}{% endif %}{{ k | upper }}{{ loop.nextitem is defined }}{% endfor %}
{{ '\tq"\u00e9' | tojson }} {{ 'a-b'.split('-')[1] }} {{ ' x '.lstrip() }}{{ 'xxaxx'.strip('x') }} {{ 'a b' | title }}
{{ messages | selectattr('role', 'equalto', 'user') | list | length }} 
{{ [3, 'y'] | join('+') }} {{ missing is defined }}
{{ (1, 2) | last }} {{ range(2, 5) | list }} {{ 'ab' * 1 if false else 'x' 'y' }}
{{ missing | default('d') }} {{ 5 is odd }}
{% set t %}block {{ 1 }}{% endset %}{{ t | replace('b', 'B') | indent(2, true) }}
{{ 'it\'s' }} {{ ["it's"] }} {{ true }}
{{- "<|im_end|>" }}
"""
CALL = [{"function": {"name": "add", "arguments": {"a": 1, "b": [2.0, 1e-7, 1e22], "c": "\x1f\x7f\"é"}}}]
OWN_CHATS = [
    {"messages": [{"role": "system", "content": " Be brief.\n"}, {"role": "user", "content": "1+2?"},
                  {"role": "assistant", "content": None, "tool_calls": CALL},
                  {"role": "tool", "content": "3"}, {"role": "assistant", "content": "three"},
                  {"role": "user", "content": "And?"},
                  {"role": "assistant", "content": "done", "thinking": "hm", "tool_calls": CALL * 2}],
     "tools": [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {},
                                                                               "required": []}}}]},
    {"messages": say("a", "b<b>", "c", "<think"), "documents": [{"title": "t", "text": "u"}, {"title": "v"}]},
    {"messages": say("a", "", "c", "d"), "chat_template_kwargs": {"enable_thinking": False}},
]


CHATS = [
    say("What's 2+2?\n\nThink.", "\n\nIt is 4.  ", "And 3+3 — naïve?", "6 😀", system="You are terse."),
    say("Say <|im_end|> hello", "hello"),
    say("Съешь же ещё", "этих мягких французских булок\n\n\n", "  blanks  ", "\t漢字"),
    say("one", "1", system="  Count.  "),
    say("\u00a0\u3000", "", "\x1fa\x1f", "\u0085b\u2028", system="\u200b \x0b"),
]


def main(folder):
    draw = random.Random(5)
    texts = [text for text in given["nasty"]() if text and "\0" not in text]
    texts = [text + draw.choice(["", "\n\n", "  "]) + draw.choice(texts) for text in texts[::2]]
    result = {"tokenizers": {name: json.loads(t.to_str()) for name, t in TOKENIZERS.items()}, "texts": texts,
              "ids": {name: [t.encode(text).ids for text in texts] for name, t in TOKENIZERS.items()}, "chats": CHATS,
              "templates": {}}
    for name, (tokenizer, template) in TEMPLATES.items():
        fast = PreTrainedTokenizerFast(tokenizer_object=TOKENIZERS[tokenizer])
        fast.chat_template = template
        found = [fast.apply_chat_template(chat, return_dict=True, return_assistant_tokens_mask=True) for chat in CHATS]
        result["templates"][name] = {"tokenizer": tokenizer, "ids": [row["input_ids"] for row in found],
                                     "learned": [row["assistant_masks"] for row in found]}
    fast = PreTrainedTokenizerFast(tokenizer_object=TOKENIZERS["qwen"])
    fast.chat_template = OWN
    found = [fast.apply_chat_template(chat["messages"], tools=chat.get("tools"), documents=chat.get("documents"),
                                      return_dict=True, return_assistant_tokens_mask=True,
                                      **chat.get("chat_template_kwargs", {})) for chat in OWN_CHATS]
    fast.chat_template = FEATURES
    result["own"] = {"template": OWN, "chats": OWN_CHATS, "ids": [row["input_ids"] for row in found],
                     "learned": [row["assistant_masks"] for row in found], "features": FEATURES,
                     "features_ids": fast.apply_chat_template(OWN_CHATS[1]["messages"])["input_ids"]}
    with lzma.open(f"{folder}/chats.json.xz", "wt", encoding="utf-8", preset=9) as out:
        json.dump(result, out, separators=(",", ":"))


main(sys.argv[1])
