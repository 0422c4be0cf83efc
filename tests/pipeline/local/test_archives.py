"""Folders as archives: the same bytes for the same content, whatever the files' times and owners."""

import hashlib
import os
import tarfile

import pytest

from pipeline.local.archives import pack
from steps.contract import StepError


def folder_of(path, files):
    for name, text in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    return path


def test_the_same_content_gives_the_same_bytes(tmp_path):
    files = {"b.txt": "second", "a/ə.txt": "first", "a/run.sh": "#!/bin/sh\n"}
    one = folder_of(tmp_path / "one", files)
    two = folder_of(tmp_path / "two", dict(reversed(files.items())))
    os.utime(two / "b.txt", (1, 1))
    for folder in (one, two):
        (folder / "a/run.sh").chmod(0o700)
    (two / "b.txt").chmod(0o600)
    pack([one], tmp_path / "one.tar.gz", "Fit")
    pack([two], tmp_path / "elsewhere" / "another-name.tar.gz", "Fit")

    content = (tmp_path / "one.tar.gz").read_bytes()
    assert content == (tmp_path / "elsewhere/another-name.tar.gz").read_bytes()
    # No name, no time in the header.
    assert content[:8] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00"
    with tarfile.open(tmp_path / "one.tar.gz") as tar:
        entries = {entry.name: (entry.mode, entry.mtime, entry.uid, entry.uname) for entry in tar}
        assert tar.extractfile("a/ə.txt").read() == b"first"
    assert entries == {
        "a/run.sh": (0o755, 0, 0, ""), "a/ə.txt": (0o644, 0, 0, ""), "b.txt": (0o644, 0, 0, "")
    }  # fmt: skip


def test_instances_share_an_archive_and_never_disagree_in_it(tmp_path):
    one = folder_of(tmp_path / "1", {"shared.txt": "same", "one.txt": "1"})
    two = folder_of(tmp_path / "2", {"shared.txt": "same", "two.txt": "2"})
    pack([one, two], tmp_path / "model.tar.gz", "Fit, output model")
    with tarfile.open(tmp_path / "model.tar.gz") as tar:
        assert tar.getnames() == ["one.txt", "shared.txt", "two.txt"]
    before = hashlib.sha256((tmp_path / "model.tar.gz").read_bytes()).hexdigest()
    (two / "shared.txt").write_text("other")
    with pytest.raises(StepError, match=r"Fit, output model: two instances wrote different shared\.txt\."):
        pack([one, two], tmp_path / "model.tar.gz", "Fit, output model")
    assert hashlib.sha256((tmp_path / "model.tar.gz").read_bytes()).hexdigest() == before
