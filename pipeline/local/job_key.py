"""The members of a job's cache key, made in one way for a job that runs and for one that is only looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pipeline.local.job_spec import JobInput, JobSpec


def job_members(
    spec: JobSpec,
    stable: JobSpec,
    image: Mapping[str, str],
    environment: Mapping[str, str],
    text_member: Callable[[str, str], str],
    content: Callable[[JobInput], str],
) -> dict[str, str]:
    """The table that a job's key is the digest of (see pipeline/local/cache.py).

    spec, stable: the same job as this execution has it, and without what is this execution's alone. image: members of
    its image. environment: variables of every job. text_member: what stands in the key for a text, given in both forms.
    content: what stands for an input. A flag that is given again has the number of its word before its name, so that
    each of its values counts.
    """
    members = dict(image)
    for index, (word, stable_word) in enumerate(zip(spec.arguments, stable.arguments, strict=True)):
        name, equals, value = word.partition("=")
        if word.startswith("--") and equals:
            member = f"argument {name}" if f"argument {name}" not in members else f"argument {index} {name}"
            members[member] = text_member(value, stable_word.partition("=")[2])
        else:
            members[f"argument {index}"] = text_member(word, stable_word)
    for name, value in spec.hyperparameters.items():
        members[f"hyperparameter {name}"] = text_member(value, stable.hyperparameters[name])
    for name, value in spec.environment.items():
        members[f"environment {name}"] = text_member(value, stable.environment[name])
    for name, value in environment.items():
        members.setdefault(f"environment {name}", value)
    for entry, stable_entry in zip(spec.inputs, stable.inputs, strict=True):
        members[f"input {entry.name}"] = content(entry)
        members[f"input {entry.name}, as given"] = stable_entry.manner
    for output in spec.outputs:
        # An optional one stands beside another, which tells what becomes of both.
        if not output.is_optional:
            members[f"output {output.name}"] = f"{output.local_path} {output.archive}".strip()
    members["instances"] = str(spec.instance_count)
    return members
