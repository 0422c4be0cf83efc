"""What a run keeps of its compiled definition, and believes of it."""

from __future__ import annotations

import pytest

from pipeline.config import load_config
from pipeline.local.run import compiled_definition
from pipeline.progress import Quiet


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
