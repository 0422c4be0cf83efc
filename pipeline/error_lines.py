"""An error as one line for people and as JSON for programs.

    {"error": {"line", "subject", "value", "limit", "remedy", "exit_code"}}

line: what is shown to people, without `error: `. subject, value, limit, remedy: its parts, null where it has none or
they are not known.
"""

from __future__ import annotations

import re
from typing import Any

# `<subject>: <value>; limit <limit>. <remedy>`, as steps/contract/errors.py writes it.
_LINE = re.compile(
    r"(?:error: )?(?P<subject>.+?): (?P<value>.+?)(?:; limit (?P<limit>.+?))?\. (?P<remedy>[A-Z].*)", re.DOTALL
)
PARTS = ("subject", "value", "limit", "remedy")


def line_parts(line: str) -> dict[str, str | None]:
    """The parts of an error's line, all of them None where it does not have that form.

    A step's error reaches the run as its line alone. A value that itself holds a sentence is cut at its end.
    """
    match = _LINE.fullmatch(line.strip())
    return {name: match[name] if match else None for name in PARTS}


def error_as_json(line: str, exit_code: int, **parts: object) -> dict[str, Any]:
    """The object of the module's docstring; the parts that are given, the others null."""
    known = {name: None if parts.get(name) is None else str(parts[name]) for name in PARTS}
    return {"error": {"line": line, **known, "exit_code": exit_code}}
