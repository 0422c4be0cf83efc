"""The contract between the DAG and a step: one flat config and named folders in, one sealed folder out.

A step module ends with

    if __name__ == "__main__":
        folders = [Folder("corpus"), Folder("base_model", sealed=False)]
        sys.exit(run_step(train_tokenizer, TrainTokenizerConfig, folders))

and is run as

    python -m steps.train_tokenizer --corpus DIR --base_model DIR --output DIR [--vocabulary_sizes=[4096,8192]]

`run_step` parses the command line, checks the seals of the input folders, calls the step's function as
`function(config, folders)`, and seals the output folder with manifest.json, written last and atomically. The
function returns its headline metrics, a flat dict of finite numbers and short texts.

Exit codes: 0 done; 1 user error; 2 gate closed (the executor's); 70 our bug; 130 interrupted; 143 stopped by SIGTERM.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import math
import os
import platform
import resource
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, get_args

import pydantic

EXIT_DONE = 0
EXIT_USER_ERROR = 1
EXIT_GATE_CLOSED = 2
EXIT_BUG = 70
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143

MANIFEST_NAME = "manifest.json"
UNFINISHED_NAME = ".unfinished"
# launch.py names a file here; a failing step writes its one line into it.
ERROR_FILE_VARIABLE = "LANGADAPT_ERROR_FILE"
# launch.py sets it to the digest of the code archive that it unpacked.
CODE_DIGEST_VARIABLE = "LANGADAPT_CODE_SHA256"
METRICS_LINE_PREFIX = "metrics: "
# The libraries whose versions a manifest records, where they are installed.
RECORDED_LIBRARIES = ("accelerate", "datasets", "numpy", "peft", "tokenizers", "torch", "transformers", "trl")


class UserError(Exception):
    """An error that a person can mend, shown as one line: `<subject>: <value>; limit <limit>. <remedy>`."""

    def __init__(self, subject: str, value: object, *, limit: object = None, remedy: str) -> None:
        self.subject, self.value, self.limit, self.remedy = subject, value, limit, remedy
        limit_text = "" if limit is None else f"; limit {limit}"
        line = f"{subject}: {value}{limit_text}. {remedy}"
        # A name or text that is no valid Unicode must not break the line that tells of it.
        super().__init__(" ".join(line.split()).encode("utf-8", "backslashreplace").decode())


class ConfigError(UserError):
    """Change a setting."""


class StepError(UserError):
    """Change the data or a limit."""


class StepConfig(pydantic.BaseModel):
    """Base of every step's settings: frozen, no unknown fields, no NaN or infinity."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())


@dataclass(frozen=True)
class Folder:
    """A named folder that a step reads.

    sealed: made by an earlier step, so it must carry a seal that matches; False for what a user gives.
    required: False for a folder that may be absent.
    """

    name: str
    sealed: bool = True
    required: bool = True


@dataclass(frozen=True)
class StepFolders:
    """The folders of one run of a step: `inputs` by name (absent optional ones left out), one `output`.

    checkpoints: where unfinished work is kept for the next attempt, None for a step without any.
    input_digests: sha256 of each input's content (see `content_digest`).
    """

    output: Path
    inputs: Mapping[str, Path] = field(default_factory=dict)
    checkpoints: Path | None = None
    input_digests: Mapping[str, str] = field(default_factory=dict)
    # This instance among those that share a processing step's work.
    instance_index: int = 0
    instance_count: int = 1

    def __getitem__(self, name: str) -> Path:
        return self.inputs[name]

    def get(self, name: str) -> Path | None:
        return self.inputs.get(name)


class FileEntry(pydantic.BaseModel):
    """One sealed file: its size in bytes and the sha256 of its content."""

    bytes: int
    sha256: str


