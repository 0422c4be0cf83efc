"""How much there is to read: stated in the section `plan`, measured where the data lies here, or not known."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from pipeline.config import PipelineConfig
from steps.contract import ConfigError


@dataclass(frozen=True)
class GivenData:
    """corpus_bytes, conversations: None where they are not known."""

    corpus_bytes: float | None
    conversations: int | None
    bytes_per_token: float
    base_bytes_per_token: float

    @property
    def corpus_tokens(self) -> float | None:
        """With the new tokenizer."""
        return None if self.corpus_bytes is None else self.corpus_bytes / self.bytes_per_token

    @property
    def base_corpus_tokens(self) -> float | None:
        """With the base model's own tokenizer."""
        return None if self.corpus_bytes is None else self.corpus_bytes / self.base_bytes_per_token


def given_data(config: PipelineConfig) -> GivenData:
    """Raises ConfigError for data that is named here and is not there.

    Without any data named, the sample's, as in a run. The bytes of files count as they lie there: compressed ones hold
    more text.
    """
    section, data = config.plan, config.data
    is_sample = data.corpus is None and data.base_model is None and section.base_model_shape is None
    corpus_bytes, conversations = section.corpus_bytes, section.conversations
    if corpus_bytes is None and (data.corpus or is_sample):
        corpus_bytes = _bytes_of("data.corpus", data.corpus or _sample_file("corpus.jsonl"))
    if conversations is None and (data.conversations or is_sample):
        conversations = _lines_of("data.conversations", data.conversations or _sample_file("conversations.jsonl"))
    return GivenData(corpus_bytes, conversations, section.bytes_per_token, section.base_bytes_per_token)


def _sample_file(name: str) -> str:
    return str(resources.files("steps") / "sample_data" / name)


def _files_of(field: str, place: str) -> list[Path]:
    """The files of a place here; none for a place elsewhere. Raises ConfigError for a place that is not there."""
    if "://" in place:
        return []
    path = Path(place).expanduser()
    if path.is_file():
        return [path]
    found = sorted(entry for entry in path.rglob("*") if entry.is_file()) if path.is_dir() else []
    if not found:
        value = f"{place} has no files" if path.is_dir() else f"{place} does not exist"
        raise ConfigError(
            field, value, remedy="Name a file or folder with text, or state its size in the section plan."
        )
    return found


def _bytes_of(field: str, place: str) -> float | None:
    files = _files_of(field, place)
    return float(sum(path.stat().st_size for path in files)) if files else None


def _lines_of(field: str, place: str) -> int | None:
    """Lines of plain .jsonl files; None where some are compressed, whose lines are not counted here."""
    files = _files_of(field, place)
    if not files or any(path.suffix != ".jsonl" for path in files):
        return None
    return max(1, sum(line.strip() != b"" for path in files for line in path.open("rb")))
