"""A model folder as FineTune leaves it, registered, and what a server makes of a folder alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from talking_model import GREETING, write_talking_model

# What may stand at the root of a model folder, and why each is harmless to a server. What is not: requirements.txt and
# model.py, which DJL Serving installs and runs; serving.properties, which overrules the package's environment;
# adapter_config.json, with which transformers takes the folder for an adapter's; *.bin and *.pt, which are pickles.
READ_BY_SERVERS = {
    "config.json", "generation_config.json", "chat_template.jinja", "tokenizer.json", "tokenizer_config.json",
    "special_tokens_map.json", "model.safetensors", "model.safetensors.index.json",
}  # fmt: skip
OURS = {
    "adapter": "a folder: vLLM and transformers look for weights at the root alone, LMI for a folder `adapters`",
    "training.json": "the report of FineTune: no server knows the name",
    "manifest.json": "the seal, by which every file is known: no server knows the name",
}

# Runs with nothing of this project on its path and without a network, as a server's container does.
LOAD_AS_A_SERVER = """
import json, socket, sys
def refuse(*arguments, **named):
    raise SystemExit("a socket was opened")
socket.socket.connect = socket.getaddrinfo = refuse
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig
torch.set_num_threads(1)

def load(folder, question):
    config = AutoConfig.from_pretrained(folder)
    model, loaded = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    tokenizer, generation = AutoTokenizer.from_pretrained(folder), GenerationConfig.from_pretrained(folder)
    messages = [{"role": "user", "content": question}]
    shown = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    ids = tokenizer(shown, add_special_tokens=False, return_tensors="pt").input_ids
    replies = model.eval().generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=60, do_sample=False)
    reply = replies[0, ids.shape[1]:]
    return {
        "config_dtype": str(config.dtype), "dtypes": sorted({str(one.dtype) for one in model.parameters()}),
        "rows": config.vocab_size, "tokens": len(tokenizer), "class": type(model).__name__,
        "left_over": sorted(map(str, [name for names in loaded.values() for name in names or ()])),
        "generation_ends": generation.eos_token_id, "pad": generation.pad_token_id, "end": tokenizer.eos_token_id,
        "end_of_turn": tokenizer.convert_tokens_to_ids("<|eot_id|>"), "prompt": shown,
        "begins": ids[0].tolist().count(tokenizer.bos_token_id), "reply": reply.tolist(),
        "reply_text": tokenizer.decode(reply, skip_special_tokens=True),
    }

question, *folders = sys.argv[1:]
print(json.dumps([load(folder, question) for folder in folders]))
"""


def load_as_a_server(*folders: Path, question: str = GREETING) -> list[dict[str, Any]]:
    """What a fresh process finds in each folder and replies to the question."""
    plain = {
        name: value for name, value in os.environ.items() if not name.startswith(("HF_", "PYTHON", "TRANSFORMERS"))
    }
    environment = {**plain, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HOME": "/nonexistent"}
    command = [sys.executable, "-c", LOAD_AS_A_SERVER, question, *(str(folder.absolute()) for folder in folders)]
    ran = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def write_fine_tuned_folder(folder: Path, tokenizer: Any, make_tiny_llama: Callable[..., Any], **settings: Any) -> Path:
    """A model that has learnt to reply and to stop, saved as FineTune saves, adapter and report beside it, sealed.

    settings: of the model's configuration, given to it when it has learnt.
    """
    import torch

    from steps.contract import StepConfig, StepFolders, seal, write_json
    from steps.modeling.loading import load_model, save_model_as
    from steps.modeling.special_ids import set_special_tokens

    model = load_model(write_talking_model(folder.with_name(f"{folder.name}-learnt"), tokenizer, make_tiny_llama))
    for name, value in settings.items():
        setattr(model.config, name, value)
    set_special_tokens(model, tokenizer)
    save_model_as(model, tokenizer, folder, torch.bfloat16)
    (folder / "adapter").mkdir()
    (folder / "adapter" / "adapter_model.safetensors").write_bytes(b"an adapter")
    write_json(folder / "adapter" / "adapter_config.json", {"peft_type": "LORA"})
    write_json(folder / "training.json", {"steps": 120})
    seal(StepFolders(folder), "fine_tune", StepConfig(), {}, 1.0, ["training.json"])
    return folder
