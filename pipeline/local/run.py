"""`langadapt run`: a configuration compiled, its inputs found, the definition run on this machine."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pipeline
import steps
from pipeline.code_archive import code_archive
from pipeline.config import PipelineConfig, config_digest
from pipeline.execution_record import RunResult
from pipeline.local.check_inputs import check_inputs
from pipeline.local.environment import local_image, reproduction_texts
from pipeline.local.executor import JOB_ENVIRONMENT, run_definition
from pipeline.local.inputs import local_handler
from pipeline.local.selection import select
from pipeline.local.uri_folders import UriFolders
from pipeline.progress import Progress, progress_for
from pipeline.references import parameter_values
from pipeline.registry import LocalRegistry
from pipeline.step_graph import build_graph
from steps.contract import (
    EXIT_DONE,
    EXIT_USER_ERROR,
    METRICS_LINE_PREFIX,
    ConfigError,
    StepError,
    check_name,
    write_atomically,
)

DEFAULT_RUNS = Path("runs")
DEFAULT_REGISTRY = DEFAULT_RUNS / "registry"
STEP_MODULES = (
    "prepare_corpus", "train_tokenizer", "tokenize_corpus", "adapt_vocabulary", "continued_pretraining", "fine_tune",
    "evaluate_model",
)  # fmt: skip
# The parameter that carries each input's URI, and what stands in for it in the sample.
INPUTS = {
    "corpus": ("CorpusUri", "corpus.jsonl"),
    "conversations": ("ConversationsUri", "conversations.jsonl"),
    "base_model": ("BaseModelUri", "base_model"),
    "source_corpus": ("SourceCorpusUri", None),
    "extra_heldout": ("ExtraHeldoutUri", None),
    "accuracy": ("AccuracyUri", None),
}


def run_locally(
    config: PipelineConfig,
    *,
    run_folder: Path,
    registry_folder: Path,
    parameters: Iterable[str] = (),
    force: bool = False,
    from_step: str | None = None,
    only: Sequence[str] = (),
    max_parallel: int = 2,
    progress: Progress | None = None,
) -> RunResult:
    """Runs the compiled definition of a configuration and returns how it ended.

    parameters: `Name=value` texts of the pipeline's parameters.  progress: is told what happens, before the steps
    start as well; default: on standard error.  from_step, only: see pipeline/local/selection.py.
    max_parallel: steps at a time.
    Raises ConfigError or StepError before anything runs.
    """
    progress = progress_for() if progress is None else progress
    given = split_parameters(parameters)
    check_writable("registry", registry_folder)
    check_writable("run folder", run_folder)
    # What costs little comes first: compiling takes seconds, and the sample may have to be made for a minute.
    inputs = configured_uris(config, given)
    check_inputs(config, paths_of(inputs | given, run_folder), JOB_ENVIRONMENT | package_path())
    definition = compiled_definition(config, run_folder, progress)
    parameter_values(definition["Parameters"], given)
    select(build_graph(definition), from_step, only)
    from_sample = sample_uris(inputs | given, progress)
    # Its texts are ours; its model has to fit the settings.
    its_model = {name: path for name, path in paths_of(from_sample, run_folder).items() if name == "base_model"}
    check_inputs(config, its_model, JOB_ENVIRONMENT | package_path())
    inputs |= from_sample
    return run_definition(
        definition,
        run_folder=run_folder,
        registry=LocalRegistry(registry_folder, progress.line),
        default_image=local_image(),
        parameters=inputs | given,
        functions={config.aws.resolve_inputs_function_arn: local_handler},
        uris=written_code(config, run_folder),
        pipeline_name=config.aws.pipeline_name,
        force=force,
        from_step=from_step,
        only=only,
        max_parallel=max_parallel,
        limit_settings=time_limit_settings(definition),
        kept_texts=reproduction_texts(config),
        progress=progress,
    )


def written_code(config: PipelineConfig, run_folder: Path) -> dict[str, Path]:
    """Writes the steps' code archives, and gives the folder that stands for their URI."""
    for step in STEP_MODULES:
        code_archive(step).write(run_folder / "code")
    return {f"s3://{config.aws.bucket}/{config.aws.prefix}/code": run_folder / "code"}


def time_limit_settings(definition: Mapping[str, Any]) -> dict[str, str]:
    """The setting that each job step's time limit comes from, by the step's name in the definition."""
    settings = {}
    for step in definition["Steps"]:
        words = step["Arguments"].get("AppSpecification", {}).get("ContainerArguments", [])
        modules = [step["Arguments"].get("HyperParameters", {}).get("step")]
        modules += [word.removeprefix("--step=") for word in words if str(word).startswith("--step=")]
        for module in filter(None, modules):
            settings[step["Name"]] = f"compute.{module}.max_runtime_seconds"
    return settings


def check_writable(name: str, folder: Path) -> None:
    """Raises ConfigError where a folder cannot be made or written to, StepError where its path is no UTF-8."""
    check_name(folder.absolute())
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise ConfigError(name, f"{there} is a file", remedy="Name a folder.")
    try:
        # Tried, not asked: to root every folder says that it may be written to, those of /proc too.
        os.rmdir(tempfile.mkdtemp(prefix=".langadapt-", dir=there))
    except OSError as error:
        value = f"{there} cannot be written to ({error.strerror})"
        raise ConfigError(name, value, remedy="Name a folder that can be written to.") from error


