"""The README's figures are those of docs/results.json."""

import importlib.util
import json
from pathlib import Path

# Loaded by its path: a package named `tests` may be installed beside ours.
SPEC = importlib.util.spec_from_file_location("make_results", Path(__file__).with_name("make_results.py"))
assert SPEC is not None
assert SPEC.loader is not None
make_results = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(make_results)


def test_the_readme_states_what_results_json_holds() -> None:
    text = make_results.README.read_text("utf-8")
    assert make_results.rendered_readme(text, json.loads(make_results.RESULTS.read_text("utf-8"))) == text


def test_every_entry_names_command_commit_and_machine() -> None:
    results = json.loads(make_results.RESULTS.read_text("utf-8"))
    assert set(results) == {*make_results.ENTRIES, "figures"}
    for entry in results.values():
        assert entry["command"].startswith(("langadapt ", "make "))
        assert len(entry["commit"]) >= 7
        assert "cores" in entry["machine"]


def test_the_samples_model_has_learnt_to_stop() -> None:
    tuned = json.loads(make_results.RESULTS.read_text("utf-8"))["sample_run"]["fine_tuning"]
    assert tuned["stop_rate_training"] >= 0.9
