"""The sample's text: enough of it, varied, nothing repeated."""

import ast
import collections
import inspect
import json
import os
import subprocess
import sys
import textwrap
import zlib
from pathlib import Path

import pytest

from steps import make_sample

FOLDER = Path(__file__).parents[2] / "steps" / "sample_data"
CORPUS = [json.loads(line) for line in (FOLDER / "corpus.jsonl").read_text("utf-8").splitlines()]
CONVERSATIONS = [
    json.loads(line)["messages"] for line in (FOLDER / "conversations.jsonl").read_text("utf-8").splitlines()
]
PROSE = [document["text"] for document in CORPUS]
FIRST_60_KB, LAST_60_KB = "\n".join(PROSE).encode()[:60_000], "\n".join(PROSE).encode()[-60_000:]


def test_size_and_topics() -> None:
    assert len(CORPUS) >= 80
    assert sum(len(document["text"].encode()) for document in CORPUS) >= 120_000
    topics = {document["topic"] for document in CORPUS}
    assert topics == {"telecom", "city", "science", "history", "cooking", "law", "story"}


@pytest.mark.parametrize("part", [FIRST_60_KB, LAST_60_KB], ids=["first 60 KB", "last 60 KB"])
def test_the_prose_is_varied(part: bytes) -> None:
    assert len(zlib.compress(part, 9)) / len(part) >= 0.33


def test_hardly_anything_is_said_twice() -> None:
    words = " ".join(PROSE).split()
    runs = [tuple(words[place : place + 6]) for place in range(len(words) - 5)]
    repeated = sum(count for count in collections.Counter(runs).values() if count > 1)
    assert repeated / len(runs) <= 0.01


def test_conversations() -> None:
    assert len(CONVERSATIONS) >= 200
    assert all([message["role"] for message in messages] == ["user", "assistant"] for messages in CONVERSATIONS)
    answers = [messages[1]["content"].strip() for messages in CONVERSATIONS]
    assert len(set(answers)) == len(answers)


def test_latin_script_only() -> None:
    everything = json.dumps([CORPUS, CONVERSATIONS], ensure_ascii=False)
    assert not [character for character in everything if "\u0400" <= character <= "\u04ff"]


@pytest.mark.parametrize(
    ("place", "words"), [("file", "file is a file"), ("file/below", "file is a file"), ("full", "full is not empty")]
)
def test_a_wrong_folder_is_refused_before_the_model_is_made(tmp_path: Path, place: str, words: str) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    command = [sys.executable, "-m", "steps.make_sample", f"--folder={tmp_path / place}", f"--cache={tmp_path / 'c'}"]
    ended = subprocess.run(command, cwd=FOLDER.parents[1], capture_output=True, text=True, timeout=30)
    assert ended.returncode == 1
    assert ended.stderr == f"error: sample: {tmp_path}/{words}. Name a new folder.\n"
    assert not (tmp_path / "c").exists()


def test_a_place_where_no_folder_can_be_is_one_line_before_the_model_is_made(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "steps.make_sample", "--folder=/proc/x", f"--cache={tmp_path / 'c'}"]
    ended = subprocess.run(command, cwd=FOLDER.parents[1], capture_output=True, text=True, timeout=30)
    assert ended.stderr == "error: /proc/x: cannot be made there. Name a place that can be written to.\n"
    assert ended.returncode == 1
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(("umask", "modes"), [(0o022, {0o755, 0o644}), (0o077, {0o700, 0o600})])
def test_the_copy_has_the_modes_that_the_umask_says(tmp_path: Path, umask: int, modes: set[int]) -> None:
    sample = tmp_path / "sample"
    (sample / "base_model").mkdir(parents=True)
    for name, mode in (("corpus.jsonl", 0o644), ("base_model/model.safetensors", 0o600)):
        (sample / name).write_text("")
        (sample / name).chmod(mode)
    before = os.umask(umask)
    try:
        make_sample.copy_sample(sample, tmp_path / "copy")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "copy").rglob("*")} == modes


def test_a_change_of_any_module_that_makes_the_base_model_makes_another() -> None:
    source = ast.parse(textwrap.dedent(inspect.getsource(make_sample.train_base_model)))
    used = set()
    for node in ast.walk(source):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "steps":
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            used |= {name.split(".", 1)[1].replace(".", "/") + ".py" for name in [node.module, *names]}
    steps = FOLDER.parent
    assert {name for name in used if (steps / name).is_file()} <= set(make_sample.MAKERS)
    assert all((steps / name).is_file() for name in make_sample.MAKERS)