def split_parameters(parameters: Iterable[str]) -> dict[str, str]:
    """Names and values of `Name=value` texts. Raises ConfigError for other texts, and for a name that comes twice."""
    values: dict[str, str] = {}
    for text in parameters:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError("--param", text, limit="Name=value", remedy="Put = between name and value.")
        if name in values:
            raise ConfigError(f"--param {name}", "given twice", remedy="Give it once.")
        values[name] = value
    return values


def configured_uris(config: PipelineConfig, given: Mapping[str, str]) -> dict[str, str]:
    """The URI parameter of each input that the configuration names a path for, those given aside.

    Raises StepError for a path that does not exist, ConfigError for an s3:// URI.
    """
    uris: dict[str, str] = {}
    for name, (parameter, _) in INPUTS.items():
        configured = getattr(config.data, name)
        if parameter in given or configured is None:
            continue
        if configured.startswith("s3://"):
            remedy = "A local run reads local files: name a file or folder of this machine."
            raise ConfigError(f"data.{name}", configured, remedy=remedy)
        try:
            path = Path(configured).expanduser()
        except RuntimeError as error:
            remedy = "Name an existing file or folder."
            raise StepError(f"data.{name}", f"{configured} has no home folder", remedy=remedy) from error
        if not path.exists():
            raise StepError(f"data.{name}", f"{path} does not exist", remedy="Name an existing file or folder.")
        check_name(path.resolve())
        uris[parameter] = path.resolve().as_uri()
    return uris


def sample_uris(known: Mapping[str, str], progress: Progress) -> dict[str, str]:
    """The URI parameter of each input that is not known and that the sample stands in for."""
    missing = {name: kind for name, kind in INPUTS.items() if kind[1] is not None and kind[0] not in known}
    if not missing:
        return {}
    sample = sample_folder(progress)
    progress.line(f"No data.{', data.'.join(missing)} given: using the sample in {sample}")
    return {parameter: (sample / str(sample_name)).as_uri() for parameter, sample_name in missing.values()}


def paths_of(uris: Mapping[str, str], run_folder: Path) -> dict[str, Path]:
    """Where the inputs among URI parameters lie on this machine, those that are there."""
    folders = UriFolders(run_folder, {})
    named = {name: folders.find(uris[parameter]) for name, (parameter, _) in INPUTS.items() if parameter in uris}
    return {name: path for name, path in named.items() if path.exists()}


def sample_folder(progress: Progress, folder: Path | None = None) -> Path:
    """The sample, made once in the user's cache; copied to `folder` where that is given.

    It is made by a process of its own, as its base model needs torch.
    """
    # -P: a package named steps in the current folder is none of ours.
    command = [sys.executable, "-P", "-m", "steps.make_sample"]
    if folder is not None:
        command.append(f"--folder={folder.resolve()}")
    last = ""
    environment = JOB_ENVIRONMENT | package_path()
    # Errors go to a file: a pipe that nobody reads while the other is read can fill up and block.
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
        assert process.stdout is not None
        try:
            for line in process.stdout:
                last = line.rstrip("\n")
                if last.startswith(("Making", "Waiting")):
                    progress.line(last)
                elif last.startswith(METRICS_LINE_PREFIX):
                    progress.passing(last.removeprefix(METRICS_LINE_PREFIX))
            code = process.wait()
        finally:
            progress.passing("")
            process.terminate()
            process.wait()
        if code != EXIT_DONE:
            errors.seek(0)
            lines = [line for line in errors.read().splitlines() if line.strip()] or ["no message"]
            raise sample_error(lines[-1], is_users=code == EXIT_USER_ERROR)
    return Path(last)


def sample_error(line: str, *, is_users: bool) -> StepError:
    """The error of the process that makes the sample: its own line where it wrote one for a person."""
    subject, _, rest = line.removeprefix("error: ").partition(": ")
    if is_users and ". " in rest:
        value, _, remedy = rest.partition(". ")
        return StepError(subject, value, remedy=remedy)
    return StepError("sample", line, remedy="Give data.base_model, or try again.")


def package_path() -> dict[str, str]:
    """The environment in which a child process finds the packages that this process uses."""
    root = str(Path(steps.__file__).parents[1])
    existing = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{existing}" if existing else root}


def compiled_definition(config: PipelineConfig, run_folder: Path, progress: Progress) -> dict[str, Any]:
    """The definition of this configuration, compiled again only where configuration, code or SDK have changed.

    It is kept as definitions/<key>.<beginning of its sha256>.json: one whose content is another does not serve.
    """
    key = definition_key(config)
    for path in sorted((run_folder / "definitions").glob(f"{key}.*.json")):
        kept = path.read_bytes()
        if path.name == definition_name(key, kept):
            return json.loads(kept)
        progress.line(f"{path} is not as it was compiled: compiling again")
        path.unlink()
    from pipeline.compile import compile_definition

    compiled = compile_definition(config).encode()
    write_atomically(run_folder / "definitions" / definition_name(key, compiled), compiled)
    return json.loads(compiled)


def definition_name(key: str, content: bytes) -> str:
    return f"{key}.{hashlib.sha256(content).hexdigest()[:16]}.json"


def definition_key(config: PipelineConfig) -> str:
    """sha256 over everything that a compiled definition depends on."""
    digest = hashlib.sha256(f"{config_digest(config, ['plan'])} {importlib.metadata.version('sagemaker')}".encode())
    for package in (pipeline, steps):
        folder = Path(package.__path__[0])
        for file in sorted(folder.rglob("*.py")):
            digest.update(file.relative_to(folder).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def run_folder_for(config: PipelineConfig, given: Path | None) -> Path:
    """The folder of a run: the one given, or runs/<preset>."""
    if given is not None:
        return given
    return DEFAULT_RUNS / (config.preset or "run")
