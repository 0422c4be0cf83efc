"""The launcher against /opt/ml trees that no job of ours has: one line in the right file, exit code 1, no traceback."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from container_tree import STEP, Container

ROOT = Path(__file__).parents[2]
CONFIGURATION = "input/config"
HYPERPARAMETERS = f"{CONFIGURATION}/hyperparameters.json"
RESOURCES = f"{CONFIGURATION}/resourceconfig.json"
CHANNELS = f"{CONFIGURATION}/inputdataconfig.json"
JOB = "config/processingjobconfig.json"
# All trees are launched in one process: starting Python takes longer than what is tested.
DRIVER = """
import contextlib, io, json, os, sys
from containers.launch import main
ends = {}
for name, (root, arguments) in json.load(sys.stdin).items():
    os.environ["OPT_ML"] = root
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        code = main(arguments)
    ends[name] = [code, errors.getvalue()]
print(json.dumps(ends))
"""


@dataclass
class Case:
    """spoil: what is done to a tree that is whole. expected: a part of the line. kind: the job's, that says where."""

    spoil: Callable[[Container], object]
    expected: str
    kind: str = "training"
    arguments: tuple[str, ...] = ()


def text(path: str, content: str | bytes) -> Callable[[Container], object]:
    def spoil(tree: Container) -> None:
        (tree.root / path).write_bytes(content if isinstance(content, bytes) else content.encode())

    return spoil


def value(path: str, **changes) -> Callable[[Container], object]:
    """Changes to an object in a file; None takes a key away."""

    def spoil(tree: Container) -> None:
        changed = {**tree.read(path), **changes}
        tree.write(path, {key: new for key, new in changed.items() if new is not None})

    return spoil


def gone(path: str) -> Callable[[Container], object]:
    def spoil(tree: Container) -> None:
        whole = tree.root / path
        shutil.rmtree(whole) if whole.is_dir() else whole.unlink()

    return spoil


def archive(content: bytes | Callable[[zipfile.ZipFile], object], name: str | None = None) -> Callable:
    """Another archive in place of the step's, named by its own sha256."""

    def spoil(tree: Container) -> None:
        folder = tree.root / "input/data/code"
        gone("input/data/code")(tree)
        folder.mkdir()
        file = folder / "archive"
        if isinstance(content, bytes):
            file.write_bytes(content)
        else:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as bundle:
                content(bundle)
        file.rename(folder / f"{name or hashlib.sha256(file.read_bytes()).hexdigest()}.zip")

    return spoil


def link(bundle: zipfile.ZipFile) -> None:
    member = zipfile.ZipInfo("steps/tiny.py")
    member.external_attr = 0o120777 << 16
    bundle.writestr(member, "/etc/passwd")


def inputs(*entries, outputs=({"OutputName": "output", "S3Output": {"LocalPath": "/opt/ml/processing/output"}},)):
    return value(JOB, ProcessingInputs=list(entries), ProcessingOutputConfig={"Outputs": list(outputs)})


def at(name: str, path: str) -> dict:
    return {"InputName": name, "S3Input": {"LocalPath": path}}


def file_in_place_of(path: str) -> Callable[[Container], object]:
    def spoil(tree: Container) -> None:
        gone(path)(tree)
        (tree.root / path).write_text("")

    return spoil


def unwritable(tree: Container) -> None:
    (tree.root / "model").rmdir()
    # Nobody makes a file there, root neither.
    (tree.root / "model").symlink_to("/proc/self")


def nothing(tree: Container) -> None:
    shutil.rmtree(tree.root)
    tree.root.mkdir()


