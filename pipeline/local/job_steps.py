"""Processing and training steps on this machine: from the cache, or as processes with retries and a time limit.

The limit is the definition's StoppingCondition.MaxRuntimeInSeconds, for one attempt, as on the service a job has it. It
is meant for the instance that the definition names, and holds here all the same: a step that hangs must end. The step
is ended as by a signal, so that it may write a checkpoint, the run ends with exit code 1, and nothing is retried. A
definition without it sets no limit here (the service takes a day).
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline import execution_record as states
from pipeline.execution_record import StepRecord
from pipeline.local.cache import (
    KEY_CHARACTERS_IN_PATHS,
    OutputFolder,
    Seal,
    duration_seconds,
    key_of,
    output_digest,
    reason_of_miss,
)
from pipeline.local.execution import Execution, StepFailedError, StepStoppedError
from pipeline.local.images import LocalImage, image_members
from pipeline.local.input_files import input_digest, input_places
from pipeline.local.job_key import job_members
from pipeline.local.job_log import latest_metric, logged_warnings
from pipeline.local.job_spec import JobInput, JobSpec, job_spec, model_uri
from pipeline.local.jobs import Job, TimeLimitError
from pipeline.local.log_metrics import final_metrics
from pipeline.local.retries import JOB_INTERNAL_ERROR, Retries, start_error_class
from pipeline.local.uri_folders import is_uri
from pipeline.step_graph import Node
from pipeline.step_properties import processing_properties, training_properties
from steps.contract import EXIT_BUG, EXIT_TERMINATED, EXIT_USER_ERROR, ConfigError, write_atomically

# In a job's folder while a run that begins anew, although the step was finished before, is not done.
BEGUN_ANEW_NAME = "begun-anew"
ASIDE = ".before-"


def run_job(node: Node, record: StepRecord, execution: Execution) -> None:
    """A Processing or Training step: from the cache where its content was worked on before, else as processes."""
    job_name = f"pipelines-{execution.result.execution_id}-{node.name}"
    scope = execution.scope.inside(**{f"{node.type}JobName": job_name})
    spec = job_spec(node.name, node.type, scope.resolve(node.arguments), job_name)
    stable_spec = job_spec(node.name, node.type, execution.stable.resolve(node.arguments), f"{{{node.name} job}}")
    image = execution.required_image(node.name, spec.image)
    members = key_members(spec, stable_spec, image, execution)
    output = OutputFolder(execution.run_folder, node.name, key_of(members))
    record.cache_key, record.key_members = output.key, members
    folder = execution.run_folder / "jobs" / node.name / output.key[:KEY_CHARACTERS_IN_PATHS]
    record.log = folder / "log.txt"
    record.reason = why_it_runs(node, output, members, execution)
    seal = output.read()
    if record.reason or seal is None:
        if execution.must_be_cached(node.name):
            remedy = f"Run it too: --from {node.name}, or everything."
            raise ConfigError(node.name, f"not current in the cache ({record.reason})", remedy=remedy)
        if execution.reason_to_run(node.name) and seal is not None:
            set_checkpoints_aside(spec, folder, execution)
        record.begin()
        places = [place for entry in spec.inputs for place in input_places(entry, execution.uris, node.name)]
        job = Job(spec, folder, image, execution.uris, execution.environment)
        run_attempts(node, record, job, execution)
        execution.check_inputs(node.name, places)
        seal = output.replace(job.output_folders(), members, record.elapsed(), logged_warnings(record.log))
        forget_checkpoints_aside(spec, folder, execution)
        state = states.SUCCEEDED
    else:
        state = states.CACHED
    record.metric, record.warnings = latest_metric(record.log), seal.warnings
    publish_outputs(node, spec, record, output, seal, execution)
    execution.finish(node.name, job_properties(spec, record.log), job_properties(stable_spec, record.log))
    # Last of all: steps that need this one begin as soon as it is done.
    record.end(state)


def publish_outputs(
    node: Node, spec: JobSpec, record: StepRecord, output: OutputFolder, seal: Seal, execution: Execution
) -> None:
    """From now on URIs and property files stand for the sealed outputs."""
    sealed = [entry for entry in spec.outputs if entry.name in seal.outputs]
    for entry in sealed:
        execution.uris.add(entry.uri, output.output(entry.name) / entry.archive)
        execution.note_digest(output.output(entry.name), output_digest(seal.outputs[entry.name]))
    for file in node.definition.get("PropertyFiles", []):
        path = output.output(file["OutputName"]) / file["FilePath"]
        for scope in (execution.scope, execution.stable):
            scope.property_files[node.name, file["PropertyFileName"]] = path
    # As a whole: another thread may be writing down what is known of the run.
    record.outputs = {entry.name: output.output(entry.name) for entry in sealed}


def key_members(spec: JobSpec, stable: JobSpec, image: LocalImage, execution: Execution) -> dict[str, str]:
    """The members of a job's cache key (see pipeline/local/job_key.py), inputs and URIs by what is there."""

    def text_member(text: str, stable_text: str) -> str:
        if is_uri(text) and (path := execution.uris.find(text)).exists():
            return f"content {execution.digest(path)}"
        return stable_text

    def content(entry: JobInput) -> str:
        return input_digest(entry, execution.uris, execution.digest, f"{spec.step}, input {entry.name}")

    return job_members(spec, stable, image_members(spec, image), execution.environment, text_member, content)


