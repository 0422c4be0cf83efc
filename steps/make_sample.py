"""The demonstration that needs no data: corpus, conversations, and a base model made on this machine.

    python -m steps.make_sample [--folder DIR] [--cache DIR]

The Azerbaijani text ships with the package. The base model is a byte-level tokenizer and a tiny Llama trained for
about a minute on the English that every CPython carries (pydoc_data.topics). All of it is kept in the user's cache
under the digest of text and code, and copied to --folder where that is given. The last line printed names the folder.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from importlib import resources
from pathlib import Path

from steps.contract import (
    EXIT_DONE,
    EXIT_TERMINATED,
    EXIT_USER_ERROR,
    ConfigError,
    all_files,
    mendable_error,
    report,
)
from steps.contract.files import give_rights_of, make_folder
from steps.contract.locks import FileLock, LockHeldError

# torch and transformers are imported where the base model is trained: a sample that is there already costs no time.

SAMPLE_FILES = ("corpus.jsonl", "conversations.jsonl", "LICENSE")
# The modules that shape the base model; a change of them makes a new one.
MAKERS = ("make_sample.py", "modeling/loading.py", "text/bbpe.py", "text/chat_template.py", "train_tokenizer.py")
VOCABULARY_SIZE = 2_048
CONTEXT_TOKENS = 1_024
BLOCK_TOKENS = 256
BATCH_BLOCKS = 16
STEPS = 140
LEARNING_RATE = 3e-3
SEED = 0
WAIT_SECONDS = 0.2


def cached_sample(cache: Path, train: Callable[[list[str], Path], None] | None = None) -> Path:
    """The sample's folder in the cache; made there, aside and renamed, where it is missing. One process makes it.

    train: makes the base model from texts in a folder; `train_base_model` where none is given.
    """
    finished = cache / f"sample-{sample_digest()[:16]}"
    waited_for = ""
    while not finished.is_dir():
        try:
            with FileLock(lock_path(cache, finished.name)):
                clear_leftovers(cache, finished.name)
                if not finished.is_dir():
                    make(finished, cache / f".{finished.name}.{os.getpid()}", train or train_base_model)
        except LockHeldError as held:
            if held.holder != waited_for:
                print(f"Waiting for process {held.holder}, which is making the sample's base model.", flush=True)
            waited_for = held.holder
            time.sleep(WAIT_SECONDS)
    return finished


def lock_path(cache: Path, name: str) -> Path:
    return cache / f".{name}.lock"


def clear_leftovers(cache: Path, held: str) -> None:
    """Removes what killed processes left half-made: no process here has its number, and nobody holds its lock.

    held: the sample whose lock this process holds.
    """
    for aside in cache.glob(".sample-*.*"):
        name, _, process_id = aside.name[1:].rpartition(".")
        if not process_id.isdigit() or is_process(int(process_id)):
            continue
        try:
            with nullcontext() if name == held else FileLock(lock_path(cache, name)):
                shutil.rmtree(aside)
        except LockHeldError:
            continue


def is_process(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def make(finished: Path, aside: Path, train: Callable[[list[str], Path], None]) -> None:
    """Makes the sample aside and renames it into place."""
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    shipped = resources.files("steps") / "sample_data"
    for name in SAMPLE_FILES:
        (aside / name).write_bytes((shipped / name).read_bytes())
    print("Making the sample's base model, about a minute; it is kept for later runs.", flush=True)
    try:
        train(english_topics(), aside / "base_model")
        give_rights_of(aside / SAMPLE_FILES[0], (aside / name for name in all_files(aside)))
        os.replace(aside, finished)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def sample_digest() -> str:
    """sha256 of what the sample is made of: the shipped text, Python's English, the code that makes the model."""
    shipped = [(resources.files("steps") / "sample_data" / name).read_text("utf-8") for name in SAMPLE_FILES]
    code = [(resources.files("steps") / name).read_text("utf-8") for name in MAKERS]
    return hashlib.sha256("\0".join([*shipped, *code, *english_topics()]).encode()).hexdigest()


