"""Where a run may be, what it keeps of its compiled definition, and what it believes of that."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipeline.config import load_config
from pipeline.local.run import check_writable, compiled_definition
from pipeline.progress import Quiet
from steps.contract import ConfigError, StepError


@pytest.mark.parametrize("change", [
    lambda text: text.replace('"DefaultValue": "PendingManualApproval"', '"DefaultValue": "Approved"'),
    lambda text: "{}",
])  # fmt: skip
def test_a_kept_definition_that_was_changed_does_not_serve(tmp_path, change):
    config, progress = load_config(), Quiet()
    compiled = compiled_definition(config, tmp_path, progress)
    (kept,) = (tmp_path / "definitions").iterdir()
    text, inode = kept.read_text(), kept.stat().st_ino
    assert compiled_definition(config, tmp_path, progress) == compiled
    assert (kept.stat().st_ino, progress.lines) == (inode, [])

    assert change(text) != text
    kept.write_text(change(text))
    assert compiled_definition(config, tmp_path, progress) == compiled
    assert progress.lines == [f"{kept} is not as it was compiled: compiling again"]
    assert [path.read_text() for path in (tmp_path / "definitions").iterdir()] == [text]


def test_a_current_folder_that_is_no_utf8_is_refused(tmp_path, monkeypatch):
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    monkeypatch.chdir(folder)
    with pytest.raises(StepError, match=r"caf\\xe9/runs: a name that is no UTF-8\. Rename it\."):
        check_writable("run folder", Path("runs"))


@pytest.mark.parametrize("place", ["/proc/registry", "/sys/registry"])
def test_a_folder_that_cannot_be_made_is_refused_before_the_first_step(tmp_path: Path, place: str) -> None:
    """To root they seem to be writable."""
    with pytest.raises(
        ConfigError, match=rf"registry: {Path(place).parent} cannot be written to \(.*\)\. Name a folder"
    ):
        check_writable("registry", Path(place))
    check_writable("registry", tmp_path / "new" / "registry")
    assert list(tmp_path.iterdir()) == []
