"""A step's code, its import closure under steps/, as a deterministic archive named by its own sha256.

The archive holds the step's module, every module of the package that it imports, at any depth and also inside
functions, and the `__init__.py` files on the way. Nothing else goes in, so an archive's name changes exactly when
code that the step can run changes.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import io
import os
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import steps

STEPS_FOLDER = Path(steps.__file__).parent
# The oldest time that a zip archive can hold: a file's own time must leave no trace.
FIXED_TIME = (1980, 1, 1, 0, 0, 0)
FIXED_MODE = 0o644 << 16
MADE_ON_UNIX = 3


@dataclass(frozen=True)
class CodeArchive:
    """The archive's content, its sha256, and the sorted paths inside, such as steps/text/corpus.py."""

    digest: str
    content: bytes
    paths: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.digest}.zip"

    def write(self, folder: Path) -> Path:
        """Writes `<sha256>.zip` into a folder, aside and then renamed; a file of that name is left as it is."""
        target = folder / self.name
        if target.is_file() and hashlib.sha256(target.read_bytes()).hexdigest() == self.digest:
            return target
        folder.mkdir(parents=True, exist_ok=True)
        aside = folder / f".{self.name}.{os.getpid()}.tmp"
        try:
            aside.write_bytes(self.content)
            os.replace(aside, target)
        except OSError as error:
            # What a full disk has taken of it is of no use. The error of a write names no file.
            aside.unlink(missing_ok=True)
            error.filename = error.filename or str(target)
            raise
        return target


def code_archive(step_module: str, package: Path = STEPS_FOLDER) -> CodeArchive:
    """The archive of one step, such as `prepare_corpus`.

    package: folder of the package that the step belongs to; its own name is the top of every path in the archive.
    Raises FileNotFoundError for a module that the package lacks, SyntaxError for one that is no Python.
    """
    sources = {path: (package.parent / path).read_bytes() for path in import_closure(step_module, package)}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(sources):
            entry = zipfile.ZipInfo(path, FIXED_TIME)
            entry.external_attr = FIXED_MODE
            entry.create_system = MADE_ON_UNIX
            archive.writestr(entry, sources[path])
    content = buffer.getvalue()
    return CodeArchive(hashlib.sha256(content).hexdigest(), content, tuple(sorted(sources)))


def import_closure(step_module: str, package: Path = STEPS_FOLDER) -> list[str]:
    """Sorted paths, relative to the package's parent, of the modules that a step can import from its package."""
    start = f"{package.name}.{step_module}"
    if module_file(start, package) is None:
        raise FileNotFoundError(f"no module {start} in {package}")
    waiting, seen = [start], set()
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        path = module_file(module, package)
        assert path is not None, module
        named = [*parents(module), *imported_modules(module, path)]
        waiting += (name for name in named if module_file(name, package) is not None)
    files = (module_file(module, package) for module in seen)
    return sorted(path.relative_to(package.parent).as_posix() for path in files if path is not None)


def module_file(module: str, package: Path) -> Path | None:
    """The file of a module of this package, None for a name that is none of its modules."""
    top, *rest = module.split(".")
    if top != package.name:
        return None
    base = package.joinpath(*rest)
    candidates = [base / "__init__.py"] if not rest else [base / "__init__.py", base.with_name(f"{base.name}.py")]
    return next((path for path in candidates if path.is_file()), None)


def parents(module: str) -> list[str]:
    """The packages above a module: Python runs their __init__.py first."""
    parts = module.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))]


def imported_modules(module: str, path: Path) -> tuple[str, ...]:
    """Full names that a file imports, at its top or inside a function; `from a import b` gives a and a.b."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    return _imports_of(path.read_bytes(), package)


def statements(tree: ast.Module) -> Iterator[ast.AST]:
    """All statements of a source, those inside others too. Expressions, most of a source, are not walked through."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            waiting += getattr(node, name, ())


@functools.lru_cache(maxsize=1_024)
def _imports_of(source: bytes, package: str) -> tuple[str, ...]:
    """The names that a source imports; package is what its relative imports start from."""
    found: list[str] = []
    for node in statements(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                # One dot is the package itself, each further one the package above it.
                parts = package.split(".")
                base = ".".join([*parts[: len(parts) - node.level + 1], *([base] if base else [])])
            found += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return tuple(found)
