"""Whether what a stand-in answers is what the service can answer, by botocore's model of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def unknown_members(shape: Any, value: Any, path: str) -> Iterator[str]:
    """A line for each member of an answer that the service does not give. shape: botocore's, None for no answer."""
    if shape is not None and shape.type_name == "structure":
        for name, item in value.items():
            if name not in shape.members:
                yield f"answer {path}: no member {name}"
            else:
                yield from unknown_members(shape.members[name], item, f"{path}.{name}")
    elif shape is not None and shape.type_name == "list":
        for item in value:
            yield from unknown_members(shape.member, item, path)
