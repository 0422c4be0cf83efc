"""`langadapt preflight` and `start --preflight`: what an execution needs of an account, looked at before it starts.

Nothing is changed, and nothing but descriptions is read. What the caller may not look at is said and not counted as
missing: the jobs run under another role.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from pipeline.config import PipelineConfig
from pipeline.remote import preflight_checks as checks
from pipeline.remote.account import Account
from pipeline.remote.aws_errors import AwsError
from pipeline.remote.placeholders import placeholders
from pipeline.remote.preflight_checks import MISSING, NOT_ALLOWED, OK, Check
from pipeline.remote.preflight_needs import Needs, needs_of
from pipeline.remote.preflight_price import price_check

PLACEHOLDER = "langadapt-placeholder"
STATE_WIDTH = len(NOT_ALLOWED)
# Errors of the way there, which say nothing of what was looked for.
FATAL = ("credentials", "unreachable", "throttled", "fault")
Look: TypeAlias = tuple[str, Callable[[], list[Check]]]


def preflight(
    settings: PipelineConfig, definition: Mapping[str, Any], account: Account, given: Mapping[str, str] | None = None
) -> list[Check]:
    """Every look at the account, in the order of an execution's needs.

    given: values of parameters as texts, by name.
    Raises ConfigError for parameters or a definition that are none, AwsError where no request can be made at all.
    """
    # What is deployed has none, whatever the configuration says.
    if PLACEHOLDER in json.dumps(definition) and (found := placeholders(settings)):
        return [
            Check(name, MISSING, f"{value} is a placeholder", f"Set {name} in a configuration.")
            for name, value in found.items()
        ]
    needs = needs_of(definition, given or {}, settings.aws.max_parallel_steps)
    told = [check for look in looks(settings, account, needs) for check in _told(look)]
    return [*told, price_check(settings, definition, given or {})]


def looks(settings: PipelineConfig, account: Account, needs: Needs) -> Iterator[Look]:
    """What each look is of, and how it is made."""
    drives = settings.aws.pipeline_role_arn
    roles = [*needs.roles, drives] if drives and drives not in needs.roles else needs.roles
    single: list[tuple[str, Callable[[Account, str], Check], Iterable[str]]] = [
        ("bucket", checks.bucket_check, needs.buckets),
        ("role", checks.role_check, roles),
        ("function", checks.function_check, needs.functions),
        ("image", checks.image_check, needs.images),
        ("code", checks.code_check, needs.code),
    ]
    for kind, check, names in single:
        for name in names:
            yield f"{kind} {name}", partial(_one, check, account, name)
    for uri, steps in needs.data.items():
        yield f"data {uri}", partial(_one, checks.data_check, account, uri, steps)
    types = sorted({need.instance_type for need in needs.quotas})
    yield "instance types", partial(checks.offering_checks, account, types, settings.aws.subnets)
    yield "quotas", partial(checks.quota_checks, account, needs.quotas)


def _one(check: Callable[..., Check], *arguments: Any) -> list[Check]:
    return [check(*arguments)]


def _told(look: Look) -> list[Check]:
    """The findings of one look; what could not be looked at as one of them."""
    name, made = look
    try:
        return made()
    except AwsError as error:
        if error.kind in FATAL:
            raise
        state = NOT_ALLOWED if error.kind == "permission" else MISSING
        return [Check(name, state, f"{error.subject}: {error.value}", error.remedy)]


def is_ready(found: Sequence[Check]) -> bool:
    """Whether nothing is missing, as far as it could be looked at."""
    return not any(check.state == MISSING for check in found)


def preflight_lines(found: Sequence[Check]) -> list[str]:
    """A checklist, and what it comes to."""
    counts = {state: sum(check.state == state for check in found) for state in (OK, MISSING, NOT_ALLOWED)}
    total = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    return [*(f"{check.state:<{STATE_WIDTH}}  {check.text}" for check in found), f"preflight: {total or 'nothing'}"]
