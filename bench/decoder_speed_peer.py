"""PyTorch's side of bench/decoder_speed: trains the folder on the rows in order, and prints seconds and first loss.

    decoder_speed_peer.py FOLDER DATA.safetensors full|LoRA bf16|f32 ROWS RANK TARGETS THREADS
"""
import json
import sys
import time
import warnings

import peft
import torch
import transformers
from safetensors.torch import load_file

folder, data, way, precision, rows, rank, targets, threads = sys.argv[1:]
torch.set_num_threads(int(threads))
warnings.filterwarnings("ignore")
transformers.utils.logging.disable_progress_bar()
model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
if way == "LoRA":
    model = peft.get_peft_model(model, peft.LoraConfig(r=int(rank), lora_alpha=int(rank), lora_dropout=0.0,
                                                       target_modules=targets.split(",")))
model.train()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, weight_decay=0.01)
losses, start = [], 0.0
for step, ids in enumerate(load_file(data)["input_ids"].long().split(int(rows))):
    if step == 1:
        start = time.perf_counter()
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        loss = model(input_ids=ids, labels=ids).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(json.dumps({"seconds": time.perf_counter() - start, "loss": losses[0]}))
