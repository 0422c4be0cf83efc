"""The table of mask checks with real tokenizers: one of ours, trained on Azerbaijani text, and Llama 3's own.

Prints a line for each conversation: its tokens, how many are trained, whether both are as put together by hand, and how
far the two losses of FineTune are from the cross-entropy by hand.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from llama_3 import write_llama_3_folder
from mask_table import compared_rows, cut_by_one, loss_differences
from workplace import ROOT, SAMPLE, prove

from steps.modeling.loading import load_tokenizer
from steps.text.assistant_mask import IGNORED_LABEL
from steps.text.bbpe import train_bbpe
from steps.text.chat_encoding import make_chat_ready
from steps.text.chat_template import END_OF_TURN_TOKEN
from steps.train_tokenizer import write_tokenizer_folder

pytestmark = pytest.mark.verify
REAL_TEXT = Path(os.environ.get("LANGADAPT_REAL_TEXT", ROOT.parent / "shared" / "data"))
LEAST_ROWS = 12


def write_ours(folder: Path) -> None:
    """8,192 tokens; fewer where there is no text but the sample's, which holds no more that come twice."""
    files = [path for path in (SAMPLE / "corpus.jsonl", REAL_TEXT / "az_laws.jsonl") if path.is_file()]
    lines = (line for path in files for line in path.read_text("utf-8").splitlines())
    texts = [json.loads(line)["text"] for line in lines]
    write_tokenizer_folder(train_bbpe(texts, 8_192, 2), folder, max_tokens=2_048)


def print_table(name: str, rows: list[Any], differences: dict[str, list[float]]) -> None:
    print(f"\n{name:<40} tokens trained  by hand  validation loss  trainer loss")
    for (row, example, is_same), *apart in zip(rows, *differences.values(), strict=False):
        trained = sum(label != IGNORED_LABEL for label in example.labels)
        losses = "  ".join(f"{value:>13.1e}" for value in apart)
        same = "equal" if is_same else "OTHER"
        print(f"{row.name:<40} {len(example.input_ids):>6,} {trained:>7,}  {same:>7}  {losses}")


@pytest.mark.parametrize(("whose", "write"), [("ours", write_ours), ("Llama 3's", write_llama_3_folder)])
def test_the_table(whose: str, write: Callable[[Path], None], tmp_path: Path, make_tiny_llama: Any) -> None:
    write(tmp_path / "tokenizer")
    tokenizer = load_tokenizer(tmp_path / "tokenizer")
    make_chat_ready(tokenizer)
    name = f"{whose}, {len(tokenizer):,} tokens"
    rows = list(compared_rows(tokenizer))
    examples = [example for _, example, _ in rows]
    model = make_tiny_llama(len(tokenizer), max_position_embeddings=2_048)
    differences = loss_differences(model, tokenizer, examples, tmp_path)
    print_table(name, rows, differences)
    equal = sum(is_same for _, _, is_same in rows)
    enough = len(rows) >= LEAST_ROWS
    prove(f"{name}: conversations whose tokens and labels are those by hand", f"{equal} of {len(rows)}",
          f"all, at least {LEAST_ROWS}", equal == len(rows) and enough)  # fmt: skip
    for kind, values in differences.items():
        prove(f"{name}: {kind} loss beside the cross-entropy by hand, largest of {len(values)}, nats",
              f"{max(values):.1e}", "1e-5", max(values) < 1e-5)  # fmt: skip
    begins = {(example.input_ids.count(tokenizer.bos_token_id), example.input_ids[0] == tokenizer.bos_token_id)
              for example in examples}  # fmt: skip
    prove(f"{name}: BOS tokens, at the start", begins, "exactly 1 each", begins == {(1, True)})
    ends = {tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids(END_OF_TURN_TOKEN)}
    is_apart = tokenizer.pad_token_id not in ends
    prove(f"{name}: pad {tokenizer.pad_token_id}, ends {sorted(ends)}", is_apart, "apart", is_apart)
    cut = cut_by_one(tokenizer)
    prove(f"{name}: 1,025 tokens are dropped, only the end of turn would be cut", cut, "both", cut == (True, True))
