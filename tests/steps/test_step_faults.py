"""A full disk, no memory, unreadable inputs under a step: one line, exit code 1, nothing half-written that counts."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy
import pytest
import torch
from safetensors.torch import save_file
from small_disk import SmallDisk, mounted
from tokenizers import Tokenizer, models

from steps.contract import (
    EXIT_BUG,
    EXIT_DONE,
    EXIT_USER_ERROR,
    StepError,
    all_files,
    content_digest,
    mendable_error,
    read_seal,
    write_atomically,
)
from steps.contract.locks import FileLock
from steps.modeling.checkpoints import CheckpointStore
from steps.modeling.parallel import Processes

ROOT = Path(__file__).parents[2]
ALONE = Processes(rank=0, local_rank=0, world_size=1, device=torch.device("cpu"))
# A step that writes as many bytes as it is told, and may ask for memory that nobody has.
STEP = """
import sys
from steps.contract import Folder, StepConfig, run_step

class Settings(StepConfig):
    size: int = 0
    batch_tokens: int = 8
    memory: int = 0

def write(config, folders):
    bytearray(config.memory)
    with (folders.output / "content.bin").open("wb") as stream:
        for _ in range(0, config.size, 1_000):
            stream.write(bytes(1_000))
    return {"size": config.size}

sys.exit(run_step(write, Settings, [Folder("text", sealed=False, required=False)]))
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with mounted(tmp_path / "disk", 256) as small:
        yield small


@pytest.fixture
def step(tmp_path: Path) -> Path:
    path = tmp_path / "write_step.py"
    path.write_text(STEP)
    return path


def run_step(
    step: Path, *arguments: str, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, before=None, **variables: str
):
    """The step in a process of its own. before: called in that process before it becomes the step."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **variables}
    command = [sys.executable, str(step), *arguments]
    return subprocess.run(command, env=environment, stdout=stdout, stderr=stderr, preexec_fn=before)


def only_line(errors: bytes) -> str:
    (line,) = errors.decode().splitlines()
    return line


# --- the disk ---------------------------------------------------------------------------------------------------------


def write_text(folder: Path) -> None:
    with (folder / "text").open("w") as stream:
        stream.write("x" * 1_000_000)


def save_tokenizer(folder: Path) -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.add_tokens([f"token-{number}-of-many" for number in range(5_000)])
    tokenizer.save(str(folder / "tokenizer.json"))


def save_checkpoint(folder: Path) -> None:
    CheckpointStore(folder, "key", 2, ALONE).save(1, {"weight": torch.zeros(200_000)}, {})


WRITERS: dict[str, Callable[[Path], object]] = {
    "text": write_text,
    "atomically": lambda folder: write_atomically(folder / "file", bytes(1_000_000)),
    "copy": lambda folder: shutil.copy2(sys.modules["numpy"]._core._multiarray_umath.__file__, folder / "copy"),
    "npy": lambda folder: numpy.save(folder / "a.npy", numpy.zeros(200_000)),
    "npz": lambda folder: numpy.savez(folder / "a.npz", a=numpy.zeros(200_000)),
    "safetensors": lambda folder: save_file({"a": torch.zeros(200_000)}, folder / "a.safetensors"),
    "tokenizer": save_tokenizer,
    "checkpoint": save_checkpoint,
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_is_told_whatever_library_meets_it(name: str, disk: SmallDisk) -> None:
    with pytest.raises(Exception) as caught:
        WRITERS[name](disk.folder)
    fault = mendable_error(caught.value, disk.folder)
    assert fault is not None
    print(fault)
    assert str(fault).startswith(str(disk.folder))
    assert "of 262.1 kB. Make space, then give the same command again" in str(fault)


def test_what_is_no_fault_of_the_machine_is_none() -> None:
    def hidden() -> None:
        try:
            raise FileExistsError(17, "File exists", "x")
        except FileExistsError:
            raise AssertionError("our own mistake")  # noqa: B904

    for bug in (ValueError("x"), FileNotFoundError(2, "No such file", "x"), RuntimeError("shape mismatch")):
        assert mendable_error(bug) is None
    with pytest.raises(AssertionError) as caught:
        hidden()
    assert mendable_error(caught.value) is None


@pytest.mark.parametrize("kind", [FileExistsError, IsADirectoryError, NotADirectoryError])
def test_a_file_in_a_folders_place_is_the_users_fault_of_a_named_place_alone(tmp_path: Path, kind: type[OSError]):
    number = {FileExistsError: 17, IsADirectoryError: 21, NotADirectoryError: 20}[kind]
    place = tmp_path / "named" / "out"
    for path, is_users in ((place, True), (tmp_path, True), (place / "ours", False), (tmp_path / "other", False)):
        fault = mendable_error(kind(number, os.strerror(number), str(path)), place)
        assert (fault is not None) is is_users, path


def test_a_step_on_a_full_disk_ends_in_one_line_and_goes_on_after(disk: SmallDisk, step: Path) -> None:
    output = disk.folder / "out"
    ended = run_step(step, f"--output={output}", "--size=300000")
    line = only_line(ended.stderr)
    print(line)
    assert ended.returncode == EXIT_USER_ERROR
    assert line.startswith(f"error: {output}: No space left on device; limit 0 B free of 262.1 kB. Make space")
    assert not (output / "manifest.json").exists()

    disk.resize(512)
    assert run_step(step, f"--output={output}", "--size=300000").returncode == EXIT_DONE
    assert list(read_seal(output).files) == ["content.bin"]


def test_the_seal_that_finds_no_place_leaves_an_unfinished_folder(disk: SmallDisk, step: Path) -> None:
    output = disk.folder / "out"
    # The content fits to the last page, its seal does not.
    ended = run_step(step, f"--output={output}", f"--size={disk.free_bytes // 4_096 * 4_096}")
    assert (ended.returncode, (output / "manifest.json").exists()) == (EXIT_USER_ERROR, False)
    assert only_line(ended.stderr).startswith(f"error: {output}")
    assert run_step(step, f"--output={output}", "--size=1000").returncode == EXIT_DONE


def test_the_message_is_left_although_the_log_and_its_disk_are_full(disk: SmallDisk, step: Path) -> None:
    message = disk.folder / "error.json"
    # As launch.py keeps room for it.
    message.write_bytes(b" " * 4_096)
    with (disk.folder / "log.txt").open("wb") as log:
        disk.fill()
        variables = {"LANGADAPT_ERROR_FILE": str(message)}
        ended = run_step(step, f"--output={disk.folder / 'out'}", "--size=300000", stderr=log, **variables)
    left = json.loads(message.read_text())
    assert (ended.returncode, left["exit_code"]) == (EXIT_USER_ERROR, EXIT_USER_ERROR)
    assert "No space left on device" in left["line"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_what_is_sealed_is_done_although_the_log_is_full(tmp_path: Path, step: Path) -> None:
    with Path("/dev/full").open("wb") as log:
        ended = run_step(step, f"--output={tmp_path / 'out'}", "--size=1000", stdout=log)
    assert (ended.returncode, ended.stderr) == (EXIT_DONE, b"")
    assert list(read_seal(tmp_path / "out").files) == ["content.bin"]


def test_a_limit_of_file_sizes_is_told_as_well(tmp_path: Path, step: Path) -> None:
    """The same without a file system of one's own: the system refuses the write itself."""
    output = tmp_path / "out"

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    ended = run_step(step, f"--output={output}", "--size=300000", before=limit)
    line = only_line(ended.stderr)
    assert (ended.returncode, line.split(". ")[0]) == (EXIT_USER_ERROR, f"error: {output}: File too large")
    assert run_step(step, f"--output={output}", "--size=300000").returncode == EXIT_DONE


