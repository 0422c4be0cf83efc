"""Running a step from its command line, and what it prints."""

from __future__ import annotations

import fcntl
import json
import math
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from steps.contract.errors import (
    EXIT_BUG,
    EXIT_DONE,
    EXIT_INTERRUPTED,
    EXIT_TERMINATED,
    EXIT_USER_ERROR,
    ConfigError,
    StepError,
)
from steps.contract.faults import mendable_error
from steps.contract.folders import Folder, StepFolders, prepare_output
from steps.contract.seals import Warned, content_digest, read_seal, seal
from steps.contract.settings import StepConfig, choices, is_list, parse_config

# launch.py names a file here; a failing step writes its one line into it.
ERROR_FILE_VARIABLE = "LANGADAPT_ERROR_FILE"
# The launcher names a file here; a step's processes touch it when they get on, so that a hung one is told apart.
PROGRESS_FILE_VARIABLE = "LANGADAPT_PROGRESS_FILE"
METRICS_LINE_PREFIX = "metrics: "
WARNING_LINE_PREFIX = "warning: "
PROGRESS_LINE_PREFIX = "progress: "
# A step of a thousand steps a second shall not fill its log with them.
PROGRESS_LINE_SECONDS = 1.0
# What this process has warned about, for its seal.
_warnings: list[Warned] = []
# When this process last told its progress, in seconds of the monotonic clock, and what it told.
_progress_told = (-math.inf, -1)


def report(**values: float | int | str) -> None:
    """Prints one line of metrics, `metrics: step=20 loss=3.1415`: the executor and CloudWatch read it."""
    shown = " ".join(f"{name}={value:.6g}" if isinstance(value, float) else f"{name}={value}"
                     for name, value in values.items())  # fmt: skip
    print(f"{METRICS_LINE_PREFIX}{shown}", flush=True)
    note_progress()


def report_progress(done: int, total: int, unit: str) -> None:
    """Prints how much of the step's work is done, `progress: 20/100 steps`: a run tells the time left from it.

    unit: what is counted, in the plural. Both counts go from 0 once; a step with two phases counts them as one. A line
    a second is printed at most, beside the first and the last: call it as often as is handy.
    """
    global _progress_told
    now, (told, told_done) = time.monotonic(), _progress_told
    if (done in (0, total) and done != told_done) or now - told >= PROGRESS_LINE_SECONDS:
        _progress_told = (now, done)
        print(f"{PROGRESS_LINE_PREFIX}{done}/{total} {unit}", flush=True)
        note_progress()


def note_progress() -> None:
    """Notes that this process gets on, for the launcher. `report` and `report_progress` do it; a process that prints
    nothing calls it itself."""
    if path := os.environ.get(PROGRESS_FILE_VARIABLE):
        # The launcher's file may be gone with its job's folder; a step does not fail for that.
        with suppress(OSError):
            os.utime(path)


