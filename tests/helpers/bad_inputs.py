"""Every bad input of docs/bad-inputs.md made for real: one function a row, in the order of the table.

A row is a command line of `langadapt`; where only a step finds the fault, also the step's own command line, which is
faster than a run.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import zstandard
from workplace import PRESET


@dataclass(frozen=True)
class BadInput:
    """arguments: of langadapt. step: a step's module and arguments that meet the same fault; empty where the command
    itself does."""

    arguments: list[str]
    step: tuple[str, ...] = ()


@dataclass(frozen=True)
class Place:
    """A workplace with good data; `bad` is the folder of one row. prepared: a finished PrepareCorpus folder."""

    folder: Path
    bad: Path
    prepared: Path

    def run(self, *more: str, config: Path | None = PRESET, **data: Path | str) -> BadInput:
        """`langadapt run` on good data but for what is named."""
        paths: dict[str, Path | str] = {
            "corpus": self.folder / "corpus.jsonl",
            "conversations": self.folder / "conversations.jsonl",
            "base_model": self.folder / "base",
        }
        settings = [word for name, path in (paths | data).items() for word in ("--set", f"data.{name}={path}")]
        given = [] if config is None else ["--config", str(config)]
        return BadInput(["run", *given, *settings, *more])

    def file(self, name: str, content: bytes | str) -> Path:
        path = self.bad / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def corpus(self, path: Path, given_to_step: Path | None = None) -> BadInput:
        """A run on a bad corpus; the first step meets it. A run lays a single file out in a folder."""
        step = ("prepare_corpus", f"--corpus={given_to_step or path}", f"--output={self.bad / 'out'}")
        return BadInput(self.run(corpus=path).arguments, step)

    def tokenizers(self, base_model: Path | None = None, **settings: str) -> BadInput:
        """A run with settings of train_tokenizer that only that step finds to be wrong."""
        base_model = base_model or self.folder / "base"
        given = [word for name, value in settings.items() for word in ("--set", f"train_tokenizer.{name}={value}")]
        step = ("train_tokenizer", f"--corpus={self.prepared}", f"--base_model={base_model}",
                f"--output={self.bad / 'out'}", *(f"--{name}={value}" for name, value in settings.items()))  # fmt: skip
        return BadInput(self.run(*given, base_model=base_model).arguments, step)

    def conversations(self, *lines: object, good: int = 0) -> BadInput:
        """A run on conversations of one file: `lines`, after some good ones."""
        fine = [messages("user", "assistant")] * good
        text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in [*fine, *lines])
        return self.run(conversations=self.file("talk.jsonl", text))

    def model(self, change: Callable[[Path], object], *more: str) -> BadInput:
        """A run on a changed copy of the base model."""
        shutil.copytree(self.folder / "base", self.bad / "model")
        change(self.bad / "model")
        return self.run(*more, base_model=self.bad / "model")


def messages(*roles: str) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": f"Salam {number}"} for number, role in enumerate(roles)]}


def settings_changed(**values: Any) -> Callable[[Path], object]:
    return lambda folder: change_json(folder / "config.json", **values)


def change_json(path: Path, **values: Any) -> None:
    """Sets members of a JSON file; None removes one."""
    changed = json.loads(path.read_text()) | values
    path.write_text(json.dumps({name: value for name, value in changed.items() if value is not None}))


def keep_half(path: Path) -> Path:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return path


def document_lines(count: int) -> str:
    words = ["bakı", "şəhər", "dəniz", "külək", "qış", "yay", "kitab", "zəng", "salam", "dost", "yol", "su"]
    texts = (
        " ".join(words[(number * 7 + place * (number + 1)) % 12] for place in range(40)) for number in range(count)
    )
    return "".join(
        json.dumps({"text": f"{number} {text}"}, ensure_ascii=False) + "\n" for number, text in enumerate(texts)
    )


def parquet_file(path: Path, **columns: list[Any]) -> Path:
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def read_only_folder(place: Place) -> BadInput | None:
    """A run folder on a read-only mount; None where this process may not mount."""
    target = place.bad / "read_only"
    target.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,size=64k", "tmpfs", target], capture_output=True).returncode:
        return None
    return place.run("--run-dir", str(target / "run"))


def remove_document_marks(folder: Path) -> None:
    change_json(folder / "tokenizer_config.json", bos_token=None, eos_token=None)


def slow_tokenizer_only(folder: Path) -> None:
    (folder / "tokenizer.json").rename(folder / "tokenizer.model")


def not_byte_level(folder: Path) -> None:
    change_json(folder / "tokenizer.json", pre_tokenizer=None, decoder=None)


def spell_as_sentencepiece(folder: Path) -> None:
    """Words that begin with ▁, and bytes as tokens of their own for all else, as in Mistral or Gemma."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    first = min(entry["id"] for entry in tokenizer["added_tokens"])
    pieces = [*(f"<0x{byte:02X}>" for byte in range(256)), *(chr(0x2581 + number) for number in range(first - 256))]
    model = {"type": "BPE", "vocab": {piece: number for number, piece in enumerate(pieces)}, "merges": [],
             "byte_fallback": True, "fuse_unk": True}  # fmt: skip
    decoders = [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}]
    change_json(
        folder / "tokenizer.json",
        model=model,
        pre_tokenizer={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": False},
        decoder={"type": "Sequence", "decoders": [*decoders, {"type": "Fuse"}]},
        post_processor=None,
    )


def more_tokens_than_rows(folder: Path) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    last = max(entry["id"] for entry in tokenizer["added_tokens"])
    first = tokenizer["added_tokens"][0]
    more = [{**first, "id": last + extra, "content": f"<|more_{extra}|>"} for extra in range(1, 400)]
    change_json(folder / "tokenizer.json", added_tokens=[*tokenizer["added_tokens"], *more])


def missing_shard(folder: Path) -> None:
    shards = {name: f"model-0000{number}-of-00002.safetensors" for number, name in enumerate(("first", "last"), 1)}
    (folder / "model.safetensors").rename(folder / shards["first"])
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))


