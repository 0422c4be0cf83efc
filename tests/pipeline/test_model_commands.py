"""`langadapt models`: the evidence on one screen, what differs between two versions, who approved and why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from whole_evaluation import PROMPT, evaluation
from workplace import Workplace

from pipeline.__main__ import command_code
from pipeline.conditions import ConditionResult
from pipeline.registry import LocalRegistry
from pipeline.version_report import report_lines
from steps.schemas.evaluation import Evaluation
from steps.schemas.model_quality import model_quality


def kept(candidate: float, rate: float, *, champion: bool) -> dict[str, bytes]:
    """Evidence as a run leaves it."""
    low = ConditionResult("bits_per_byte.improvement_ci95[0]", ">", 2.4 - candidate, 0.0, True)
    warnings = [{"step": "PrepareCorpus", "name": f"doubtful-{number}", "message": PROMPT} for number in range(6)]
    execution = {
        "execution_id": "0123456789ab", "pipeline": "langadapt", "parameters": {"MaxBitsPerByte": 3.0},
        "steps": {"ResolveInputs": {"values": {"champion_uri": "file:///x/langadapt/7/model" if champion else ""}}},
        "gates": {"QualityGate": {"open": True, "conditions": [low.as_json()] * 4}}, "warnings": warnings,
    }  # fmt: skip
    heldout = {"tokens_per_word": 3.0, "ci95": (2.9, 3.1), "bytes_per_token": 2.0, "one_token_words": 0.5,
               "round_trip_errors": 0}  # fmt: skip
    tokenizer = {"name": "base", "kind": "base", "vocab_size": 300, "texts": {"heldout": heldout},
                 "train_seconds": 0.0, "peak_memory_bytes": 0}  # fmt: skip
    fertility = {"candidates": [tokenizer], "chosen": "bbpe-4096", "reason": "fewest tokens",
                 "tokens_per_word": {"base": 3.22, "chosen": 1.59}}  # fmt: skip
    seal = {"step": "prepare_corpus", "config": {}, "inputs": {}, "code_sha256": None, "files": {}, "seconds": 1.0,
            "metrics": {"documents": 54, "words": 12155, "dropped": 3}, "peak_memory_bytes": 1,
            "versions": {}}  # fmt: skip
    files = {
        "Evaluate/output/evaluation.json": evaluation(candidate, champion=champion), "execution.json": execution,
        "TrainTokenizer/output/fertility.json": fertility, "PrepareCorpus/output/manifest.json": seal,
        "environment.json": {"python": "3.11", "platform": "Linux", "versions": {"torch": "2.13"}},
    }  # fmt: skip
    texts = {name: json.dumps(content).encode() for name, content in files.items()}
    return texts | {"config.yaml": f"fine_tune: {{learning_rate: {rate}, epochs: 3}}\n".encode()}


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    """A registry at its default place: versions 1 and 2 of `langadapt`, version 1 of `other`."""
    registry = LocalRegistry(tmp_path / "runs" / "registry")
    (tmp_path / "model").mkdir()
    for group, number, candidate, rate in (("langadapt", 1, 1.6, 0.01), ("langadapt", 2, 1.4, 0.02),
                                           ("other", 1, 1.4, 0.02)):  # fmt: skip
        (tmp_path / "model" / "model.safetensors").write_text(f"{group} {number}")
        (tmp_path / "model" / "config.json").write_text("{}")
        found = evaluation(candidate, champion=number == 2)
        metadata = {"corpus_digest": "a" * 64, "settings_sha256": f"{rate}", "tokens_per_word.chosen": "1.59",
                    "serving_engine": "vllm"}  # fmt: skip
        types = {"SupportedRealtimeInferenceInstanceTypes": ["ml.g5.xlarge", "ml.g6.xlarge"]}
        registry.register(
            group=group, model=tmp_path / "model", metadata=metadata, request={"InferenceSpecification": types},
            metrics=model_quality(Evaluation.model_validate(found)),
            evidence=kept(candidate, rate, champion=number == 2),
        )  # fmt: skip
    return Workplace(tmp_path)


def test_the_evidence_fits_on_one_screen(place):
    shown = place.langadapt("models", "show", "2", "--group", "langadapt")
    assert (shown.returncode, shown.stderr) == (0, "")
    print(shown.stdout)
    lines = shown.stdout.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 100
    assert lines[0] == "langadapt version 2: PendingManualApproval"
    verdict = "better than the base model by 1.1000 bits per byte, better than the champion by 0.3000 bits per byte"
    for words in (
        verdict, "60 documents, 123,456 bytes",
        "2.5000 -> 1.5000 -> 1.4000; improvement 1.1000 (95%: 1.0000 to 1.2000)",
        "version 7, 1.7000; improvement 0.3000 (95%: 0.2000 to 0.4000)", "loss 0.2000",
        "1.8000 -> 1.5000; improvement 0.3000 (95%: 0.2000 to 0.4000)",
        "300 -> 100 steps, 409,600 -> 409,600 tokens, 2.00e+12 -> 2.00e+12 FLOPs",
        "3.22 -> 1.59 tokens a word (bbpe-4096)", "questions: 50% -> 50% -> 50% (10 questions, chance 25%)",
        "2 of 58 test documents share 13 words", "2 are too short", "25% -> 25% -> 25%",
        "54 documents, 12,155 words; 3 dropped", "PrepareCorpus: doubtful-0", "and 2 more",
        "execution 0123456789ab of langadapt", "corpus aaaaaaaaaaaa", "vllm on ml.g5.xlarge or ml.g6.xlarge;",
    ):  # fmt: skip
        assert words in " ".join(shown.stdout.split()), words
    # What a model wrote does not reach the terminal as a command.
    assert "\x1b" not in shown.stdout


def test_json_has_all(place):
    shown = json.loads(place.langadapt("models", "show", "1", "--group", "other", "--json").stdout)
    assert shown["evidence"]["Evaluate/output/evaluation.json"]["samples"][4]["prompt"] == PROMPT
    assert shown["evidence"]["config.yaml"].startswith("fine_tune:")
    assert shown["metrics"]["language_model_metrics"]["bits_per_byte"] == {"value": 1.4, "standard_deviation": "NaN"}
    assert (shown["damage"], shown["approvals"][0]["status"]) == (None, "PendingManualApproval")


def test_what_differs_between_two_versions(place):
    told = place.langadapt("models", "diff", "langadapt/1", "langadapt/2")
    assert (told.returncode, told.stderr) == (0, "")
    print(told.stdout)
    lines = [" ".join(line.split()) for line in told.stdout.splitlines()]
    assert lines[0] == "langadapt 1 (PendingManualApproval) | langadapt 2 (PendingManualApproval)"
    assert "bits_per_byte 1.6000 -> 1.4000 (-0.2000)" in lines
    assert "fine_tune.learning_rate 0.01 -> 0.02" in lines
    assert not any("epochs" in line or "config.json" in line for line in lines)
    assert any(line.startswith("model.safetensors ") for line in lines)
    assert lines[-1] == "the same: libraries"

    both = json.loads(place.langadapt("models", "diff", "langadapt/2", "other/1", "--json").stdout)
    assert (both["settings"], both["libraries"], both["first"]["group"]) == ({}, {}, "langadapt")
    assert both["figures"] == {"champion_improvement": [pytest.approx(0.3), None],
                               "champion_improvement_low": [pytest.approx(0.2), None]}  # fmt: skip
    assert list(both["files"]) == ["model.safetensors"]
    for words, fault in ((("1", "langadapt/2"), "limit one group of langadapt, other"),
                         (("langadapt/9", "other/1"), "version: 9"),
                         (("newest", "other/1"), "version: newest; limit a number, or GROUP/NUMBER")):  # fmt: skip
        wrong = place.langadapt("models", "diff", *words)
        assert (wrong.returncode, wrong.stderr.count("\n")) == (1, 1)
        assert fault in wrong.stderr


def history(place: Workplace) -> list[tuple[str, str, bool]]:
    shown = json.loads(place.langadapt("models", "show", "2", "--group", "langadapt", "--json").stdout)
    return [(entry["status"], entry["comment"], bool(entry["by"] and entry["at"])) for entry in shown["approvals"][1:]]


def test_approvals_keep_who_when_and_why(place):
    group = ("--group", "langadapt")
    registry = LocalRegistry(place.folder / "runs" / "registry")
    for number in ("1", "2"):
        assert place.langadapt("models", "approve", number, *group, "--comment", "read it").returncode == 0
    twice = place.langadapt("models", "approve", "2", *group, "--comment", "again")
    assert (twice.returncode, twice.stdout) == (0, "langadapt version 2: Approved, as before\n")
    assert twice.stderr == "note: the comment was not kept: the version was Approved before\n"
    assert history(place) == [("Approved", "read it", True)]
    assert registry.newest_approved("langadapt").version == 2
    # Withdrawn: the next newest takes over.
    assert place.langadapt("models", "reject", "2", *group, "--comment", "repeats itself").returncode == 0
    assert registry.newest_approved("langadapt").version == 1
    refused = place.langadapt("models", "approve", "2", *group)
    assert refused.returncode == 1
    assert refused.stderr.startswith("error: comment: empty; limit a reason, as the version was rejected.")
    assert registry.newest_approved("langadapt").version == 1
    assert place.langadapt("models", "approve", "2", *group, "--comment", "wrong prompt").returncode == 0
    assert history(place)[1:] == [("Rejected", "repeats itself", True), ("Approved", "wrong prompt", True)]
    screen = place.langadapt("models", "show", "2", *group).stdout
    assert "Rejected by " in screen
    assert ": repeats itself" in screen


@pytest.mark.parametrize("file", ["model/model.safetensors", "evidence/Evaluate/output/evaluation.json"])
@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_a_damaged_version_is_not_approved(file, damage, place):
    path = place.folder / "runs" / "registry" / "other" / "1" / file
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    refused = place.langadapt("models", "approve", "1", "--group", "other", "--comment", "fine")
    print(refused.stderr)
    assert refused.returncode == 1
    assert refused.stderr.startswith("error: damaged model version: ")
    assert refused.stderr.count("\n") == 1
    assert LocalRegistry(place.folder / "runs" / "registry").show(1, "other").status == "PendingManualApproval"
    assert place.langadapt("models", "show", "1", "--group", "other", "--check").returncode == 1


EVALUATION, EXECUTION = "evidence/Evaluate/output/evaluation.json", "evidence/execution.json"


@pytest.mark.parametrize(("file", "content"), [
    (EVALUATION, None), (EVALUATION, "[]"), (EXECUTION, "{"), (EXECUTION, "{}"), ("evidence/config.yaml", "- 1"),
    ("model/model.safetensors", None),
])  # fmt: skip
def test_a_damaged_version_is_not_compared(file, content, place, monkeypatch, capsys):
    monkeypatch.chdir(place.folder)
    path = place.folder / "runs" / "registry" / "other" / "1" / file
    path.unlink() if content is None else path.write_text(content)
    assert command_code(["models", "diff", "langadapt/1", "other/1"], as_json=False) == 1
    line = capsys.readouterr().err
    assert line.startswith("error: damaged model version: ")
    assert (str(path.name) in line or "/model has " in line, line.count("\n")) == (True, 1)


def test_a_figure_that_is_no_number_is_damage(place, monkeypatch, capsys):
    monkeypatch.chdir(place.folder)
    path = place.folder / "runs" / "registry" / "other" / "1" / "version.json"
    path.write_text(path.read_text().replace('"1.59"', '"x"'))
    assert command_code(["models", "diff", "langadapt/1", "other/1"], as_json=False) == 1
    told = "damaged model version: tokens_per_word.chosen of version 1 is 'x', no number. Restore it from a copy"
    assert told in capsys.readouterr().err


def test_a_version_without_evidence_of_ours_shows_its_metadata_in_columns(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.bin").write_text("weights")
    metadata = {"retention_of_the_source_language": "0.25", "recipe": " ".join(["words"] * 40)}
    evidence = {"A/fertility.json": b"{}", "B/manifest.json": b"[]", "C/evaluation.json": b"{}"}
    version, _ = LocalRegistry(tmp_path / "registry").register(
        group="other", model=tmp_path / "model", metadata=metadata, metrics={}, request={}, evidence=evidence
    )
    lines = report_lines(version)
    print(*lines, sep="\n")
    assert "  retention_of_the_source_language  0.25" in lines
    recipe = next(index for index, line in enumerate(lines) if line.startswith("  recipe "))
    assert {line.index("words") for line in lines[recipe : recipe + 4]} == {36}
    assert max(map(len, lines)) <= 100
