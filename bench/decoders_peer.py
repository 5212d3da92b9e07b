"""One kind of decoder by PyTorch, transformers and PEFT: what bench/decoders compares with.

    decoders_peer.py FOLDER EXPORTED TRAINED.safetensors BRANCHES.safetensors RANK ALPHA TARGETS

Prints JSON: how far the exported folder's logits are from TRAINED's (`folder`), and the losses of ten steps of AdamW on
PEFT's branches, which begin as BRANCHES says (`lora`).
"""
import json
import sys

import torch
import transformers
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file

folder, exported, trained, branches, rank, alpha, targets = sys.argv[1:8]
transformers.logging.set_verbosity_error()
reference, trained = load_file(f"{folder}/reference.safetensors"), load_file(trained)
given = {key: reference["in/" + key].long() for key in ("input_ids", "attention_mask", "labels")}
mask = given["attention_mask"].bool()


def load(path):
    kind = transformers.AutoModelForCausalLM
    single = "ModernBert" in transformers.AutoConfig.from_pretrained(path).architectures[0]  # see make_decoders.py
    return kind.from_pretrained(path, attn_implementation="eager",
                                dtype=torch.float32 if single else torch.float64).eval()


with torch.no_grad():
    logits = load(exported)(input_ids=given["input_ids"], attention_mask=given["attention_mask"]).logits
model = get_peft_model(load(folder), LoraConfig(r=int(rank), lora_alpha=float(alpha), lora_dropout=0.0,
                                                target_modules=targets.split(","),
                                                fan_in_fan_out="GPT2" in transformers.AutoConfig.from_pretrained(
                                                    folder).architectures[0]))
model = model.to(next(model.parameters()).dtype)
drawn = {key[6:]: value for key, value in load_file(branches).items() if "lora_" in key and key.startswith("param/")}
for name, parameter in model.named_parameters():
    key = name.replace("base_model.model.", "").replace(".default", "")
    if "lora_" in name:
        parameter.data = drawn.pop(key).to(parameter.dtype)
assert not drawn, drawn.keys()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2, weight_decay=0.01)
losses = []
for _ in range(11):
    loss = model(**given).loss
    losses.append(loss.item())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(json.dumps({"folder": (logits - trained["out/logits"])[mask].abs().max().item(), "lora": losses}))