PROCESSING = {"kind": "processing", "arguments": ("--step=tiny",)}
CASES = {
    "an empty tree": Case(nothing, "hyperparameters.json: missing. Start this inside a job."),
    "an empty tree with a command line": Case(
        nothing, "processingjobconfig.json: missing. Start this inside a job.", **PROCESSING
    ),
    "no hyperparameters": Case(gone(HYPERPARAMETERS), "hyperparameters.json: missing"),
    "no resources": Case(gone(RESOURCES), "resourceconfig.json: missing"),
    "no channels": Case(gone(CHANNELS), "inputdataconfig.json: missing"),
    "an empty file": Case(text(HYPERPARAMETERS, ""), "hyperparameters.json: empty. Correct the job."),
    "a truncated file": Case(text(RESOURCES, '{"hosts": ["algo'), "resourceconfig.json: no JSON ("),
    "no JSON": Case(text(CHANNELS, "blocks: here"), "inputdataconfig.json: no JSON ("),
    "invalid UTF-8": Case(text(HYPERPARAMETERS, b'{"step": "\xff"}'), "hyperparameters.json: byte 10 is no UTF-8."),
    "nested too deeply": Case(text(HYPERPARAMETERS, "[" * 100_000), "hyperparameters.json: no JSON (maximum recursion"),
    "a folder for a file": Case(
        lambda tree: (gone(RESOURCES)(tree), (tree.root / RESOURCES).mkdir()), "resourceconfig.json: no file"
    ),
    "a list for an object": Case(text(HYPERPARAMETERS, "[1, 2]"), "hyperparameters.json: [1, 2]; limit an object."),
    "null for an object": Case(text(RESOURCES, "null"), "resourceconfig.json: None; limit an object."),
    "a name twice": Case(text(CHANNELS, '{"code": {}, "code": {}}'), "inputdataconfig.json: no JSON ('code' twice)"),
    "hosts without the current one": Case(
        value(RESOURCES, hosts=["algo-2"]), "current_host: 'algo-1'; limit one of ['algo-2']."
    ),
    "no current host": Case(value(RESOURCES, current_host=None), "current_host: missing."),
    "a current host that is a number": Case(value(RESOURCES, current_host=1), "current_host: 1; limit a text."),
    "hosts twice": Case(value(RESOURCES, hosts=["algo-1", "algo-1"]), "limit each name once."),
    "no hosts": Case(value(RESOURCES, hosts=[]), "hosts: []; limit a list of names."),
    "hosts that are a text": Case(value(RESOURCES, hosts="algo-1"), "hosts: 'algo-1'; limit a list."),
    "hosts that are numbers": Case(value(RESOURCES, hosts=[1, 2]), "hosts: [1, 2]; limit a list of names."),
    "an interface that is a list": Case(
        value(RESOURCES, network_interface_name=["lo"]), "network_interface_name: ['lo']; limit a text."
    ),
    "a hyperparameter that is a number": Case(value(HYPERPARAMETERS, rate=0.1), "rate: 0.1; limit a text."),
    "a hyperparameter that is a flag": Case(value(HYPERPARAMETERS, **{"--help": "1"}), "name: '--help'; limit letters"),
    "a hyperparameter with a space": Case(value(HYPERPARAMETERS, **{"a b": "1"}), "name: 'a b'; limit letters"),
    "a hyperparameter that is a folder": Case(value(HYPERPARAMETERS, output="/tmp"), "output is a folder of this job"),
    "a hyperparameter that is a folder by another name": Case(
        lambda tree: (value(CHANNELS, **{"a-b": {}})(tree), value(HYPERPARAMETERS, a_b="/tmp")(tree)),
        "a_b is a folder of this job",
    ),
    "a hyperparameter with a NUL": Case(value(HYPERPARAMETERS, text="a\0b"), "'a\\x00b'; limit characters that a comm"),
    "half a character": Case(
        text(HYPERPARAMETERS, '{"text": "\\ud800"}'), "'\\ud800'; limit characters that a command"
    ),
    "a name with half a character": Case(
        text(CHANNELS, '{"\\udfff": {}}'), "'\\udfff'; limit characters that a command"
    ),
    "a number of 5,000 digits": Case(text(HYPERPARAMETERS, "9" * 5_000), "hyperparameters.json: no JSON (Exceeds the"),
    "a host with a number of 5,000 digits": Case(
        value(RESOURCES, hosts=["algo-2", f"algo-{'9' * 5_000}"]), "current_host: 'algo-1'; limit one of"
    ),
    "a step that is a number": Case(value(HYPERPARAMETERS, step=7), "step: 7; limit a module's name."),
    "no step": Case(value(HYPERPARAMETERS, step=None), "step: None; limit a module's name."),
    "an unknown step": Case(value(HYPERPARAMETERS, step="no_such"), "step: no_such; limit a step whose code is in"),
    "a step outside": Case(value(HYPERPARAMETERS, step="../tiny"), "step: '../tiny'; limit a module's name."),
    "no code": Case(value(CHANNELS, code=None), "code: no input of this name."),
    "code without an archive": Case(
        lambda tree: (gone("input/data/code")(tree), (tree.root / "input/data/code").mkdir()), "code: 0 archives in "
    ),
    "two archives": Case(text("input/data/code/second.zip", b""), "code: 2 archives in "),
    "a tampered archive": Case(
        archive(lambda bundle: bundle.writestr("steps/tiny.py", STEP), "0" * 64), "0.zip has the sha256 "
    ),
    "no zip": Case(archive(b"not a zip"), "cannot be unpacked: File is not a zip file."),
    "a damaged zip": Case(archive(b"PK\x05\x06" + b"\xff" * 18), "cannot be unpacked: "),
    "a zip bomb": Case(
        archive(lambda bundle: bundle.writestr("steps/tiny.py", bytes(65 * 1024 * 1024))),
        "limit 67108864 bytes unpacked",
    ),
    "a link in the archive": Case(archive(link), "holds 'steps/tiny.py'; limit paths inside it."),
    "a file that is a folder": Case(
        archive(lambda bundle: (bundle.writestr("steps", ""), bundle.writestr("steps/tiny.py", ""))),
        "cannot be unpacked: ",
    ),
    "a member with a name that no disk takes": Case(
        archive(lambda bundle: bundle.writestr(f"steps/{'x' * 300}.py", "")), "cannot be unpacked: [Errno 36] File name"
    ),
    "a folder where the step's progress goes": Case(
        lambda tree: (tree.root / "progress").mkdir(), "progress: Is a directory. Remove what is in the way, then run"
    ),
    "a folder where the step's error goes": Case(
        lambda tree: (tree.root / "error.json").mkdir(), "error.json: Is a directory. Remove what is in the way, then"
    ),
    "an output that is a file": Case(file_in_place_of("model"), "model is a file; limit a folder."),
    "an output that cannot be written": Case(unwritable, "limit a folder that can be written."),
    "no description of a processing job": Case(gone(JOB), "processingjobconfig.json: missing", **PROCESSING),
    "no hosts of a processing job": Case(
        gone("config/resourceconfig.json"), "config/resourceconfig.json: missing", **PROCESSING
    ),
    "inputs that are an object": Case(
        value(JOB, ProcessingInputs={"code": {}}), "ProcessingInputs: {'code': {}}; limit a list.", **PROCESSING
    ),
    "an input that is a text": Case(inputs("code"), "S3Input: 'code'; limit an object.", **PROCESSING),
    "an input without a name": Case(
        inputs({"S3Input": {"LocalPath": "/opt/ml/processing/x"}}), "InputName: missing.", **PROCESSING
    ),
    "an input without a place": Case(inputs({"InputName": "code", "S3Input": {}}), "LocalPath: missing.", **PROCESSING),
    "an input twice": Case(
        inputs(at("code", "/opt/ml/processing/a"), at("code", "/opt/ml/processing/b")),
        "InputName: code twice",
        **PROCESSING,
    ),
    "an output named like an input": Case(
        inputs(at("output", "/opt/ml/processing/a")), "OutputName: output twice", **PROCESSING
    ),
    "an input that is a flag": Case(inputs(at("--help", "/opt/ml/processing/a")), "name: '--help'", **PROCESSING),
    "a path outside": Case(inputs(at("code", "/etc")), "local path: /etc; limit below /opt/ml.", **PROCESSING),
    "a path that leaves": Case(inputs(at("code", "/opt/ml/../../etc")), "limit below /opt/ml.", **PROCESSING),
    "a path of the launcher's own": Case(inputs(at("code", "/opt/ml/code")), "the launcher unpacks", **PROCESSING),
    "a processing job that asks for help": Case(
        lambda tree: None, "arguments: --help; limit settings", "processing", ("--step=tiny", "--help")
    ),
    "a processing job that names its output": Case(
        lambda tree: None, "--output is a folder of this job", "processing", ("--step=tiny", "--output=/tmp")
    ),
    "a processing job that names an input in two words": Case(
        lambda tree: None, "--corpus is a folder of this job", "processing", ("--step=tiny", "--corpus", "/tmp")
    ),
    "a processing job with two steps": Case(
        lambda tree: None, "step: tiny, other; limit one.", "processing", ("--step=tiny", "--step=other")
    ),
    "a processing job without a step": Case(lambda tree: None, "step: None", "processing", ("--rate=1",)),
    "a processing output that is a file": Case(
        file_in_place_of("processing/output"), "output is a file; limit a folder.", **PROCESSING
    ),
    "a place for messages that is a file": Case(
        lambda tree: (text("output", "")(tree), gone(HYPERPARAMETERS)(tree)), "hyperparameters.json: missing"
    ),
}


@pytest.fixture(scope="module")
def ends(tmp_path_factory) -> dict:
    """Exit code, standard error and tree of each case."""
    trees = {}
    for name, case in CASES.items():
        tree = Container(tmp_path_factory.mktemp("tree"))
        tree.processing() if case.kind == "processing" else tree.training()
        case.spoil(tree)
        trees[name] = tree
    wanted = {name: [str(tree.root), CASES[name].arguments] for name, tree in trees.items()}
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", DRIVER], input=json.dumps(wanted), env=environment, capture_output=True, text=True,
        timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {name: (*end, trees[name].root) for name, end in json.loads(done.stdout).items()}


@pytest.mark.parametrize("name", CASES)
def test_one_line_in_the_right_file(ends, name):
    case, (code, errors, root) = CASES[name], ends[name]
    assert code == 1
    assert errors.startswith("error: ")
    assert errors.count("\n") == 1
    assert case.expected in errors
    written, other = ("message", "failure") if case.kind == "processing" else ("failure", "message")
    if (root / "output").is_file():
        # There is no place for it: the exit code and the log tell.
        return
    assert (root / "output" / written).read_text() == errors.strip()[:1_024]
    assert not (root / "output" / other).exists()