class Manifest(pydantic.BaseModel):
    """manifest.json: what made a folder, and every file in it.

    reports: those of the files that tell about the run (times, memory) and that no later step computes with. They are
    sealed as all others, but no part of the content.
    """

    step: str
    config: dict[str, Any]
    inputs: dict[str, str]
    code_sha256: str | None
    files: dict[str, FileEntry]
    reports: list[str] = []
    metrics: dict[str, float | int | str]
    seconds: float
    peak_memory_bytes: int
    versions: dict[str, str]

    @property
    def content_digest(self) -> str:
        """sha256 over path and content of every file but reports: no time, host or path outside goes in."""
        return table_digest({path: entry.sha256 for path, entry in self.files.items() if path not in self.reports})


# --- folders and seals ------------------------------------------------------------------------------------------------


def file_sha256(path: Path) -> str:
    """Hexadecimal sha256 of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def table_digest(digests: Mapping[str, str]) -> str:
    """sha256 over a sorted table of path and content digest."""
    lines = "".join(f"{path}\0{digests[path]}\n" for path in sorted(digests))
    return hashlib.sha256(lines.encode()).hexdigest()


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes aside, fsyncs, renames: a reader sees the old file or the new one, never half of either."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    with aside.open("wb") as stream:
        stream.write(content.encode() if isinstance(content, str) else content)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(aside, path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def write_json(path: Path, value: Any) -> None:
    """Writes JSON atomically, readable and in a stable form; NaN and infinity are refused."""
    write_atomically(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def all_files(folder: Path) -> list[str]:
    """Sorted relative paths (with /) of all files below a folder."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def files_to_seal(folder: Path) -> list[str]:
    """The files of an output folder that its seal vouches for: all but seals and the marker of unfinished work."""
    described = {UNFINISHED_NAME, *(path.name for path in find_seals(folder))}
    return [name for name in all_files(folder) if name not in described]


def file_entry(path: Path) -> FileEntry:
    """Size and sha256 of a file, forced to the disk first: content must be there before a seal vouches for it."""
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
    return FileEntry(bytes=path.stat().st_size, sha256=file_sha256(path))


def find_seals(folder: Path) -> list[Path]:
    """Where a folder's seal is: manifest.json, or one file an instance; empty where nothing has such a name."""
    parts = sorted(folder.glob("manifest.part-*-of-*.json"))
    return parts or [path for path in [folder / MANIFEST_NAME] if path.is_file()]


def files_without_content(folder: Path) -> set[str]:
    """The files of a folder that are not its content: our own seals and the reports that they name.

    Empty for a folder that somebody else made: a manifest.json of theirs is content as any other file.
    """
    try:
        manifests = {path.name: Manifest.model_validate_json(path.read_bytes()) for path in find_seals(folder)}
    except pydantic.ValidationError:
        return set()
    return {*manifests, *(name for manifest in manifests.values() for name in manifest.reports)}


def seal_path(folder: Path, instance_index: int, instance_count: int) -> Path:
    """manifest.json, or one seal an instance where several instances fill one folder."""
    if instance_count == 1:
        return folder / MANIFEST_NAME
    return folder / f"manifest.part-{instance_index:05d}-of-{instance_count:05d}.json"


def read_seal(folder: Path, *, check_files: bool = True) -> Manifest:
    """The seal of a folder, merged over all instances that filled it; every file's size and sha256 is checked.

    check_files: False takes the files' word for it, where another process of this machine checks them.
    Raises StepError where the folder has no seal, a part of it is missing, or a file does not match.
    """
    remedy = "Run the step that makes this folder again."
    paths = find_seals(folder)
    if not paths:
        raise StepError(str(folder), "no manifest.json, so it was never finished", remedy=remedy)
    expected = 1 if paths[0].name == MANIFEST_NAME else int(paths[0].stem.rsplit("-", 1)[1])
    if len(paths) != expected:
        raise StepError(str(folder), f"{len(paths)} part seals", limit=f"exactly {expected}", remedy=remedy)
    try:
        manifests = [Manifest.model_validate_json(path.read_bytes()) for path in paths]
    except pydantic.ValidationError as error:
        raise StepError(str(paths[0]), "not a seal that this version reads", remedy=remedy) from error
    files = {name: entry for manifest in manifests for name, entry in manifest.files.items()}
    for name, entry in sorted(files.items()) if check_files else ():
        path = folder / name
        if not path.is_file():
            raise StepError(str(path), "missing from a sealed folder", remedy=remedy)
        if (size := path.stat().st_size) != entry.bytes:
            raise StepError(str(path), f"{size} bytes", limit=f"{entry.bytes} as sealed", remedy=remedy)
        if file_sha256(path) != entry.sha256:
            raise StepError(str(path), "content differs from its seal", remedy=remedy)
    reports = sorted({name for manifest in manifests for name in manifest.reports})
    return manifests[0].model_copy(update={"files": files, "reports": reports})


