"""docs/configuration.md, made of the configuration's models: `python tests/helpers/configuration_page.py` writes it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pydantic
from pydantic.fields import FieldInfo

ROOT = Path(__file__).parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from pipeline.config import PipelineConfig  # noqa: E402
from pipeline.config_sections import ComputeSection, JobSection  # noqa: E402
from steps.contract.settings import choices  # noqa: E402

PAGE = ROOT / "docs" / "configuration.md"
HEAD = """\
# Every setting

A configuration is a preset (`pipeline/presets/`) or a YAML file of these sections, given by `--preset` or `--config`;
`--set section.field=value` sets one field. What is left out has its default; *of the preset*
stands where there is none and each preset states a value. This page is made of the models in `pipeline/config.py`,
`pipeline/config_sections.py` and `steps/configs/` by `python tests/helpers/configuration_page.py`.
"""


def page() -> str:
    """The page's text."""
    alone: dict[str, tuple[str, str, str]] = {}
    sections: list[str] = []
    for name, info in PipelineConfig.model_fields.items():
        model = info.annotation
        if not (isinstance(model, type) and issubclass(model, pydantic.BaseModel)):
            alone[name] = (name, default_text(info.get_default()), description(info))
            continue
        sections += [f"## {name}\n\n{cell(' '.join((model.__doc__ or '').split()))}\n"]
        if model is ComputeSection:
            sections += table("field of `compute.<step>`", job_rows(), steps=True)
        sections += table("field", section_rows(name, model))
    return "\n".join([HEAD, *table("field", iter(alone.values())), *sections])


def section_rows(section: str, model: type[pydantic.BaseModel]) -> Iterator[tuple[str, ...]]:
    """Name, default and description of each field that is no job."""
    for name, info in model.model_fields.items():
        if not isinstance(info.get_default(), JobSection):
            default = (
                "*of the preset*" if info.is_required() else default_text(info.get_default(call_default_factory=True))
            )
            yield f"{section}.{name}", default, description(info)


def job_rows() -> Iterator[tuple[str, ...]]:
    """Name, steps, default and description of each field of a job, of all the steps that have it."""
    jobs = {name: info.get_default() for name, info in ComputeSection.model_fields.items()}
    jobs = {name: job for name, job in jobs.items() if isinstance(job, JobSection)}
    for field in dict.fromkeys(field for job in jobs.values() for field in type(job).model_fields):
        having = {name: job for name, job in jobs.items() if field in type(job).model_fields}
        steps = "all" if len(having) == len(jobs) else ", ".join(having)
        values = {name: default_text(getattr(job, field)) for name, job in having.items()}
        (info, *_) = (type(job).model_fields[field] for job in having.values())
        yield field, steps, shared_default(values), description(info)


def shared_default(values: Mapping[str, str]) -> str:
    """One default, or the steps of each."""
    by_value: dict[str, list[str]] = {}
    for step, value in values.items():
        by_value.setdefault(value, []).append(step)
    if len(by_value) == 1:
        return next(iter(by_value))
    return "; ".join(f"{value} ({', '.join(steps)})" for value, steps in by_value.items())


def default_text(value: Any) -> str:
    """A default as YAML takes it."""
    text = json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value
    return "a placeholder" if "placeholder" in text else f"`{text}`" if text else "empty"


def description(info: FieldInfo) -> str:
    """What a field means, and the words that it may be."""
    known = choices(info.annotation)
    words = f"({', '.join(f'`{word}`' for word in known)})" if known else ""
    return " ".join(part for part in (info.description, words) if part)


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def table(first: str, rows: Iterator[tuple[str, ...]], *, steps: bool = False) -> list[str]:
    """The lines of a table, the first column as code, with an empty line behind."""
    head = [first, *(["steps"] if steps else []), "default", "what it is"]
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    return [*lines, *(f"| `{name}` | {' | '.join(map(cell, rest))} |" for name, *rest in rows), ""]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