def why_it_runs(node: Node, output: OutputFolder, members: Mapping[str, str], execution: Execution) -> str:
    """The reason to run a step, in words; empty where its sealed output serves."""
    cache = node.definition.get("CacheConfig", {})
    if not cache.get("Enabled", False):
        return "its definition does not cache it"
    if reason := execution.reason_to_run(node.name):
        return reason
    seal = output.read()
    if seal is None:
        return reason_of_miss(execution.run_folder, node.name, members)
    lasts = duration_seconds(cache["ExpireAfter"]) if "ExpireAfter" in cache else None
    if lasts is not None and time.time() - seal.sealed_at > lasts:
        return f"sealed longer than {cache['ExpireAfter']} ago"
    if mismatch := output.mismatch(seal):
        if not execution.must_be_cached(node.name):
            execution.progress.line(f"{node.name}: {mismatch}: running it again")
        return mismatch
    return ""


def set_checkpoints_aside(spec: JobSpec, folder: Path, execution: Execution) -> None:
    """What was finished before and runs again begins at its beginning: its checkpoints go aside, once.

    Where such a run was killed, the next goes on from the checkpoints that it wrote.
    """
    begun = folder / BEGUN_ANEW_NAME
    kept = [path for path in checkpoint_folders(spec, execution) if path.is_dir()]
    if begun.exists() or not kept:
        return
    for path in kept:
        os.rename(path, path.with_name(f"{path.name}{ASIDE}{execution.result.execution_id}"))
    write_atomically(begun, execution.result.execution_id)


def forget_checkpoints_aside(spec: JobSpec, folder: Path, execution: Execution) -> None:
    """A run that began anew is done: what was set aside for it is of no more use."""
    for path in checkpoint_folders(spec, execution):
        for aside in path.parent.glob(f"{path.name}{ASIDE}*"):
            shutil.rmtree(aside)
    (folder / BEGUN_ANEW_NAME).unlink(missing_ok=True)


def checkpoint_folders(spec: JobSpec, execution: Execution) -> list[Path]:
    return [execution.uris.find(synced.uri) for synced in spec.synced if synced.name == "checkpoints"]


def job_properties(spec: JobSpec, log: Path) -> dict[str, Any]:
    """What other steps may read of a finished job."""
    if spec.kind == "Processing":
        return processing_properties(spec.request, spec.job_name)
    metrics = final_metrics(log, spec.request["AlgorithmSpecification"].get("MetricDefinitions", []))
    return training_properties(spec.request, spec.job_name, model_uri(spec), metrics)


def run_attempts(node: Node, record: StepRecord, job: Job, execution: Execution) -> None:
    """Runs a job until it succeeds or no retry policy allows another attempt.

    Raises StepFailedError or StepStoppedError.
    """
    retries, stopping = Retries(node.definition.get("RetryPolicies", [])), execution.stopping
    limit_seconds = time_limit_seconds(job.spec)
    while True:
        record.attempts += 1
        job.lay_out()
        began = time.monotonic()
        try:
            code = job.run(stopping.asked, stopping.at_once, limit_seconds)
            line, error_class = job.failure_line(code), JOB_INTERNAL_ERROR if killed(code) else ""
        except TimeLimitError as limit:
            raise StepFailedError(time_limit_line(node.name, limit, execution), EXIT_USER_ERROR) from limit
        except OSError as error:
            error_class = start_error_class(error)
            if not error_class:
                raise
            code, line = EXIT_USER_ERROR, str(error)
        finally:
            record.jobs_ran.append((began, time.monotonic()))
        if code == 0:
            return
        if stopping.asked.is_set():
            raise StepStoppedError
        wait = retries.next_wait_seconds(error_class)
        if wait is None:
            raise StepFailedError(line, run_exit_code(code))
        execution.progress.line(retries.told(node.name, line, wait, error_class))
        if stopping.asked.wait(wait):
            raise StepStoppedError


def time_limit_seconds(spec: JobSpec) -> float | None:
    """StoppingCondition.MaxRuntimeInSeconds; None where the definition has none."""
    seconds = (spec.request.get("StoppingCondition") or {}).get("MaxRuntimeInSeconds")
    return None if seconds is None else float(seconds)


def time_limit_line(step: str, limit: TimeLimitError, execution: Execution) -> str:
    """Why a step was ended, and what raises its limit."""
    setting = execution.limit_settings.get(step, "it in the definition")
    return (
        f"{limit} (StoppingCondition.MaxRuntimeInSeconds). Raise {setting} and run again: finished steps are kept, and "
        "a step that writes checkpoints goes on from them."
    )


def killed(code: int) -> bool:
    """True for a process that a signal ended, seen directly or through a launcher or shell (128 + signal)."""
    return code < 0 or (128 < code < 128 + signal.NSIG and code not in (130, EXIT_TERMINATED))


def run_exit_code(code: int) -> int:
    """A failed job's exit code as the run's. 130 and 143 stay. SIGKILL is a user error, for it is memory that lacks, or
    somebody who ended the step; 70 and all other signals are bugs; all else is a user error."""
    if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
        return EXIT_USER_ERROR
    if killed(code) or code == EXIT_BUG:
        return EXIT_BUG
    return code if code in (130, EXIT_TERMINATED) else EXIT_USER_ERROR