def warn(name: str, message: str) -> None:
    """Prints one line `warning: <name>: <message>` on standard error and notes it for the seal, once.

    name: what is warned about, in lower case with hyphens, such as `repeated-conversations`.
    message: what was found, with its number, and what to do about it.
    """
    warned = Warned(name=name, message=" ".join(message.split()).encode("utf-8", "backslashreplace").decode())
    if warned not in _warnings:
        _warnings.append(warned)
        print(f"{WARNING_LINE_PREFIX}{warned.name}: {warned.message}", file=sys.stderr, flush=True)


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

    checkpoints: the step takes a folder for unfinished work.
    reports: output files that are no content, or folders of such, named with a slash at the end (see Manifest).
    shares_work: several instances each do a part of the work; any other step refuses to be one of several.
    """
    module = sys.modules[function.__module__]
    name = Path(getattr(module, "__file__", None) or function.__name__).stem
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if "--help" in arguments or "-h" in arguments:
        return show_help(help_text(module.__doc__ or "", name, config_type, folders, checkpoints))
    signal.signal(signal.SIGTERM, _stop_on_sigterm)
    started = time.monotonic()
    _warnings.clear()
    try:
        config, step_folders = parse_arguments(arguments, config_type, folders, checkpoints, shares_work)
        is_first_process = int(os.environ.get("RANK", "0")) == 0
        if is_first_process:
            prepare_output(step_folders.output)
        metrics = function(config, step_folders)
        if is_first_process:
            seal(step_folders, name, config, metrics, time.monotonic() - started, reports, _warnings)
            # What is sealed is done, whether or not the log has room to say so.
            with suppress(OSError):
                report(**metrics)
        return EXIT_DONE
    except KeyboardInterrupt:
        return _fail("error: interrupted", EXIT_INTERRUPTED)
    except SystemExit as stop:
        if stop.code == EXIT_TERMINATED:
            return _fail("error: stopped by SIGTERM", EXIT_TERMINATED)
        raise
    except Exception as error:
        return _fail_with(error, _output_of(arguments), config_type)


def _stop_on_sigterm(number: int, frame: object) -> NoReturn:
    raise SystemExit(EXIT_TERMINATED)


def _output_of(arguments: Sequence[str]) -> Path | None:
    """The output folder of a command line that may be wrong otherwise."""
    try:
        output = _split_arguments(arguments).get("output")
    except ConfigError:
        return None
    return None if output is None else Path(output)


def _fail_with(error: Exception, output: Path | None, config_type: type[StepConfig]) -> int:
    """Tells of an error: in one line what a person can mend, with its traceback what is a bug of ours."""
    if fault := mendable_error(error, output, config_type.model_fields):
        return _fail(f"error: {fault}", EXIT_USER_ERROR)
    _say("".join(traceback.format_exception(error)).rstrip())
    return _fail(f"error: {type(error).__name__}: {error}", EXIT_BUG, show=False)


def _fail(line: str, code: int, *, show: bool = True) -> int:
    line = " ".join(line.split())
    if show:
        _say(line)
    if path := os.environ.get(ERROR_FILE_VARIABLE):
        _leave_message(Path(path), json.dumps({"line": line, "exit_code": code}).encode())
    return code


def _say(text: str) -> None:
    """Prints on standard error. The log that takes it may lie on the very disk that is full."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def _leave_message(path: Path, content: bytes) -> None:
    """Writes the failure's message in place, over the blanks that launch.py keeps room with: a full disk takes it.

    The first process that fails knows why: those stopped because of it do not speak over it.
    """
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not os.read(file, 1).strip():
                os.pwrite(file, content, 0)
        finally:
            os.close(file)


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
            remedy = "Name an existing folder." if folder.sealed else "Name an existing folder or file."
            raise StepError(f"--{folder.name}", f"{path} does not exist", remedy=remedy)
        if folder.sealed:
            # One process a machine reads every byte; the others take its word, or each would read them again.
            is_first_here = int(os.environ.get("LOCAL_RANK", "0")) == 0
            digests[folder.name] = read_seal(path, check_files=is_first_here).content_digest
        else:
            digests[folder.name] = content_digest(path)
        inputs[folder.name] = path
    config = parse_config(config_type, values)
    if checkpoint_folder and Path(checkpoint_folder).exists() and not Path(checkpoint_folder).is_dir():
        raise StepError("--checkpoints", f"{checkpoint_folder} is no folder", remedy="Name a folder.")
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


def show_help(text: str) -> int:
    """Prints a help text. A reader that leaves before its end, as `| head` does, is no error."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # Python flushes once more at its end, and would complain there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_DONE


def help_text(
    description: str,
    name: str,
    config_type: type[StepConfig],
    folders: Sequence[Folder],
    checkpoints: bool,
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
        default = "required" if info.is_required() else f"default {as_given(info.default)}"
        values = f"; one of {', '.join(words)}" if (words := choices(info.annotation)) else ""
        kind = "JSON LIST" if is_list(info.annotation) else "VALUE"
        lines.append(f"  --{field_name}={kind}  {info.description or ''} ({default}{values})")
    return "\n".join(lines)


def as_given(value: object) -> str:
    """A setting's default as the command line takes it."""
    if isinstance(value, tuple | list):
        return json.dumps(value, ensure_ascii=False)
    return "empty" if value == "" else str(value)