def test_a_refused_checkpoint_leaves_the_one_before(disk: SmallDisk) -> None:
    store = CheckpointStore(disk.folder, "key", 2, ALONE)
    state = {"weight": torch.ones(30_000)}
    store.save(1, state, {"step": 1})
    with pytest.raises(StepError, match=r"step-00000002.* free of 262.1 kB") as caught:
        store.save(2, state, {"step": 2})
    print(caught.value)
    assert store.latest() == 1
    assert [path.name for path in (disk.folder / "key").iterdir()] == ["step-00000001"]

    disk.resize(512)
    store.save(2, state, {"step": 2})
    assert store.latest() == 2
    read = {"weight": torch.zeros(30_000)}
    store.load(2, read)
    assert torch.equal(read["weight"], state["weight"])


# --- memory -----------------------------------------------------------------------------------------------------------


def test_no_memory_is_told_with_what_to_lower(tmp_path: Path, step: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))

    arguments = (f"--output={tmp_path / 'out'}", "--size=1000")
    ended = run_step(step, *arguments, f"--memory={8 << 30}", before=limit)
    line = only_line(ended.stderr)
    print(line)
    assert ended.returncode == EXIT_USER_ERROR
    assert line.startswith("error: memory: none left (MemoryError); limit 4.3 GB. ")
    assert line.endswith("Lower batch_tokens, or use a machine with more memory.")
    assert run_step(step, *arguments).returncode == EXIT_DONE


def test_the_words_of_libraries_for_no_memory_are_known() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 50, dtype=torch.uint8)
    assert str(mendable_error(caught.value, settings=["seed", "batch_tokens"])).startswith("memory: none left")
    with pytest.raises(MemoryError) as refused:
        numpy.zeros(1 << 50)
    assert "Use a machine with more memory" in str(mendable_error(refused.value))
    gpu = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 79 GiB.")
    assert str(mendable_error(gpu)).startswith("memory: none left (CUDA out of memory.")


