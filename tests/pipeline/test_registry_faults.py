"""The registry under kills, rivals, damage, a full or read-only disk and a clock that jumps: never torn."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from small_disk import mounted

from pipeline.__main__ import command_code
from pipeline.registry import LocalRegistry
from steps.contract import ConfigError, StepError, mendable_error
from steps.contract.locks import FileLock

ROOT = Path(__file__).parents[2]
KILLS = 8
# Registers a model, or sets the status of a version back and forth, again and again; says when it is about to.
REGISTER = """
import sys
from pathlib import Path
from pipeline.registry import LocalRegistry
registry, model, wanted = LocalRegistry(Path(sys.argv[1])), Path(sys.argv[2]), sys.argv[3]
print("ready", flush=True)
if wanted == "register":
    version, is_new = registry.register(group="texts", model=model, metadata={}, metrics={}, request={})
    print(version.version, is_new, flush=True)
while wanted == "approve":
    registry.approve(1, "good")
    registry.reject(1, "not good")
"""


@pytest.fixture
def registry(tmp_path: Path) -> LocalRegistry:
    return LocalRegistry(tmp_path / "registry")


def make_model(folder: Path, seed: int = 0, files: int = 30, size_bytes: int = 20_000) -> Path:
    """Many files, so that a kill falls between two of them as well as within one."""
    folder.mkdir(parents=True)
    content = random.Random(seed)
    for number in range(files):
        (folder / f"model-{number:05d}.safetensors").write_bytes(content.randbytes(size_bytes))
    return folder


def register(registry: LocalRegistry, model: Path):
    return registry.register(group="texts", model=model, metadata={}, metrics={}, request={})[0]


def start(registry: LocalRegistry, model: Path, wanted: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", REGISTER, str(registry.folder), str(model), wanted]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def kill_after(process: subprocess.Popen[str], seconds: float) -> None:
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    process.communicate()


def leftovers(registry: LocalRegistry) -> list[Path]:
    return list(registry.folder.glob("*/.new-*"))


def test_a_kill_while_registering_leaves_one_whole_version_or_none(registry, tmp_path):
    model = make_model(tmp_path / "model", files=60)
    began = time.monotonic()
    register(LocalRegistry(tmp_path / "elsewhere"), model)
    whole = time.monotonic() - began
    torn = 0
    for number in range(KILLS):
        kill_after(start(registry, model, "register"), 1.3 * whole * number / KILLS)
        torn += bool(leftovers(registry))
        # What is listed is whole, and what is not done stands in nobody's way.
        for version in registry.list_versions():
            assert registry.show(version.version).status == "PendingManualApproval"
        assert registry.damaged() == []
    version = register(registry, model)
    print(f"{KILLS} kills, {torn} of them left a half-made version; versions {len(registry.list_versions())}")
    assert torn > 0
    assert [entry.version for entry in registry.list_versions()] == [1]
    assert leftovers(registry) == []
    for path in model.iterdir():
        assert (version.model_folder / path.name).read_bytes() == path.read_bytes()


def test_a_kill_while_approving_leaves_a_whole_history(registry, tmp_path):
    model = make_model(tmp_path / "model", files=1)
    register(registry, model)
    for number in range(4):
        kill_after(start(registry, model, "approve"), 0.02 + 0.01 * number)
        # Every entry is whole, and none was written over another.
        history = registry.show(1).approvals
        assert all(one.status != other.status for one, other in itertools.pairwise(history))
    assert len(history) > 4
    assert registry.approve(1, "good").status == "Approved"


def test_two_processes_that_register_one_model_make_one_version(registry, tmp_path):
    model, other = make_model(tmp_path / "model"), make_model(tmp_path / "other", seed=1)
    processes = [start(registry, folder, "register") for folder in (model, model, other)]
    said = [process.communicate(timeout=60)[0] for process in processes]
    assert sorted(text.split()[0] for text in said) in (["1", "1", "2"], ["1", "2", "2"])
    assert sorted(text.split()[1] for text in said) == ["False", "True", "True"]
    assert [entry.version for entry in registry.list_versions()] == [1, 2]


def test_approvals_at_the_same_time_are_all_kept(registry, tmp_path):
    register(registry, make_model(tmp_path / "model", files=1))

    def set_back_and_forth() -> None:
        for _ in range(5):
            registry.approve(1, "good")
            registry.reject(1, "not good")

    threads = [threading.Thread(target=set_back_and_forth) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    history = registry.show(1).approvals
    assert all(one.status != other.status for one, other in itertools.pairwise(history))
    numbers = sorted(int(path.stem) for path in (registry.folder / "texts" / "1" / "approvals").iterdir())
    assert numbers == list(range(1, len(history) + 1))


# --- damage -----------------------------------------------------------------------------------------------------------


def three_versions(registry: LocalRegistry, tmp_path: Path) -> list[Path]:
    models = [make_model(tmp_path / str(seed), seed, files=2, size_bytes=100) for seed in range(3)]
    for model in models:
        register(registry, model)
    return models


@pytest.mark.parametrize("damage", ["cut", "removed", "a folder", "another number", "no history"])
def test_a_damaged_version_stands_in_nobodys_way(registry, tmp_path, damage):
    models = three_versions(registry, tmp_path)
    folder = registry.folder / "texts" / "2"
    record = folder / "version.json"
    if damage == "cut":
        record.write_text(record.read_text()[:20])
    elif damage in ("removed", "a folder"):
        record.unlink()
        if damage == "a folder":
            record.mkdir()
    elif damage == "another number":
        record.write_text(json.dumps(json.loads(record.read_text()) | {"version": 7}))
    else:
        (folder / "approvals" / "000001.json").unlink()

    assert [entry.version for entry in registry.list_versions()] == [1, 3]
    assert [str(entry.folder) for entry in registry.damaged()] == [str(folder)]
    with pytest.raises(StepError) as caught:
        registry.show(2)
    print(caught.value)
    assert str(caught.value).startswith(f"{folder}: damaged model version (")
    assert registry.approve(1).status == "Approved"
    assert registry.approve(3).status == "Approved"
    assert registry.newest_approved("texts").version == 3
    # Its number is never given to another model.
    assert register(registry, models[1]).version == 4


def test_no_older_champion_takes_the_place_of_a_damaged_one(registry, tmp_path):
    three_versions(registry, tmp_path)
    registry.approve(1)
    registry.approve(2)
    folder = registry.folder / "texts" / "2"
    (folder / "version.json").write_text("{")
    with pytest.raises(StepError, match=f"{folder}: damaged model version"):
        registry.newest_approved("texts")
    (folder / "approvals" / "000001.json").write_text("{")
    with pytest.raises(StepError, match="damaged model version"):
        registry.newest_approved("texts")


@pytest.mark.parametrize("damage", ["cut", "changed", "missing"])
def test_a_registered_model_that_was_damaged_is_no_champion(registry, tmp_path, damage, capsys):
    three_versions(registry, tmp_path)
    registry.approve(3)
    file = registry.folder / "texts" / "3" / "model" / "model-00001.safetensors"
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:-1])
    elif damage == "changed":
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    else:
        file.unlink()
    with pytest.raises(StepError, match=r"champion: damaged model version .* or reject version 3"):
        registry.newest_approved("texts")
    for check, code in ((["--check"], 1), ([], 0 if damage == "changed" else 1)):
        shown = langadapt(capsys, "models", "show", "3", "--registry", str(registry.folder), *check)
        assert (shown[0], shown[1].startswith("error: damaged model: ")) == (code, bool(code))
    registry.reject(3, "damaged")
    assert registry.newest_approved("texts") is None


def langadapt(capsys, *arguments: str) -> tuple[int, str]:
    """Exit code and standard error of a command."""
    capsys.readouterr()
    code = command_code(list(arguments), as_json=False)
    return code, capsys.readouterr().err


# --- places -----------------------------------------------------------------------------------------------------------


def test_a_full_disk_leaves_the_versions_before_as_they_were(tmp_path):
    with mounted(tmp_path / "disk", 256) as disk:
        registry = LocalRegistry(disk.folder / "registry")
        first = register(registry, make_model(tmp_path / "first", files=2, size_bytes=60_000))
        registry.approve(1)
        before = {path: path.read_bytes() for path in (registry.folder / "texts" / "1").rglob("*") if path.is_file()}
        larger = make_model(tmp_path / "larger", seed=1, files=4, size_bytes=40_000)
        with pytest.raises(StepError, match=r"needs 160.0 kB for the model; limit \d+.\d kB free. Make space"):
            register(registry, larger)
        # Each file has room by its bytes, not by the pages and records that it takes.
        fitting = make_model(tmp_path / "fitting", seed=2, files=30, size_bytes=4_000)
        with pytest.raises(OSError) as caught:
            register(registry, fitting)
        print(mendable_error(caught.value, registry.folder))
        assert "No space left on device; limit " in str(mendable_error(caught.value, registry.folder))
        disk.fill()
        with pytest.raises(OSError) as caught:
            registry.reject(1, "bad")
        assert "No space left on device; limit 0 B free" in str(mendable_error(caught.value, registry.folder))

        assert leftovers(registry) == []
        assert [entry.status for entry in registry.list_versions()] == ["Approved"]
        assert {path: path.read_bytes() for path in before} == before
        assert registry.newest_approved("texts").model_folder == first.model_folder

        disk.clear()
        disk.resize(1_024)
        assert register(registry, larger).version == 2
        assert register(registry, fitting).version == 3


def test_a_read_only_registry_can_be_read(tmp_path, capsys):
    with mounted(tmp_path / "disk", 1_024) as disk:
        registry = LocalRegistry(disk.folder / "registry")
        register(registry, make_model(tmp_path / "model", files=1))
        disk.make_read_only(True)
        place = ("--registry", str(registry.folder))
        listed = langadapt(capsys, "models", "list", *place)
        shown = langadapt(capsys, "models", "show", "1", "--check", *place)
        code, errors = langadapt(capsys, "models", "approve", "1", *place)
        disk.make_read_only(False)
        assert (listed, shown) == ((0, ""), (0, ""))
        print(errors)
        assert (code, len(errors.splitlines())) == (1, 1)
        assert "Read-only file system. Name a place that can be written to." in errors
        assert registry.show(1).status == "PendingManualApproval"


# --- the clock --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0.0, -1e9, 4e9, 1e18])
def test_the_history_is_ordered_by_number_whatever_the_clock_said(registry, tmp_path, at, capsys):
    three_versions(registry, tmp_path)
    registry.approve(2)
    for path in registry.folder.glob("texts/2/approvals/000002.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"at": at}))
    for path in registry.folder.glob("texts/3/version.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"created_at": at}))
    assert registry.show(2).status == "Approved"
    assert [entry.version for entry in registry.list_versions()] == [1, 2, 3]
    assert registry.newest_approved("texts").version == 2
    registry.approve(3)
    assert registry.newest_approved("texts").version == 3
    assert registry.reject(2, "older").status == "Rejected"
    for command in (("list",), ("show", "2")):
        assert langadapt(capsys, "models", *command, "--registry", str(registry.folder)) == (0, "")


@pytest.mark.parametrize("group", ["..", ".", "", "a/b", "-texts", "ə", "x" * 64])
def test_no_group_leads_out_of_the_registry(registry, tmp_path, group):
    model = make_model(tmp_path / "model", files=1)
    with pytest.raises(ConfigError, match="ModelPackageGroupName: "):
        registry.register(group=group, model=model, metadata={}, metrics={}, request={})
    assert not registry.folder.exists()


def test_who_is_waited_for_and_whose_lock_is_taken_over_is_said(registry, tmp_path):
    said: list[str] = []
    told = LocalRegistry(registry.folder, said.append)
    model = make_model(tmp_path / "model", files=1)
    lock = registry.folder / "texts" / ".lock"
    lock.parent.mkdir(parents=True)
    # As a process leaves it that is killed while it writes.
    lock.write_text("4194304")
    assert register(told, model).version == 1
    assert said == [f"Process 4194304 ended while it wrote to the registry {lock.parent}: taking over."]

    said.clear()
    holder = FileLock(lock)
    holder.acquire()
    threading.Timer(1.0, holder.release).start()
    told.approve(1, "good")
    assert said == [f"Waiting for process {os.getpid()}, which writes to the registry {lock.parent}."]
