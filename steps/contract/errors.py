"""Exit codes, and the two kinds of error that reach a person as one line."""

from __future__ import annotations

import errno
from collections.abc import Iterable

EXIT_DONE = 0
EXIT_USER_ERROR = 1
EXIT_GATE_CLOSED = 2
EXIT_BUG = 70
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


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


def nearest_name(wrong: str, known: Iterable[str]) -> str:
    """A sentence that names the known name nearest to a misspelt one."""
    import difflib

    names = sorted(known)
    near = difflib.get_close_matches(wrong, names, n=1)
    return f"Did you mean {near[0]}?" if near else f"Known: {', '.join(names)}."


# What a folder or disk refuses, which a person can mend; a missing file inside our own work is none of these.
PLACE_ERRORS = frozenset(
    {
        errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOSPC, errno.EDQUOT,
        errno.EFBIG, errno.EIO, errno.ESTALE, errno.EMFILE, errno.ENFILE, errno.ENAMETOOLONG, errno.ELOOP,
    }
)  # fmt: skip