# --- inputs that cannot be read ---------------------------------------------------------------------------------------


def as_nobody(function: Callable[..., object], *arguments: object) -> object:
    """What the function gives, or the line of its fault, in a process of a user without rights."""

    def work(pipe) -> None:
        os.setgroups([])
        os.setgid(65_534)
        os.setuid(65_534)
        try:
            pipe.send(function(*arguments))
        except Exception as error:
            pipe.send(str(mendable_error(error)))

    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=work, args=(sender,))
    process.start()
    process.join(20)
    return receiver.recv() if receiver.poll(0) else "no answer"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user without rights")
def test_files_and_folders_without_rights_are_named() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "sub").mkdir()
        (folder / "sub" / "a.txt").write_text("text")
        assert as_nobody(content_digest, folder) == content_digest(folder)
        (folder / "sub" / "a.txt").chmod(0o000)
        remedy = "Permission denied. Give this user the right to it, or name another place."
        assert as_nobody(content_digest, folder) == f"{folder}/sub/a.txt: {remedy}"
        (folder / "sub" / "a.txt").chmod(0o644)
        # Neither is passed over as if it were empty: a folder that cannot be listed, one that cannot be entered.
        for mode in (0o311, 0o644):
            (folder / "sub").chmod(mode)
            assert f"{folder}/sub" in str(as_nobody(content_digest, folder))
            assert remedy in str(as_nobody(content_digest, folder))


def test_links_are_followed_and_those_to_nothing_or_in_a_ring_are_named(tmp_path: Path) -> None:
    corpus, elsewhere = tmp_path / "corpus", tmp_path / "elsewhere"
    corpus.mkdir()
    elsewhere.mkdir()
    (elsewhere / "b.txt").write_text("b")
    (corpus / "a.txt").write_text("a")
    (corpus / "more").symlink_to(elsewhere)
    # As an editor marks a file that it has open.
    (corpus / ".#a.txt").symlink_to("somebody@machine.1234")
    assert all_files(corpus) == ["a.txt", "more/b.txt"]

    (elsewhere / "ring").symlink_to(corpus)
    with pytest.raises(StepError, match="a link back to a folder above it"):
        all_files(corpus)
    (elsewhere / "ring").unlink()
    (elsewhere / "itself").symlink_to(elsewhere / "itself")
    with pytest.raises(StepError, match="a link that leads to itself"):
        all_files(corpus)
    (elsewhere / "itself").unlink()
    (corpus / "gone.txt").symlink_to(tmp_path / "nothing")
    with pytest.raises(StepError, match=r"gone.txt: a link to nothing. Remove the link"):
        content_digest(corpus)


def test_pipes_and_devices_do_not_hang(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "a.txt").write_text("a")
    before = content_digest(corpus)
    os.mkfifo(corpus / "pipe.txt")
    assert content_digest(corpus) == before
    for path in (corpus / "pipe.txt", Path("/dev/zero")):
        with pytest.raises(StepError, match="neither a file nor a folder"):
            content_digest(path)


def test_a_file_that_cannot_be_written_is_named_by_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "a.json").mkdir()
    with pytest.raises(IsADirectoryError) as caught:
        write_atomically(tmp_path / "a.json", "{}")
    line = f"{tmp_path / 'a.json'}: Is a directory. Remove the folder that stands in the place of a file."
    assert str(mendable_error(caught.value)) == line
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]

    with pytest.raises(StepError, match=r"^/proc/none/below: cannot be made there\."):
        write_atomically(Path("/proc/none/below/a.json"), "{}")
    with pytest.raises(StepError, match=r"^/proc/none: cannot be made there\."):
        FileLock(Path("/proc/none/.lock")).acquire()


def test_a_read_only_disk_is_named_by_the_file_that_was_to_be_written(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", 64) as disk:
        disk.make_read_only(True)
        with pytest.raises(OSError) as caught:
            write_atomically(disk.folder / "a.json", "{}")
        told = str(mendable_error(caught.value))
        assert told == f"{disk.folder / 'a.json'}: Read-only file system. Name a place that can be written to."


def test_a_step_says_of_a_folder_without_rights_what_it_is(tmp_path: Path, step: Path) -> None:
    """A place that is a file, and a bug, beside it: only the first is the user's."""
    (tmp_path / "file").write_text("")
    ended = run_step(step, f"--output={tmp_path / 'file' / 'out'}")
    assert (ended.returncode, only_line(ended.stderr).split(". ")[0]) == (
        EXIT_USER_ERROR, f"error: {tmp_path / 'file' / 'out'}: Not a directory",
    )  # fmt: skip
    step.write_text(STEP.replace("bytearray(config.memory)", "{}['missing']"))
    ended = run_step(step, f"--output={tmp_path / 'out'}")
    assert (ended.returncode, ended.stderr.decode().splitlines()[-1]) == (EXIT_BUG, "KeyError: 'missing'")