def content_digest(folder: Path) -> str:
    """sha256 over path and content of every file; of a folder with a seal of ours the same as Manifest.content_digest,
    after the seal was checked, and with what was added since. A file counts as a folder of one.

    Raises StepError where a file does not match a seal of ours.
    """
    if folder.is_file():
        return table_digest({folder.name: file_sha256(folder)})
    left_out = files_without_content(folder)
    sealed = read_seal(folder).files if left_out else {}
    names = [name for name in all_files(folder) if name not in left_out]
    return table_digest({name: sealed[name].sha256 if name in sealed else file_sha256(folder / name) for name in names})


def seal(
    folders: StepFolders,
    step: str,
    config: StepConfig,
    metrics: Mapping[str, Any],
    seconds: float,
    reports: Sequence[str] = (),
) -> Manifest:
    """Writes the seal of `folders.output`, last and atomically. reports: see Manifest."""
    files = {name: file_entry(folders.output / name) for name in files_to_seal(folders.output)}
    assert files.keys() >= set(reports), f"reports {sorted(set(reports) - files.keys())} were not written"
    manifest = Manifest(
        step=step,
        config=config.model_dump(mode="json"),
        inputs=dict(sorted(folders.input_digests.items())),
        code_sha256=os.environ.get(CODE_DIGEST_VARIABLE),
        files=files,
        reports=sorted(reports),
        metrics=check_metrics(metrics),
        seconds=round(seconds, 3),
        peak_memory_bytes=peak_memory_bytes(),
        versions=library_versions(),
    )
    (folders.output / UNFINISHED_NAME).unlink(missing_ok=True)
    path = seal_path(folders.output, folders.instance_index, folders.instance_count)
    write_json(path, manifest.model_dump(mode="json"))
    return manifest


