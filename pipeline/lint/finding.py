"""One thing that the service would refuse, or that would not do what it seems to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Finding:
    """What is wrong where. path: JSON path in the definition. step: the name of the step that holds it, else empty."""

    path: str
    value: str
    limit: str
    remedy: str
    step: str = ""

    @property
    def where(self) -> str:
        return f"{self.path} ({self.step})" if self.step else self.path

    def __str__(self) -> str:
        return f"{self.where}: {self.value}; limit {self.limit}. {self.remedy}"

    def as_json(self) -> dict[str, Any]:
        return {"path": self.path, "step": self.step, "value": self.value, "limit": self.limit, "remedy": self.remedy}
