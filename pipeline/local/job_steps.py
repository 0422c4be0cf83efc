"""Processing and training steps on this machine: from the cache, or as processes with retries.

Retries: a job's end is put into the service's error classes, and the first retry policy that lists the class decides.

    killed by a signal (out of memory, a lost machine)        SageMaker.JOB_INTERNAL_ERROR, once
    the system has no process or memory to start it           SageMaker.CAPACITY_ERROR
    a Lambda function that cannot reach what it asks          Step.SERVICE_FAULT
    an error that the step itself reports, whatever its kind  never retried

The service sees a step that is killed inside a healthy container as an AlgorithmError, which no policy retries; it
knows lost machines apart from that. Here both look alike, and on a machine that does other work the first kill is most
often an accident: memory that somebody else took, a restart. So it is retried, from its checkpoints where it writes
some, but once, whatever the policy allows: a second kill means that the step does not fit this machine, and hours of
further attempts would end the same way.
"""

from __future__ import annotations

import errno
import os
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
    duration_seconds,
    key_of,
    output_digest,
    reason_of_miss,
)
from pipeline.local.execution import Execution, StepFailedError, StepStoppedError
from pipeline.local.images import LocalImage, image_members
from pipeline.local.input_files import input_digest
from pipeline.local.job_log import latest_metric, logged_warnings
from pipeline.local.job_spec import JobSpec, job_spec, model_uri
from pipeline.local.jobs import Job
from pipeline.local.log_metrics import final_metrics
from pipeline.local.uri_folders import is_uri
from pipeline.step_graph import Node
from pipeline.step_properties import processing_properties, training_properties
from steps.contract import EXIT_BUG, EXIT_TERMINATED, EXIT_USER_ERROR

KILLED_CLASS = "SageMaker.JOB_INTERNAL_ERROR"
NO_CAPACITY_CLASS = "SageMaker.CAPACITY_ERROR"
UNREACHABLE_CLASS = "Step.SERVICE_FAULT"
MOST_RETRIES_OF_KILLED = 1
# Waits that suit a cloud without capacity make no sense here.
LONGEST_RETRY_WAIT_SECONDS = 5.0


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
        if execution.force and seal is not None:
            _forget_checkpoints(spec, execution)
        record.begin()
        job = Job(spec, folder, image, execution.uris, execution.environment)
        run_attempts(node, record, job, execution)
        seal = output.replace(job.output_folders(), members, record.elapsed())
        record.end(states.SUCCEEDED)
    else:
        record.end(states.CACHED)
    record.metric, record.warnings = latest_metric(record.log), logged_warnings(record.log)
    for entry in spec.outputs:
        if entry.name not in seal.outputs:
            continue
        record.outputs[entry.name] = output.output(entry.name)
        execution.uris.add(entry.uri, output.output(entry.name) / entry.archive)
        execution.note_digest(output.output(entry.name), output_digest(seal.outputs[entry.name]))
    for file in node.definition.get("PropertyFiles", []):
        path = output.output(file["OutputName"]) / file["FilePath"]
        for scope in (execution.scope, execution.stable):
            scope.property_files[node.name, file["PropertyFileName"]] = path
    execution.finish(node.name, job_properties(spec, record.log), job_properties(stable_spec, record.log))


def key_members(spec: JobSpec, stable: JobSpec, image: LocalImage, execution: Execution) -> dict[str, str]:
    """The members of a job's cache key (see pipeline/local/cache.py).

    A flag that is given again has the number of its word before its name, so that each of its values counts.
    """
    members = image_members(spec, image)
    for index, (word, stable_word) in enumerate(zip(spec.arguments, stable.arguments, strict=True)):
        name, equals, value = word.partition("=")
        if word.startswith("--") and equals:
            member = f"argument {name}" if f"argument {name}" not in members else f"argument {index} {name}"
            members[member] = lasting_text(value, stable_word.partition("=")[2], execution)
        else:
            members[f"argument {index}"] = lasting_text(word, stable_word, execution)
    for name, value in spec.hyperparameters.items():
        members[f"hyperparameter {name}"] = lasting_text(value, stable.hyperparameters[name], execution)
    for name, value in spec.environment.items():
        members[f"environment {name}"] = lasting_text(value, stable.environment[name], execution)
    for name, value in execution.environment.items():
        members.setdefault(f"environment {name}", value)
    for entry in spec.inputs:
        subject = f"{spec.step}, input {entry.name}"
        members[f"input {entry.name}"] = input_digest(entry, execution.uris, execution.digest, subject)
    for output in spec.outputs:
        # An optional one stands beside another, which tells what becomes of both.
        if not output.is_optional:
            members[f"output {output.name}"] = f"{output.local_path} {output.archive}".strip()
    members["instances"] = str(spec.instance_count)
    return members