def check_metrics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics, each a finite number or a text. Raises StepError for a number that is not finite."""
    for name, value in metrics.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise StepError(name, value, limit="a finite number", remedy="Look at this step's log for the cause.")
    return dict(metrics)


def peak_memory_bytes() -> int:
    """Largest resident memory that this process has had."""
    # ru_maxrss is in KiB on Linux and in bytes on macOS.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def library_versions() -> dict[str, str]:
    """Versions of Python and of the recorded libraries that are installed."""
    versions = {"python": platform.python_version()}
    for name in RECORDED_LIBRARIES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


# --- what a step prints -----------------------------------------------------------------------------------------------


def report(**values: float | int | str) -> None:
    """Prints one line of metrics, `metrics: step=20 loss=3.1415`: the executor and CloudWatch read it."""
    shown = " ".join(f"{name}={value:.6g}" if isinstance(value, float) else f"{name}={value}"
                     for name, value in values.items())  # fmt: skip
    print(f"{METRICS_LINE_PREFIX}{shown}", flush=True)


def warn(message: str) -> None:
    """Prints one warning line on standard error."""
    print(f"warning: {message}", file=sys.stderr, flush=True)


# --- running a step ---------------------------------------------------------------------------------------------------


def run_step(
    function: Callable[[Any, StepFolders], Mapping[str, Any]],
    config_type: type[StepConfig],
    folders: Sequence[Folder],
    *,
    checkpoints: bool = False,
    reports: Sequence[str] = (),
    shares_work: bool = False,
    arguments: Sequence[str] | None = None,
) -> int:
    """Runs one step from its command line and returns its exit code (see the module's docstring).

    checkpoints: the step keeps unfinished work. reports: output files that are no content (see Manifest).
    shares_work: several instances each do a part of the work; any other step refuses to be one of several.
    """
    module = sys.modules[function.__module__]
    name = Path(getattr(module, "__file__", None) or function.__name__).stem
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if "--help" in arguments or "-h" in arguments:
        print(help_text(module.__doc__ or "", name, config_type, folders, checkpoints))
        return EXIT_DONE
    signal.signal(signal.SIGTERM, _stop_on_sigterm)
    started = time.monotonic()
    try:
        config, step_folders = parse_arguments(arguments, config_type, folders, checkpoints, shares_work)
        is_first_process = int(os.environ.get("RANK", "0")) == 0
        if is_first_process:
            prepare_output(step_folders.output)
        metrics = function(config, step_folders)
        if is_first_process:
            seal(step_folders, name, config, metrics, time.monotonic() - started, reports)
            report(**metrics)
        return EXIT_DONE
    except UserError as error:
        return _fail(f"error: {error}", EXIT_USER_ERROR)
    except KeyboardInterrupt:
        return _fail("error: interrupted", EXIT_INTERRUPTED)
    except SystemExit as stop:
        if stop.code == EXIT_TERMINATED:
            return _fail("error: stopped by SIGTERM", EXIT_TERMINATED)
        raise
    except Exception as error:
        traceback.print_exc()
        return _fail(f"error: {type(error).__name__}: {error}", EXIT_BUG, show=False)


def _stop_on_sigterm(number: int, frame: object) -> NoReturn:
    raise SystemExit(EXIT_TERMINATED)


def _fail(line: str, code: int, *, show: bool = True) -> int:
    line = " ".join(line.split())
    if show:
        print(line, file=sys.stderr, flush=True)
    path = os.environ.get(ERROR_FILE_VARIABLE)
    # The first process that fails knows why; those stopped because of it must not speak over it.
    if path and not Path(path).exists():
        write_atomically(Path(path), json.dumps({"line": line, "exit_code": code}))
    return code


def prepare_output(output: Path) -> None:
    """An empty output folder marked unfinished. Clears what a killed attempt left; never a folder that is not ours."""
    output.mkdir(parents=True, exist_ok=True)
    leftovers = sorted(output.iterdir())
    if leftovers and not (output / UNFINISHED_NAME).is_file():
        raise ConfigError("output", f"{output} is not empty", remedy="Name an empty or new folder.")
    for leftover in leftovers:
        if leftover.is_dir() and not leftover.is_symlink():
            shutil.rmtree(leftover)
        elif leftover.name != UNFINISHED_NAME:
            leftover.unlink()
    (output / UNFINISHED_NAME).touch()


def parse_arguments(
    arguments: Iterable[str],
    config_type: type[StepConfig],
    folders: Sequence[Folder],
    checkpoints: bool,
    shares_work: bool,
) -> tuple[Any, StepFolders]:
    """Settings and folders from `--name=value` or `--name value`; - and _ are the same in a name."""
    values = _split_arguments(arguments)
    output = values.pop("output", None)
    if output is None:
        raise ConfigError("--output", "not given", remedy="Name the folder to write, --output DIR.")
    instance_index = int(values.pop("instance_index", "0"))
    instance_count = int(values.pop("instance_count", "1"))
    if instance_count > 1 and not shares_work:
        # Each would do all of the work, and all would write the same files.
        remedy = "Give this step one instance: it does not share its work."
        raise ConfigError("instance_count", instance_count, limit=1, remedy=remedy)
    checkpoint_folder = values.pop("checkpoints", None) if checkpoints else None
    inputs: dict[str, Path] = {}
    digests: dict[str, str] = {}
    for folder in folders:
        given = values.pop(folder.name, None)
        if given is None:
            if folder.required:
                raise ConfigError(f"--{folder.name}", "not given", remedy="Name a folder to read.")
            continue
        path = Path(given)
        if not path.exists():
            raise StepError(f"--{folder.name}", f"{path} does not exist", remedy="Name an existing folder.")
        if folder.sealed:
            # One process a machine reads every byte; the others take its word, or each would read them again.
            is_first_here = int(os.environ.get("LOCAL_RANK", "0")) == 0
            digests[folder.name] = read_seal(path, check_files=is_first_here).content_digest
        else:
            digests[folder.name] = content_digest(path)
        inputs[folder.name] = path
    config = parse_config(config_type, values)
    return config, StepFolders(
        output=Path(output),
        inputs=inputs,
        checkpoints=Path(checkpoint_folder) if checkpoint_folder else None,
        input_digests=digests,
        instance_index=instance_index,
        instance_count=instance_count,
    )


def _split_arguments(arguments: Iterable[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    remaining = iter(arguments)
    for argument in remaining:
        if not argument.startswith("--"):
            raise ConfigError(argument, "not understood", remedy="Settings are given as --name=value.")
        name, equals, value = argument[2:].partition("=")
        if not equals:
            following = next(remaining, None)
            if following is None:
                raise ConfigError(argument, "has no value", remedy="Settings are given as --name=value.")
            value = following
        values[name.replace("-", "_")] = value
    return values


def parse_config(config_type: type[StepConfig], values: Mapping[str, str]) -> StepConfig:
    """The settings from their texts: lists and optional values in JSON, everything else as pydantic reads a text.

    Raises ConfigError that names the first field at fault.
    """
    parsed: dict[str, Any] = {}
    for name, text in values.items():
        known = config_type.model_fields.get(name)
        parsed[name] = text
        if known is not None and (
            text.startswith("[") or (text == "null" and type(None) in get_args(known.annotation))
        ):
            try:
                parsed[name] = json.loads(text)
            except ValueError as error:
                raise ConfigError(name, text, limit="a JSON list", remedy="Write it as [1, 2].") from error
    try:
        return config_type.model_validate(parsed)
    except pydantic.ValidationError as error:
        raise ConfigError(*describe_validation_error(error), remedy=_remedy(error, config_type)) from error


def describe_validation_error(error: pydantic.ValidationError) -> tuple[str, str]:
    """Dotted field and `value (what is wrong)` of the first error that pydantic found."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"]) or "settings"
    return where, f"{first['input']!r} ({first['msg']})"


