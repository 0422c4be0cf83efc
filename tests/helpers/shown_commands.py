"""The commands that pages show, as words; read without running any."""

from __future__ import annotations

import re
from pathlib import Path

PROGRAMS = "langadapt|python -m"
# In a line of its own, also below an item of a list.
SHOWN = re.compile(rf"^(?: {{4}}| {{8}})((?:{PROGRAMS}) .+)$|`((?:{PROGRAMS}) [^`]+)`", re.MULTILINE)


def commands_of(page: Path) -> list[str]:
    """Every langadapt and python -m command that a page shows, in its order: in lines of their own, and in words."""
    text = page.read_text("utf-8").replace(" \\\n", " ")
    return list(dict.fromkeys((block or inline).split("  #")[0].strip() for block, inline in SHOWN.findall(text)))


def kind_of(words: list[str]) -> str:
    """What answers a command, its name without `langadapt` given in words: `push`, `models --remote`."""
    return f"{words[0]} --remote" if "--remote" in words else words[0]
