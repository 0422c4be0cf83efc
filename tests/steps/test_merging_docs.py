"""Every command of docs/merging.md is run, in its order, on a tiny model."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import torch.distributed.checkpoint as dcp
from small_adapters import write_adapter
from transformers import AutoModelForCausalLM

from steps import consolidate_checkpoint, merge_adapter
from steps.configs.consolidate_checkpoint import ConsolidateCheckpointConfig
from steps.configs.merge_adapter import MergeAdapterConfig
from steps.contract import EXIT_DONE, MANIFEST_NAME, run_step
from steps.modeling.checkpoints import training_state
from steps.modeling.loading import load_model, save_model

DOCUMENT = Path(__file__).parents[2] / "docs" / "merging.md"
STEPS = {
    "steps.merge_adapter": (merge_adapter.merge, MergeAdapterConfig, merge_adapter.FOLDERS),
    "steps.consolidate_checkpoint": (
        consolidate_checkpoint.consolidate, ConsolidateCheckpointConfig, consolidate_checkpoint.FOLDERS,
    ),
}  # fmt: skip


def test_the_commands_of_the_page(make_tiny_llama, tiny_tokenizer, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    model = make_tiny_llama()
    save_model(model, tiny_tokenizer, Path("base"))
    dcp.save(training_state(model, None), checkpoint_id="checkpoint", no_dist=True)
    model.save_pretrained("shards", max_shard_size=20_000)
    write_adapter(model, Path("adapter"))
    commands = re.findall(r"^    python -m (.+)$", DOCUMENT.read_text("utf-8"), flags=re.MULTILINE)
    assert len(commands) == 5
    for command in commands:
        module, *arguments = shlex.split(command)
        assert run_step(*STEPS[module], arguments=arguments) == EXIT_DONE, capsys.readouterr().err
    for name in ("merged", "merged-half", "consolidated", "halves"):
        assert AutoModelForCausalLM.from_pretrained(name).config.tie_word_embeddings
        load_model(Path(name))
    assert {path.name for path in Path("checked").iterdir()} == {MANIFEST_NAME}


def test_the_help_of_both_tells_folders_and_settings(capsys):
    for module, folder, setting in (
        ("steps.merge_adapter", "--adapter DIR  yours", "--max_difference=VALUE"),
        ("steps.consolidate_checkpoint", "--checkpoint DIR  yours", "--max_file_gib=VALUE"),
    ):
        assert run_step(*STEPS[module], arguments=["--help"]) == EXIT_DONE
        shown = capsys.readouterr().out
        assert folder in shown
        assert setting in shown
        assert f"python -m {module} --" in shown
