"""The places that docs/architecture.md names, as `path:line` `symbol`: `python tests/helpers/architecture_page.py`
brings their lines up to date."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
PLACE = re.compile(r"`(?P<path>[\w./-]+\.py):(?P<line>\d+)` `(?P<symbol>[\w.]+)`")


def page(text: str) -> str:
    """The page's text with each place at the line of its symbol. Raises KeyError for a place that is not there."""
    return PLACE.sub(lambda found: place(found["path"], found["symbol"]), text)


def place(path: str, symbol: str) -> str:
    """A place as the page has it: of a class, function or name, a member of a class as Class.member."""
    lines = dict(definitions(ast.parse((ROOT / path).read_text("utf-8"))))
    if symbol not in lines:
        raise KeyError(f"{path} defines no {symbol}")
    return f"`{path}:{lines[symbol]}` `{symbol}`"


def definitions(tree: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[tuple[str, int]]:
    """Names that a module or class defines, with their lines; those of a class with its name before them."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield prefix + node.name, node.lineno
        if isinstance(node, ast.ClassDef):
            yield from definitions(node, f"{prefix}{node.name}.")
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        yield from ((prefix + target.id, node.lineno) for target in targets if isinstance(target, ast.Name))


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), encoding="utf-8")
