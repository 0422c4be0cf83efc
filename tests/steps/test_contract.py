"""The contract: settings from texts, seals that hold, errors of one line, exit codes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy
import pydantic
import pytest
from safetensors.numpy import save_file

from steps.configs.fine_tune import FineTuneConfig
from steps.configs.prepare_corpus import PrepareCorpusConfig
from steps.configs.train_tokenizer import TrainTokenizerConfig
from steps.contract import (
    CODE_DIGEST_VARIABLE,
    ERROR_FILE_VARIABLE,
    EXIT_BUG,
    EXIT_DONE,
    EXIT_TERMINATED,
    EXIT_USER_ERROR,
    ConfigError,
    Folder,
    StepConfig,
    StepError,
    StepFolders,
    config_arguments,
    content_digest,
    parse_config,
    read_seal,
    run_step,
    seal,
    write_atomically,
)


class Settings(StepConfig):
    """Of the little steps in this file."""

    number: int = 1
    share: float = 0.5
    sizes: tuple[int, ...] = ()
    name: str | None = None


def write_number(config: Settings, folders: StepFolders) -> dict[str, float]:
    """A step of one file."""
    (folders.output / "sub").mkdir()
    (folders.output / "sub" / "number.txt").write_text(str(config.number))
    return {"number": config.number, "share": config.share}


def run(output: Path, *arguments: str, step=write_number, folders: tuple[Folder, ...] = ()) -> int:
    return run_step(step, Settings, folders, arguments=[f"--output={output}", *arguments])


def test_settings_survive_the_way_through_texts() -> None:
    for config in (
        PrepareCorpusConfig(test_share=0.125, repair_homoglyphs=False, corpus_digest="a=b c"),
        TrainTokenizerConfig(vocabulary_sizes=(640, 704), chosen="bbpe-640"),
        FineTuneConfig(target_modules=("q_proj",), learning_rate=1e-5),
    ):
        texts = config_arguments(config)
        assert all(isinstance(text, str) for text in texts.values())
        assert parse_config(type(config), texts) == config


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--numbr=2"], "numbr: '2'"),
        (["--numbr=2"], "Did you mean number?"),
        (["--number=two"], "number: 'two'"),
        (["--share=nan"], "share"),
        (["--sizes=[1,"], "sizes: [1,; limit a JSON list"),
        (["--sizes=1,2"], "sizes: 1,2; limit a JSON list. Write it as [1, 2]"),
        (["number=2"], "number=2: not understood"),
        (["--number"], "--number: has no value"),
    ],
)
def test_bad_arguments_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture, arguments: list[str], words: str
) -> None:
    assert run(tmp_path / "out", *arguments) == EXIT_USER_ERROR
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert words in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_finished_step_is_sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CODE_DIGEST_VARIABLE, "c" * 64)
    assert run(tmp_path / "out", "--number", "7", "--name=null") == EXIT_DONE
    manifest = read_seal(tmp_path / "out")
    assert (manifest.step, manifest.code_sha256) == ("test_contract", "c" * 64)
    assert manifest.config == {"number": 7, "share": 0.5, "sizes": [], "name": None}
    assert list(manifest.files) == ["sub/number.txt"]
    assert manifest.files["sub/number.txt"].bytes == 1
    assert manifest.metrics == {"number": 7, "share": 0.5}
    assert manifest.peak_memory_bytes > 1_000_000
    assert not (tmp_path / "out" / ".unfinished").exists()


def test_the_digest_holds_content_alone(tmp_path: Path) -> None:
    assert run(tmp_path / "a") == run(tmp_path / "deeper" / "b") == EXIT_DONE
    assert content_digest(tmp_path / "a") == content_digest(tmp_path / "deeper" / "b")
    assert run(tmp_path / "c", "--number=2") == EXIT_DONE
    assert content_digest(tmp_path / "a") != content_digest(tmp_path / "c")


@pytest.mark.parametrize("damage", ["shorter", "other", "missing", "no seal"])
def test_a_damaged_folder_is_never_read(tmp_path: Path, capsys: pytest.CaptureFixture, damage: str) -> None:
    assert run(tmp_path / "in") == EXIT_DONE
    file = tmp_path / "in" / "sub" / "number.txt"
    if damage == "shorter":
        file.write_text("")
    elif damage == "other":
        file.write_text("9")
    elif damage == "missing":
        file.unlink()
    else:
        (tmp_path / "in" / "manifest.json").unlink()
    assert run(tmp_path / "out", f"--before={tmp_path / 'in'}", folders=(Folder("before"),)) == EXIT_USER_ERROR
    assert str(tmp_path / "in") in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def clocked(config: Settings, folders: StepFolders) -> dict[str, float]:
    """A step that tells how it went: each run another number."""
    (folders.output / "result.txt").write_text("the same")
    (folders.output / "report.json").write_text(str(config.number))
    return {}


def test_reports_are_sealed_but_no_content(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    for number in (1, 2):
        arguments = [f"--output={tmp_path / str(number)}", f"--number={number}"]
        assert run_step(clocked, Settings, [], reports=("report.json",), arguments=arguments) == EXIT_DONE
    first, second = (read_seal(tmp_path / str(number)) for number in (1, 2))
    assert first.reports == ["report.json"]
    assert first.files["report.json"] != second.files["report.json"]
    assert first.content_digest == second.content_digest
    assert content_digest(tmp_path / "1") == content_digest(tmp_path / "2") == first.content_digest
    (tmp_path / "1" / "report.json").write_text("3")
    assert run(tmp_path / "out", f"--before={tmp_path / '1'}", folders=(Folder("before"),)) == EXIT_USER_ERROR
    assert "report.json: content differs from its seal" in capsys.readouterr().err


def test_a_manifest_of_somebody_else_is_content(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("a")
    digests = [content_digest(tmp_path / "in")]
    for foreign in ('{"name": "my extension"}', "no JSON"):
        (tmp_path / "in" / "manifest.json").write_text(foreign)
        folder = Folder("given", sealed=False)
        assert run(tmp_path / f"out{len(digests)}", f"--given={tmp_path / 'in'}", folders=(folder,)) == EXIT_DONE
        digests.append(read_seal(tmp_path / f"out{len(digests)}").inputs["given"])
    assert len(set(digests)) == 3


def test_what_was_added_to_a_sealed_folder_counts_where_a_user_gives_it(tmp_path: Path) -> None:
    assert run(tmp_path / "in") == EXIT_DONE
    before = content_digest(tmp_path / "in")
    (tmp_path / "in" / "more.txt").write_text("more")
    assert content_digest(tmp_path / "in") != before


def test_only_a_step_that_shares_its_work_is_one_of_several(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert run(tmp_path / "out", "--instance_index=0", "--instance_count=2") == EXIT_USER_ERROR
    assert "instance_count: 2; limit 1. Give this step one instance" in capsys.readouterr().err
    arguments = [f"--output={tmp_path / 'out'}", "--instance_index=1", "--instance_count=2"]
    assert run_step(write_number, Settings, [], shares_work=True, arguments=arguments) == EXIT_DONE
    assert (tmp_path / "out" / "manifest.part-00001-of-00002.json").is_file()


def test_a_folder_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("mine")
    assert run(tmp_path / "out") == EXIT_USER_ERROR
    assert (tmp_path / "out" / "thesis.txt").read_text() == "mine"


def test_what_a_killed_attempt_left_is_cleared(tmp_path: Path) -> None:
    (tmp_path / "out" / "sub").mkdir(parents=True)
    (tmp_path / "out" / ".unfinished").touch()
    (tmp_path / "out" / "half").write_text("half")
    assert run(tmp_path / "out") == EXIT_DONE
    assert not (tmp_path / "out" / "half").exists()


def weights(config: Settings, folders: StepFolders) -> dict[str, float]:
    """A step that saves a model."""
    (folders.output / "below").mkdir()
    for name in ("model.safetensors", "below/adapter_model.safetensors"):
        save_file({"weight": numpy.ones(2)}, folders.output / name)
    return {}


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600)])
def test_who_may_read_other_files_may_read_weights(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        assert run(tmp_path / "out", step=weights) == EXIT_DONE
    finally:
        os.umask(before)
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {mode}
    assert len(files) == 3


def test_part_seals_must_be_complete(tmp_path: Path) -> None:
    for instance in range(2):
        (tmp_path / f"{instance}.txt").write_text(str(instance))
        folders = StepFolders(tmp_path, instance_index=instance, instance_count=3)
        seal(folders, "step", Settings(), {}, 1.0)
    with pytest.raises(StepError, match="2 part seals; limit exactly 3"):
        read_seal(tmp_path)


def not_finite(config: Settings, folders: StepFolders) -> dict[str, float]:
    """A step that measured nothing."""
    return {"loss": float("nan")}


def test_a_number_that_is_not_finite_is_no_result(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert run(tmp_path / "out", step=not_finite) == EXIT_USER_ERROR
    assert "loss: nan; limit a finite number" in capsys.readouterr().err
    assert not (tmp_path / "out" / "manifest.json").exists()


def our_bug(config: Settings, folders: StepFolders) -> dict[str, float]:
    """A step with a bug."""
    raise ZeroDivisionError("no")


def test_a_bug_keeps_its_traceback(tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch) -> None:
    monkeypatch.setenv(ERROR_FILE_VARIABLE, str(tmp_path / "error.json"))
    assert run(tmp_path / "out", step=our_bug) == EXIT_BUG
    assert "Traceback" in capsys.readouterr().err
    assert json.loads((tmp_path / "error.json").read_text()) == {
        "line": "error: ZeroDivisionError: no",
        "exit_code": EXIT_BUG,
    }


def test_sigterm_is_143(tmp_path: Path) -> None:
    program = (
        "import sys, time\n"
        "from steps.contract import StepConfig, run_step\n"
        "def wait(config, folders):\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(60)\n"
        f"sys.exit(run_step(wait, StepConfig, [], arguments=['--output={tmp_path / 'out'}']))\n"
    )
    environment = {**os.environ, ERROR_FILE_VARIABLE: str(tmp_path / "error.json")}
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == EXIT_TERMINATED
    assert json.loads((tmp_path / "error.json").read_text())["exit_code"] == EXIT_TERMINATED


def test_help_names_every_setting_and_folder(capsys: pytest.CaptureFixture) -> None:
    assert run_step(write_number, Settings, [Folder("corpus")], arguments=["--help"]) == EXIT_DONE
    shown = capsys.readouterr().out
    assert all(f"--{name}" in shown for name in ("number", "share", "sizes", "name", "corpus", "output"))


def test_configs_are_frozen_and_refuse_unknown_fields() -> None:
    with pytest.raises(pydantic.ValidationError):
        Settings(unknown=1)  # type: ignore[call-arg]
    with pytest.raises(pydantic.ValidationError):
        Settings().number = 2  # type: ignore[misc]


def test_writing_is_whole_or_nothing(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a.txt", "before")
    with pytest.raises(TypeError):
        write_atomically(tmp_path / "a.txt", None)  # type: ignore[arg-type]
    assert (tmp_path / "a.txt").read_text() == "before"


def test_errors_are_one_line() -> None:
    error = ConfigError("a.b", "one\ntwo", limit=3, remedy="Do\nthis.")
    assert str(error) == "a.b: one two; limit 3. Do this."
    assert str(ConfigError("a", "\ud83d", remedy="b")) == r"a: \ud83d. b"