def lasting_text(text: str, stable_text: str, execution: Execution) -> str:
    """A text for the key: a URI by the content that it stands for, anything else without the execution's ids."""
    if is_uri(text) and (path := execution.uris.find(text)).exists():
        return f"content {execution.digest(path)}"
    return stable_text


def why_it_runs(node: Node, output: OutputFolder, members: Mapping[str, str], execution: Execution) -> str:
    """The reason to run a step, in words; empty where its sealed output serves."""
    cache = node.definition.get("CacheConfig", {})
    if not cache.get("Enabled", False):
        return "its definition does not cache it"
    if execution.force:
        return "forced"
    seal = output.read()
    if seal is None:
        return reason_of_miss(execution.run_folder, node.name, members)
    lasts = duration_seconds(cache["ExpireAfter"]) if "ExpireAfter" in cache else None
    if lasts is not None and time.time() - seal.sealed_at > lasts:
        return f"sealed longer than {cache['ExpireAfter']} ago"
    if mismatch := output.mismatch(seal):
        execution.progress.line(f"{node.name}: {mismatch}: running it again")
        return mismatch
    return ""


def _forget_checkpoints(spec: JobSpec, execution: Execution) -> None:
    """A forced run of what was finished before begins at its beginning; unfinished work is still gone on with."""
    for folder in spec.synced:
        path = execution.uris.find(folder.uri)
        if folder.name == "checkpoints" and path.is_dir():
            os.rename(path, path.with_name(f"{path.name}.before-{execution.result.execution_id}"))


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
    policies = node.definition.get("RetryPolicies", [])
    retries: dict[int, int] = {}
    kills = 0
    began = time.monotonic()
    while True:
        record.attempts += 1
        job.lay_out()
        try:
            code = job.run(execution.stop)
            line, error_class = job.failure_line(code), KILLED_CLASS if killed(code) else ""
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.ENOMEM):
                raise
            code, line, error_class = EXIT_USER_ERROR, str(error), NO_CAPACITY_CLASS
        if code == 0:
            return
        if execution.stop.is_set():
            raise StepStoppedError
        number = next((index for index, policy in enumerate(policies) if error_class in policy["ExceptionType"]), None)
        seconds, kills = time.monotonic() - began, kills + (error_class == KILLED_CLASS)
        if (
            number is None
            or kills > MOST_RETRIES_OF_KILLED
            or not allows_another(policies[number], retries.get(number, 0), seconds)
        ):
            raise StepFailedError(line, run_exit_code(code))
        policy, count = policies[number], retries.get(number, 0)
        retries[number] = count + 1
        wait = retry_wait_seconds(policy, count)
        execution.progress.line(f"{node.name}: {line}: trying again in {wait:g} s ({error_class}, retry {count + 1})")
        if execution.stop.wait(wait):
            raise StepStoppedError


def allows_another(policy: Mapping[str, Any], retries: int, seconds: float) -> bool:
    """Whether a policy allows one more retry after `retries` of them, `seconds` after the first attempt began."""
    if "MaxAttempts" in policy and retries >= policy["MaxAttempts"]:
        return False
    return not ("ExpireAfterMin" in policy and seconds > policy["ExpireAfterMin"] * 60)


def retry_wait_seconds(policy: Mapping[str, Any], retries: int) -> float:
    """The wait before the next retry: the policy's, but never as long as a cloud may need to find capacity."""
    return min(policy["IntervalSeconds"] * policy["BackoffRate"] ** retries, LONGEST_RETRY_WAIT_SECONDS)


def killed(code: int) -> bool:
    """True for a process that a signal ended, seen directly or through a launcher or shell (128 + signal)."""
    return code < 0 or (128 < code < 128 + signal.NSIG and code not in (130, EXIT_TERMINATED))


def run_exit_code(code: int) -> int:
    """A failed job's exit code as the run's: 70 and kills are bugs, 130 and 143 stay, all else is a user error."""
    if killed(code) or code == EXIT_BUG:
        return EXIT_BUG
    return code if code in (130, EXIT_TERMINATED) else EXIT_USER_ERROR
