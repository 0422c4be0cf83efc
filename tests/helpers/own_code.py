"""A tiny model that brings code of its own: a Llama whose embeddings are scaled, in three files of its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CODE = {
    "configuration_own.py": """from transformers import LlamaConfig


class OwnConfig(LlamaConfig):
    model_type = "own_llama"

    def __init__(self, embedding_factor=FACTOR, **settings):
        self.embedding_factor = embedding_factor
        super().__init__(**settings)
""",
    "scaling_own.py": """def scaled(states, factor):
    return states * factor
""",
    "modeling_own.py": """from transformers import LlamaForCausalLM, LlamaModel

from .configuration_own import OwnConfig
from .scaling_own import scaled


class OwnModel(LlamaModel):
    config_class = OwnConfig

    def forward(self, input_ids=None, inputs_embeds=None, **others):
        states = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        return super().forward(inputs_embeds=scaled(states, self.config.embedding_factor), **others)


class OwnForCausalLM(LlamaForCausalLM):
    config_class = OwnConfig

    def __init__(self, config):
        super().__init__(config)
        self.model = OwnModel(config)
        self.post_init()
""",
}
AUTO_MAP = {
    "AutoConfig": "configuration_own.OwnConfig",
    "AutoModel": "modeling_own.OwnModel",
    "AutoModelForCausalLM": "modeling_own.OwnForCausalLM",
}


def give_own_code(folder: Path, *, factor: float = 3.0, **settings: Any) -> Path:
    """Makes a folder with a Llama one of this class. factor: of the embeddings; config.json leaves it to the code."""
    for name, code in CODE.items():
        (folder / name).write_text(code.replace("FACTOR", str(factor)))
    return change_settings(
        folder,
        **{"model_type": "own_llama", "architectures": ["OwnForCausalLM"], "auto_map": AUTO_MAP, **settings},
    )


def change_settings(folder: Path, file: str = "config.json", **settings: Any) -> Path:
    path = folder / file
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    return folder
