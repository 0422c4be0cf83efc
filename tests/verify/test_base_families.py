"""The whole DAG from base models of other families: a tokenizer without BOS, and a sentencepiece-like one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, trainers
from transformers import AutoModelForCausalLM, Gemma3TextConfig, PreTrainedTokenizerFast, Qwen2Config
from workplace import Workplace, fill_workplace, prove

from steps.modeling.loading import load_model, save_model

pytestmark = pytest.mark.verify

ENGLISH = ["The base model of this test speaks English and knows nothing else."] * 5
SIZES = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 512,
}  # fmt: skip


def qwen2(folder: Path) -> tuple[Qwen2Config, PreTrainedTokenizerFast]:
    """The workplace's own tokenizer without BOS; the end of a text pads, too. Under Qwen's name for it, as transformers
    would add that token otherwise."""
    settings = (folder / "base" / "tokenizer.json").read_text("utf-8").replace("<|end_of_text|>", "<|endoftext|>")
    names = {"eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(settings), **names)
    ids = {"bos_token_id": None, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.eos_token_id}
    return Qwen2Config(vocab_size=len(tokenizer), tie_word_embeddings=True, **SIZES, **ids), tokenizer


def gemma3(folder: Path) -> tuple[Gemma3TextConfig, PreTrainedTokenizerFast]:
    """U+2581 for a space, bytes for letters without a piece; the embedding scaled."""
    trained = Tokenizer(models.BPE(unk_token="<unk>"))
    trained.normalizer = normalizers.Replace(" ", "▁")
    trained.train_from_iterator(ENGLISH, trainers.BpeTrainer(vocab_size=120, show_progress=False))
    settings = json.loads(trained.to_str())["model"]
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]
    pieces = sorted(settings["vocab"], key=settings["vocab"].get)
    pieces = [*special, *(f"<0x{byte:02X}>" for byte in range(256)), *(set(pieces) - set(special))]
    merges = [tuple(pair) for pair in settings["merges"]]
    vocabulary = {piece: index for index, piece in enumerate([*pieces[:262], *sorted(pieces[262:])])}
    tokenizer = Tokenizer(
        models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in special])
    names = {"pad_token": "<pad>", "eos_token": "<eos>", "bos_token": "<bos>", "unk_token": "<unk>"}
    ids = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2}
    config = Gemma3TextConfig(vocab_size=len(vocabulary), head_dim=8, sliding_window=64, **SIZES, **ids)
    return config, PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


@pytest.mark.parametrize("family", [qwen2, gemma3], ids=lambda family: family.__name__)
def test_the_whole_dag(family, tmp_path, make_tiny_llama):
    place: Workplace = fill_workplace(tmp_path, make_tiny_llama)
    config, tokenizer = family(tmp_path)
    for path in (tmp_path / "base").iterdir():
        path.unlink()
    torch.manual_seed(0)
    save_model(AutoModelForCausalLM.from_config(config), tokenizer, tmp_path / "base")
    choice = ["--set", "adapt_vocabulary.initialiser=best"]
    compared = ["--set", 'adapt_vocabulary.compared_initialisers=["focus","copy+subtoken_mean","normal"]']
    ablation = ["--set", "ablation=true", "--set", "continued_pretraining.passes=0.2"]
    finished = place.run(*choice, *compared, *ablation)
    print(finished.stdout[-3_000:], finished.stderr[-2_000:])
    prove(
        f"langadapt run from a tiny {config.model_type}", finished.returncode, "exit code 0", finished.returncode == 0
    )
    adaptation = json.loads((place.output("AdaptVocabulary") / "adaptation.json").read_text())
    print(adaptation["initialiser"], adaptation["reason"])
    ablation = json.loads((place.output("Evaluate") / "evaluation.json").read_text())["ablation"]["equal_bytes"]
    both = [ablation["base_tokenizer"], ablation["new_tokenizer"]]
    claim = "bits per byte after the same text with the base's own tokenizer and with the new one"
    prove(claim, ", ".join(f"{bits:.3f}" for bits in both), "above 0", min(both) > 0)
    final = load_model(place.output("FineTune"))
    prove(
        "the family of the final model", final.config.model_type, config.model_type, type(final.config) is type(config)
    )