def with_own_code(folder: Path) -> None:
    change_json(folder / "config.json", auto_map={"AutoModelForCausalLM": "modeling_own.OwnForCausalLM"})
    (folder / "modeling_own.py").write_text("raise SystemExit('this must never run')\n")


def with_code_of_a_hub(folder: Path) -> None:
    change_json(folder / "config.json", auto_map={"AutoModelForCausalLM": "someone/own--modeling_own.OwnForCausalLM"})


def with_tokenizer_code(folder: Path) -> None:
    change_json(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": [None, "tokens_own.OwnTokenizer"]})


def lfs_pointer(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    )


ROWS: dict[str, Callable[[Place], BadInput | None]] = {
    # --- the command line
    "unknown-command": lambda place: BadInput(["rnu"]),
    "unknown-option": lambda place: place.run("--paramm", "MaxBitsPerByte=1"),
    "option-without-value": lambda place: BadInput(["run", "--preset"]),
    "preset-and-config": lambda place: place.run("--preset", "laptop"),
    "unknown-preset": lambda place: BadInput(["run", "--preset", "labtop"]),
    "compile-into-a-folder": lambda place: BadInput(["compile", "--output", str(place.bad)]),
    "run-folder-is-a-file": lambda place: place.run("--run-dir", str(place.folder / "corpus.jsonl")),
    "run-folder-below-a-file": lambda place: place.run("--run-dir", str(place.folder / "corpus.jsonl" / "run")),
    "registry-is-a-file": lambda place: place.run("--registry", str(place.folder / "corpus.jsonl")),
    "run-folder-read-only": read_only_folder,
    "word-not-utf8": lambda place: place.run("--run-dir", os.fsdecode(b"runs/caf\xe9")),
    "sample-into-a-full-folder": lambda place: BadInput(["sample", str(place.folder / "base")]),
    "inspect-mask-missing": lambda place: BadInput(["inspect-mask", str(place.bad / "talk.jsonl")]),
    "inspect-mask-without-tokenizer": lambda place: BadInput(
        ["inspect-mask", str(place.folder / "conversations.jsonl"), "--model", str(place.bad)]
    ),
    "chat-missing": lambda place: BadInput(["chat", str(place.bad / "none")]),
    "chat-folder-without-model": lambda place: BadInput(["chat", str(place.bad)]),
    "chat-two-models": lambda place: BadInput(["chat", str(place.folder / "base"), "--endpoint", "talker"]),
    "chat-empty-question": lambda place: BadInput(["chat", str(place.folder / "base"), "--prompt", " "]),
    "approve-unknown-version": lambda place: BadInput(["models", "approve", "7"]),
    "approve-a-text": lambda place: BadInput(["models", "approve", "newest"]),
    "show-unknown-version": lambda place: BadInput(["models", "show", "7"]),
    "reject-without-comment": lambda place: BadInput(["models", "reject", "1"]),
    "reject-with-empty-comment": lambda place: BadInput(["models", "reject", "1", "--comment", " "]),
    "export-not-approved": lambda place: BadInput(
        ["models", "export-bedrock", "1", "--output", str(place.bad / "new")]
    ),
    "export-over-a-folder": lambda place: BadInput(
        ["models", "export-bedrock", "1", "--pending", "--output", str(place.bad)]
    ),
    # --- the configuration file
    "config-missing": lambda place: place.run(config=place.bad / "none.yaml"),
    "config-is-a-folder": lambda place: place.run(config=place.bad),
    "config-not-utf8": lambda place: place.run(config=place.file("a.yaml", b"preset: caf\xe9\n")),
    "config-syntax": lambda place: place.run(config=place.file("a.yaml", "fine_tune: {epochs: 1\nthresholds:\n")),
    "config-a-list": lambda place: place.run(config=place.file("a.yaml", "- fine_tune\n")),
    "config-empty": lambda place: place.run(config=place.file("a.yaml", "")),
    "config-key-twice": lambda place: place.run(
        config=place.file("a.yaml", PRESET.read_text() + "fine_tune: {epochs: 9}\n")
    ),
    "config-field-missing": lambda place: place.run(
        config=place.file("a.yaml", PRESET.read_text().replace("  max_bits_per_byte: 20.0\n", ""))
    ),
    # --- fields
    "set-without-equals": lambda place: place.run("--set", "fine_tune.epochs"),
    "set-without-field": lambda place: place.run("--set", "=3"),
    "set-below-a-field": lambda place: place.run("--set", "fine_tune.epochs.first=3"),
    "field-misspelt": lambda place: place.run("--set", "fine_tune.epoch=3"),
    "section-misspelt": lambda place: place.run("--set", "finetune.epochs=3"),
    "field-without-section": lambda place: place.run("--set", "lora_rank=8"),
    "field-in-another-section": lambda place: place.run("--set", "continued_pretraining.lora_rank=8"),
    "section-as-value": lambda place: place.run("--set", "fine_tune=3"),
    "value-out-of-range": lambda place: place.run("--set", "fine_tune.epochs=0"),
    "share-of-half": lambda place: place.run("--set", "prepare_corpus.test_share=0.6"),
    "value-no-number": lambda place: place.run("--set", "fine_tune.learning_rate=fast"),
    "value-no-whole-number": lambda place: place.run("--set", "fine_tune.seed=1.5"),
    "seed-too-large": lambda place: place.run("--set", "fine_tune.seed=99999999999999999999999"),
    "value-nan": lambda place: place.run("--set", "thresholds.max_bits_per_byte=.nan"),
    "value-none-of-the-choices": lambda place: place.run("--set", "fine_tune.precision=half"),
    "value-no-boolean": lambda place: place.run("--set", "prepare_corpus.repair_homoglyphs=perhaps"),
    "list-as-number": lambda place: place.run("--set", "train_tokenizer.vocabulary_sizes=1024"),
    "list-as-text": lambda place: place.run("--set", "train_tokenizer.vocabulary_sizes=768,1024"),
    "list-empty": lambda place: place.run("--set", "train_tokenizer.vocabulary_sizes=[]"),
    "size-too-small": lambda place: place.run("--set", "train_tokenizer.vocabulary_sizes=[64]"),
    "size-no-multiple": lambda place: place.run("--set", "train_tokenizer.vocabulary_sizes=[1000]"),
    "size-twice": lambda place: place.run("--set", "train_tokenizer.vocabulary_sizes=[768,768]"),
    "kind-unknown": lambda place: place.run("--set", "train_tokenizer.kinds=[bpe]"),
    "extended-no-multiple": lambda place: place.run("--set", "train_tokenizer.extended_tokens=[100]"),
    "suffixes-missing": lambda place: place.run("--set", "train_tokenizer.kinds=[unigram-suffix]"),
    "suffix-no-word": lambda place: place.run(
        "--set", "train_tokenizer.kinds=[unigram-suffix]", "--set", "train_tokenizer.suffixes=[-lar]"
    ),
    "chosen-of-no-kind": lambda place: place.run("--set", "train_tokenizer.chosen=extended-1024"),
    "chosen-not-there": lambda place: place.tokenizers(
        vocabulary_sizes="[768]", chosen="bbpe-2048", max_vocabulary_parameters_share="0.95"
    ),
    "share-too-small": lambda place: place.tokenizers(
        vocabulary_sizes="[768]", max_vocabulary_parameters_share="0.1"
    ),
    "batch-no-multiple-of-block": lambda place: place.run("--set", "tokenize_corpus.block_tokens=100"),
    "ablation-shuffled": lambda place: place.run(
        "--set", "ablation=true", "--set", "continued_pretraining.block_order=shuffled"
    ),
    "source-corpus-without-limit": lambda place: place.run(source_corpus=place.folder / "corpus.jsonl"),
    "region-unknown-form": lambda place: place.run("--set", "aws.region=mars"),
    "image-by-tag": lambda place: place.run("--set", "aws.image_uri=000000000000.dkr.ecr.eu-west-1.amazonaws.com/x:1"),
    # --- pipeline parameters
    "param-without-equals": lambda place: place.run("--param", "MaxBitsPerByte"),
    "param-twice": lambda place: place.run("--param", "MaxBitsPerByte=1", "--param", "MaxBitsPerByte=2"),
    "param-misspelt": lambda place: place.run("--param", "MaxBitPerByte=1"),
    "param-no-number": lambda place: place.run("--param", "MaxBitsPerByte=low"),
    "param-nan": lambda place: place.run("--param", "MaxBitsPerByte=NaN"),
    "param-infinite": lambda place: place.run("--param", "MinImprovement=-inf"),
    "param-no-whole-number": lambda place: place.run("--param", "ContinuedPretrainingInstanceCount=1.5"),
    "param-no-boolean": lambda place: place.run("--param", "AllowConcurrent=maybe"),
    "param-none-of-the-choices": lambda place: place.run("--param", "ModelApprovalStatus=approved"),
    # --- text
    "corpus-missing": lambda place: place.run(corpus=place.bad / "none.jsonl"),
    "corpus-on-s3": lambda place: place.run(corpus="s3://bucket/corpus/"),
    "corpus-path-empty": lambda place: place.run(corpus=""),
    "home-unknown": lambda place: place.run(corpus="~nobody-of-that-name/corpus.jsonl"),
    "corpus-name-not-utf8": lambda place: place.corpus(
        place.file(os.fsdecode(b"texts/caf\xe9.jsonl"), document_lines(9)).parent
    ),
    "corpus-empty": lambda place: place.corpus(place.file("a.jsonl", "")),
    "corpus-folder-without-text": lambda place: place.corpus(place.file("texts/notes.docx", "x").parent),
    "corpus-unknown-kind": lambda place: place.corpus(
        place.file("texts/a.csv", "text\nsalam\n"), given_to_step=place.bad / "texts"
    ),
    "corpus-binary": lambda place: place.corpus(place.file("a.jsonl", bytes(range(256)) * 40)),
    "corpus-utf16": lambda place: place.corpus(place.file("a.txt", "Salam dünya\n".encode("utf-16"))),
    "corpus-gz-cut": lambda place: place.corpus(
        keep_half(place.file("a.jsonl.gz", gzip.compress(document_lines(400).encode())))
    ),
    "corpus-zst-cut": lambda place: place.corpus(
        keep_half(place.file("a.jsonl.zst", zstandard.compress(document_lines(400).encode())))
    ),
    "corpus-gz-in-name-only": lambda place: place.corpus(place.file("a.jsonl.gz", document_lines(40))),
    "corpus-parquet-cut": lambda place: place.corpus(
        keep_half(parquet_file(place.bad / "a.parquet", text=["Salam dünya"] * 99))
    ),
    "corpus-parquet-without-text": lambda place: place.corpus(
        parquet_file(place.bad / "a.parquet", body=["Salam"] * 9)
    ),
    "corpus-no-json": lambda place: place.corpus(place.file("a.jsonl", "Salam, dünya, necəsən bu gün?\n" * 40)),
    "corpus-without-text-field": lambda place: place.corpus(
        place.file("a.jsonl", json.dumps({"content": "Salam, dünya, necəsən?"}) + "\n")
    ),
    "corpus-json-list": lambda place: place.corpus(
        place.file("a.jsonl", json.dumps([json.loads(line) for line in document_lines(3).splitlines()]))
    ),
    "corpus-json-over-lines": lambda place: place.corpus(
        place.file("a.jsonl", json.dumps([json.loads(line) for line in document_lines(3).splitlines()], indent=1))
    ),
    "corpus-invalid-utf8": lambda place: place.corpus(
        place.file("a.jsonl", document_lines(40).encode() + b'{"text": "caf\xe9 latte, s\xfcd"}\n' * 2)
    ),
    "corpus-one-document": lambda place: place.corpus(place.file("a.jsonl", document_lines(1))),
    "corpus-copies": lambda place: place.corpus(place.file("a.jsonl", document_lines(1) * 200)),
    "corpus-too-small-for-vocabulary": lambda place: place.tokenizers(
        vocabulary_sizes="[768]", min_frequency="100000"
    ),
    # --- conversations
    "conversations-missing": lambda place: place.run(conversations=place.bad / "none.jsonl"),
    "conversations-empty": lambda place: place.conversations(),
    "conversations-unknown-kind": lambda place: place.run(conversations=place.file("talk.csv", "question,answer\n")),
    "conversations-gz-cut": lambda place: place.run(
        conversations=keep_half(
            place.file("talk.jsonl.gz", gzip.compress(json.dumps(messages("user", "assistant")).encode() * 999))
        )
    ),
    "conversations-no-json": lambda place: place.conversations("Sual: salam", "Cavab: salam"),
    "conversations-utf16": lambda place: place.run(
        conversations=place.file("talk.jsonl", json.dumps(messages("user", "assistant")).encode("utf-16"))
    ),
    "conversations-invalid-utf8": lambda place: place.run(
        conversations=place.file("talk.jsonl", b'{"prompt": "caf\xe9?", "completion": "latte"}\n')
    ),
    "conversations-unknown-form": lambda place: place.conversations({"question": "Salam?", "answer": "Salam."}),
    "conversations-mixed-forms": lambda place: place.conversations(
        {"prompt": "Salam?", "completion": "Salam."}, good=4
    ),
    "conversations-unknown-role": lambda place: place.conversations(messages("human", "gpt")),
    "conversations-content-no-text": lambda place: place.conversations({"prompt": "Nə qədər?", "completion": 3}),
    "conversations-not-a-list": lambda place: place.conversations({"messages": "Salam"}),
    "conversations-without-answer": lambda place: place.conversations(messages("user")),
    "conversations-empty-answer": lambda place: place.conversations({"prompt": "Salam?", "completion": " "}),
    "conversations-assistant-first": lambda place: place.conversations(messages("assistant", "user")),
    "conversations-two-questions": lambda place: place.conversations(messages("user", "user", "assistant")),
    "conversations-system-in-the-middle": lambda place: place.conversations(
        messages("user", "assistant", "system", "user", "assistant")
    ),
    "conversations-end-with-question": lambda place: place.conversations(messages("user", "assistant", "user")),
    "conversations-one": lambda place: place.conversations(messages("user", "assistant")),
    "conversations-one-question": lambda place: place.conversations(good=3),
    # --- the accuracy items
    "accuracy-empty": lambda place: place.run(accuracy=place.file("items.jsonl", "")),
    "accuracy-answer-outside": lambda place: place.run(
        accuracy=place.file("items.jsonl", json.dumps({"question": "2 + 2?", "choices": ["4", "5"], "answer": 4}))
    ),
    # --- the base model
    "model-missing": lambda place: place.run(base_model=place.bad / "none"),
    "model-is-a-file": lambda place: place.run(base_model=place.folder / "corpus.jsonl"),
    "model-without-config": lambda place: place.model(lambda folder: (folder / "config.json").unlink()),
    "model-config-no-json": lambda place: place.model(lambda folder: keep_half(folder / "config.json")),
    "model-without-tokenizer": lambda place: place.model(lambda folder: (folder / "tokenizer.json").unlink()),
    "model-slow-tokenizer": lambda place: place.model(slow_tokenizer_only),
    "model-tokenizer-cut": lambda place: place.model(lambda folder: keep_half(folder / "tokenizer.json")),
    "model-tokenizer-not-byte-level": lambda place: place.model(not_byte_level),
    "model-tokenizer-cannot-be-extended": lambda place: place.model(
        spell_as_sentencepiece, "--set", "train_tokenizer.kinds=[extended]"
    ),
    "model-tokenizer-without-document-marks": lambda place: place.model(remove_document_marks),
    "model-fewer-rows-than-tokens": lambda place: place.model(more_tokens_than_rows),
    "model-vocabulary-differs": lambda place: place.model(settings_changed(vocab_size=512)),
    "model-without-weights": lambda place: place.model(lambda folder: (folder / "model.safetensors").unlink()),
    "model-pickled": lambda place: place.model(
        lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin") and None
    ),
    "model-weights-cut": lambda place: place.model(lambda folder: keep_half(folder / "model.safetensors")),
    "model-weights-garbage": lambda place: place.model(
        lambda folder: (folder / "model.safetensors").write_bytes(b"\0" * 64) and None
    ),
    "model-lfs-pointer": lambda place: place.model(lfs_pointer("model.safetensors")),
    "model-tokenizer-lfs-pointer": lambda place: place.model(lfs_pointer("tokenizer.json")),
    "model-shard-missing": lambda place: place.model(missing_shard),
    "model-with-code": lambda place: place.model(with_own_code),
    "model-tokenizer-with-code": lambda place: place.model(with_tokenizer_code),
    "model-with-code-elsewhere": lambda place: place.model(with_code_of_a_hub, "--set", "data.trust_remote_code=true"),
    "model-code-missing": lambda place: place.model(with_tokenizer_code, "--set", "data.trust_remote_code=true"),
    "model-no-type": lambda place: place.model(settings_changed(model_type=None)),
    "model-not-causal": lambda place: place.model(
        settings_changed(model_type="bert", architectures=["BertForMaskedLM"])
    ),
    "model-quantized": lambda place: place.model(
        settings_changed(quantization_config={"quant_method": "gptq", "bits": 4})
    ),
    "model-untied-without-head": lambda place: place.model(settings_changed(tie_word_embeddings=False)),
    "block-longer-than-positions": lambda place: place.run(
        "--set", "tokenize_corpus.block_tokens=1024", "--set", "continued_pretraining.global_batch_tokens=2048"
    ),
    "conversation-longer-than-positions": lambda place: place.run("--set", "fine_tune.max_tokens=4096"),
}  # fmt: skip
