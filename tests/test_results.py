"""The README's figures are those of docs/results.json."""

import json

from tests.make_results import README, RESULTS, rendered_readme


def test_the_readme_states_what_results_json_holds() -> None:
    text = README.read_text("utf-8")
    assert rendered_readme(text, json.loads(RESULTS.read_text("utf-8"))) == text


def test_every_entry_names_command_commit_and_machine() -> None:
    results = json.loads(RESULTS.read_text("utf-8"))
    assert set(results) == {"sample_run", "real_text", "figures"}
    for entry in results.values():
        assert entry["command"].startswith("langadapt")
        assert len(entry["commit"]) >= 7
        assert "cores" in entry["machine"]
