"""The files that a function's module can import from this repository; all else it takes from Lambda's own Python."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pipeline.code_archive import imported_modules, module_file, parents

ROOT = Path(__file__).parents[1]
# Packages that may go into a function; a module of another one would bring libraries that Lambda lacks.
PACKAGES = tuple(ROOT / name for name in ("infra", "pipeline"))


def function_files(module: str) -> dict[str, bytes]:
    """Content by path below the repository's root, such as infra/handlers/notify.py, of a module and what it imports.

    Raises FileNotFoundError for a module that is not there.
    """
    found: dict[str, bytes] = {}
    waiting = [module]
    if _file(module) is None:
        raise FileNotFoundError(f"no module {module} in {ROOT}")
    while waiting:
        name = waiting.pop()
        path = _file(name)
        if path is None or (relative := path.relative_to(ROOT).as_posix()) in found:
            continue
        found[relative] = path.read_bytes()
        waiting += [*parents(name), *imported_modules(name, path)]
    return dict(sorted(found.items()))


@contextmanager
def staged_folder(files: Mapping[str, bytes]) -> Iterator[str]:
    """A folder with these files, by path, until the block ends; CDK copies a folder when it makes an asset of it."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            target = Path(folder, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        yield folder


def _file(module: str) -> Path | None:
    return next((path for package in PACKAGES if (path := module_file(module, package)) is not None), None)
