"""A corpus that is spoilt without being refused: the run that reads it warns wherever a person looks."""

import json

from doubtful_corpora import SPOILT, sample_texts
from workplace import Workplace, fill_workplace

from steps.contract import EXIT_DONE


def test_a_spoilt_corpus_is_warned_of_on_the_screen_and_in_every_record(tmp_path, make_tiny_llama):
    place: Workplace = fill_workplace(tmp_path, make_tiny_llama)
    (tmp_path / "spoilt").mkdir()
    spoilt = SPOILT["mojibake:cp1252"](tmp_path / "spoilt", sample_texts())["corpus"]
    done = place.run("--only", "PrepareCorpus", "--set", f"data.corpus={spoilt}")
    assert done.returncode == EXIT_DONE, done.stderr
    assert "mojibake: " in done.stderr
    summary = done.stdout.splitlines()
    (told,) = (line for line in summary if line.startswith("  PrepareCorpus: mojibake: "))
    assert any(line.endswith(("warning:", "warnings:")) for line in summary[: summary.index(told)])
    (recorded,) = (entry for entry in place.execution()["warnings"] if entry["name"] == "mojibake")
    assert recorded["step"] == "PrepareCorpus"
    assert told.endswith(recorded["message"])
    manifest = json.loads((place.output("PrepareCorpus") / "manifest.json").read_text())
    assert recorded["message"] in [row["message"] for row in manifest["warnings"] if row["name"] == "mojibake"]
