"""A paragraph of the run's own text cut by its two tokenizers, in a process of its own: steps/cut_text.py."""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pipeline.report.facts import Token, TokenCuts

BASE, NEW = Path("base_tokenizer/tokenizer.json"), Path("tokenizer/tokenizer.json")
# Splits whose documents were not trained on, the first that is there.
SPLITS = ("validation", "test", "train")
SHOWN_WORDS = 45
# A shard may hold gigabytes in one line.
MAX_LINE_BYTES = 4_000_000
LIMIT_SECONDS = 60


class CutProcess:
    """Works while the report reads on."""

    def __init__(self, tokenizers: Path, text: str, source: str) -> None:
        from pipeline.local.run import package_path

        self.text, self.source = text, source
        # -P: a package named steps in the current folder is none of ours.
        command = [sys.executable, "-P", "-m", "steps.cut_text", str(tokenizers / BASE), str(tokenizers / NEW)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=package_path())
        assert self._process.stdin is not None
        # One that has ended already tells why by its result.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(text.encode())
            self._process.stdin.close()
        self._process.stdin = None

    @classmethod
    def started(cls, outputs: Mapping[str, Mapping[str, Path]]) -> CutProcess | None:
        """The process for the tokenizers and the text of a run; None where one of them is not there."""
        folders = [folder for by_output in outputs.values() for folder in by_output.values()]
        tokenizers = [folder for folder in folders if all((folder / path).is_file() for path in (BASE, NEW))]
        found = next(filter(None, map(_text_of, folders)), None)
        return cls(tokenizers[0], *found) if tokenizers and found else None

    def result(self) -> tuple[TokenCuts | None, str]:
        """The cuts; else None and why there are none."""
        try:
            output, errors = self._process.communicate(timeout=LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            return None, f"The text was not cut into tokens: no answer within {LIMIT_SECONDS} s."
        if self._process.returncode:
            last = errors.decode("utf-8", "replace").strip().rpartition("\n")[2] or "no message"
            return None, f"The text was not cut into tokens: {last.removeprefix('error: ')}"
        base, new = ([Token(**token) for token in cut] for cut in json.loads(output)["cuts"])
        return TokenCuts(self.text, self.source, base, new), ""


def _text_of(folder: Path) -> tuple[str, str] | None:
    """The beginning of the first document not trained on, and its file; None for a folder without documents."""
    for split in SPLITS:
        for shard in sorted((folder / split).glob("*.jsonl")):
            with shard.open("rb") as lines:
                line = lines.readline(MAX_LINE_BYTES)
            try:
                text = json.loads(line)["text"]
            except (ValueError, KeyError, TypeError):
                continue
            if isinstance(text, str) and (words := beginning(text)):
                return words, f"{split}/{shard.name}"
    return None


def beginning(text: str) -> str:
    """The first words of a text, whole sentences where one ends soon enough."""
    # Half a surrogate is no letter that a process could be given.
    words = text.encode("utf-8", "replace").decode().split()[:SHOWN_WORDS]
    ends = [number for number, word in enumerate(words, 1) if word.endswith((".", "!", "?", "…", "。"))]
    return " ".join(words[: ends[-1]] if ends and ends[-1] > SHOWN_WORDS // 2 else words)


def telling_word(cuts: TokenCuts) -> tuple[str, list[Token], list[Token]] | None:
    """The word that the new tokenizer spares most tokens of, without signs around it, with its tokens by both.

    None where the tokens do not add up to the text, as those of a tokenizer that changes it.
    """
    base, new = (dict(_words_of(cuts.text, tokens)) for tokens in (cuts.base, cuts.new))
    spared = {place: len(base[place]) - len(new[place]) for place in base if place in new}
    if not spared:
        return None
    start, end = max(spared, key=lambda place: (spared[place], -len(new[place]), -place[0]))
    word = cuts.text.encode()[start:end].decode()
    return word, base[start, end], new[start, end]


def _words_of(text: str, tokens: Sequence[Token]) -> Iterator[tuple[tuple[int, int], list[Token]]]:
    """Each word of letters alone: its place in bytes, and the tokens of it."""
    ends = list(itertools.accumulate(token.bytes for token in tokens))
    if not ends or ends[-1] != len(text.encode()):
        return
    starts = [0, *ends[:-1]]
    place = 0
    for word in text.split(" "):
        size = len(word.encode())
        if word.isalpha():
            # The space before a word is in its first token, or a token of its own.
            inside = [index for index in range(len(tokens)) if ends[index] > place and starts[index] < place + size]
            yield (place, place + size), [_without_spaces(tokens[index]) for index in inside]
        place += size + 1


def _without_spaces(token: Token) -> Token:
    text = token.text.strip(" ")
    return Token(text, token.bytes - (len(token.text) - len(text)))