def check_target(folder: Path, *, may_be_full: bool = False) -> None:
    """Raises ConfigError for a folder that cannot be written to as a new one: a file, below a file, or not empty."""
    remedy = "Name a new folder."
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise ConfigError("sample", f"{there} is a file", remedy=remedy)
    if not os.access(there, os.W_OK | os.X_OK):
        raise ConfigError("sample", f"{there} cannot be written to", remedy=remedy)
    if there == folder and not may_be_full and any(folder.iterdir()):
        raise ConfigError("sample", f"{folder} is not empty", remedy=remedy)


def copy_sample(sample: Path, folder: Path) -> None:
    """Copies the sample to a new or empty folder. Raises ConfigError where something is there already."""
    check_target(folder)
    # File by file, as a copied tree would have the modes of the cache.
    for name in all_files(sample):
        make_folder((folder / name).parent)
        shutil.copyfile(sample / name, folder / name)


def english_topics() -> list[str]:
    """The texts of Python's own help topics, in order of their names."""
    from pydoc_data.topics import topics

    return [topics[name] for name in sorted(topics)]


def train_base_model(texts: list[str], folder: Path) -> None:
    """Trains tokenizer and tiny Llama on the texts and saves both as a Hugging Face folder."""
    import numpy
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from steps.modeling.loading import load_tokenizer, save_model
    from steps.text import bbpe
    from steps.train_tokenizer import write_tokenizer_folder

    torch.manual_seed(SEED)
    torch.use_deterministic_algorithms(True)
    tokenizer = bbpe.train_bbpe(texts, VOCABULARY_SIZE, min_frequency=2)
    bos, eos = tokenizer.token_to_id("<|begin_of_text|>"), tokenizer.token_to_id("<|end_of_text|>")
    stream = [token for text in texts for token in [*tokenizer.encode(text).ids, eos]]
    blocks = numpy.array(stream[: len(stream) // BLOCK_TOKENS * BLOCK_TOKENS]).reshape(-1, BLOCK_TOKENS)
    config = LlamaConfig(
        vocab_size=VOCABULARY_SIZE,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT_TOKENS,
        tie_word_embeddings=True,
        bos_token_id=bos,
        eos_token_id=eos,
        pad_token_id=tokenizer.token_to_id("<|finetune_right_pad_id|>"),
    )
    model = LlamaForCausalLM(config)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=STEPS, pct_start=0.05)
    generator = numpy.random.default_rng(SEED)
    for step in range(1, STEPS + 1):
        batch = torch.from_numpy(blocks[generator.integers(0, len(blocks), BATCH_BLOCKS)])
        loss = model(input_ids=batch, labels=batch, use_cache=False).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 20 == 0:
            report(step=step, steps=STEPS, loss=loss.item())
    write_tokenizer_folder(tokenizer, folder, CONTEXT_TOKENS)
    save_model(model, load_tokenizer(folder), folder)


def default_cache() -> Path:
    """The user's cache folder for langadapt; LANGADAPT_CACHE names another."""
    if given := os.environ.get("LANGADAPT_CACHE"):
        return Path(given).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "langadapt"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="new folder to copy the sample to")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="where the sample is kept")
    arguments = parser.parse_args()
    # As an exception, so that the half-made sample is cleared.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(EXIT_TERMINATED))
    try:
        # Before the model is trained, not a minute later.
        check_target(arguments.cache, may_be_full=True)
        if arguments.folder is not None:
            check_target(arguments.folder)
            make_folder(arguments.folder)
        folder = cached_sample(arguments.cache)
        if arguments.folder is not None:
            copy_sample(folder, arguments.folder)
            folder = arguments.folder
    except Exception as error:
        fault = mendable_error(error, arguments.cache)
        if fault is None:
            raise
        print(f"error: {fault}", file=sys.stderr)
        return EXIT_USER_ERROR
    print(folder)
    return EXIT_DONE


if __name__ == "__main__":
    sys.exit(main())
