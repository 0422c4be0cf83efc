"""The ablation that the README shows: real text, the sample's base model, one pass with each tokenizer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

# Every how manyth document is taken, by its hash: base and small corpora take minutes on two cores so.
SHARES = {"az_laws.jsonl": 5, "az_web.jsonl": 1, "az_fiction.jsonl": 1}
TEXTS = {"equal_bytes": "held out, equal bytes", "equal_tokens": "held out, equal tokens"}
EXTRA_TEXT = "Wikipedia sentences, equal bytes"


def write_corpus(real_text: Path, file: Path) -> None:
    """One corpus of the files in SHARES."""
    lines = (
        line for name, share in SHARES.items() for line in _every(share, (real_text / name).open(encoding="utf-8"))
    )
    file.write_text("".join(lines), encoding="utf-8")


def _every(share: int, lines: Iterable[str]) -> Iterable[str]:
    for line in lines:
        if int(hashlib.sha256(json.loads(line)["text"].encode()).hexdigest()[-8:], 16) % share == 0:
            yield line


def render_ablation(entry: dict[str, Any]) -> str:
    """Two tables: bits per byte of both, and what both trainings took."""
    measured, training = entry["ablation"], entry["ablation"]["training"]
    rows = [
        "| bits per byte | base's own tokenizer | new tokenizer | improvement (95% interval) |",
        "| --- | --- | --- | --- |",
    ]
    for name, text in {**TEXTS, "extra_heldout": EXTRA_TEXT}.items():
        values = measured[name]
        low, high = values["improvement_ci95"]
        rows.append(
            f"| {text}, {values['documents']} documents | {values['base_tokenizer']:.3f} | "
            f"{values['new_tokenizer']:.3f} | {values['improvement']:.3f} ({low:.3f} to {high:.3f}) |"
        )
    base, new = training["base_tokenizer"], training["new_tokenizer"]
    change = entry["fertility"]["tokens_per_word"]
    pairs = {
        "tokens a word, held out": (f"{change['base']:.2f}", f"{change['chosen']:.2f}"),
        "steps": (f"{base['steps']:,}", f"{new['steps']:,}"),
        "passes over the corpus": (f"{base['corpus_passes']:.2f}", f"{new['corpus_passes']:.2f}"),
        "tokens": (f"{base['tokens']:,}", f"{new['tokens']:,}"),
        "FLOPs": (f"{base['flops'] / 1e12:.1f}e12", f"{new['flops'] / 1e12:.1f}e12"),
        "parameters": (f"{base['parameters']:,}", f"{new['parameters']:,}"),
    }
    took = [
        f"| training | base's own tokenizer | new tokenizer ({entry['fertility']['chosen']}) |",
        "| --- | --- | --- |",
    ]
    took += [f"| {what} | {of_base} | {of_new} |" for what, (of_base, of_new) in pairs.items()]
    return (
        f"{new['corpus_bytes'] / 1e6:.1f} MB of Azerbaijani (a fifth of the legal codes above, with web pages and "
        "fiction), the sample's tiny English base, each document read once with either tokenizer; "
        f"`make results` ({entry['machine']}, {entry['date']}, commit {entry['commit']}).\n\n"
        + "\n".join(rows)
        + "\n\n"
        + "\n".join(took)
    )