def _remedy(error: pydantic.ValidationError, config_type: type[StepConfig]) -> str:
    first = error.errors()[0]
    if first["type"] == "extra_forbidden":
        return nearest_name(str(first["loc"][-1]), config_type.model_fields)
    return "Change this setting."


def nearest_name(wrong: str, known: Iterable[str]) -> str:
    """A sentence that names the known name nearest to a misspelt one."""
    import difflib

    names = sorted(known)
    near = difflib.get_close_matches(wrong, names, n=1)
    return f"Did you mean {near[0]}?" if near else f"Known: {', '.join(names)}."


def config_arguments(config: StepConfig) -> dict[str, str]:
    """The settings as the texts that `parse_config` reads back: hyperparameters or command line flags."""
    texts: dict[str, str] = {}
    for name, value in config.model_dump(mode="json").items():
        texts[name] = value if isinstance(value, str) else json.dumps(value, allow_nan=False)
    return texts


def help_text(
    description: str, name: str, config_type: type[StepConfig], folders: Sequence[Folder], checkpoints: bool
) -> str:
    """What `python -m steps.<name> --help` prints: the module's docstring, the folders, every setting."""
    lines = [description.strip(), "", "Folders:"]
    for folder in folders:
        kind = "made by an earlier step" if folder.sealed else "yours"
        lines.append(f"  --{folder.name} DIR  {kind}{'' if folder.required else ', optional'}")
    lines.append("  --output DIR  new or empty; sealed by manifest.json when the step is done")
    if checkpoints:
        lines.append("  --checkpoints DIR  where an interrupted run goes on from, optional")
    lines += ["", "Settings:"]
    for field_name, info in config_type.model_fields.items():
        default = "required" if info.is_required() else f"default {info.default}"
        lines.append(f"  --{field_name}=VALUE  {info.description or ''} ({default})")
    return "\n".join(lines)
