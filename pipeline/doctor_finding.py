"""What a check of `langadapt doctor` found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

OK, WARNING, MISSING = "ok", "warning", "missing"


@dataclass(frozen=True)
class Finding:
    """One line of `langadapt doctor`.

    found: what is there, with versions and sizes.  brings: what a missing thing would bring.  remedy: how to get it.
    needed: a local run is not possible without it.
    """

    name: str
    state: str
    found: str
    brings: str = ""
    remedy: str = ""
    needed: bool = False

    @property
    def stops(self) -> bool:
        """Whether no local run is possible because of this."""
        return self.needed and self.state == MISSING

    @property
    def text(self) -> str:
        """found; brings. remedy"""
        text = "; ".join(part for part in (self.found, self.brings) if part)
        return f"{text}. {self.remedy}" if self.remedy else text

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "stops": self.stops}
