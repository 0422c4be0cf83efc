"""Which file or folder of this machine stands for a URI.

the output of a finished step     its sealed folder under RUN/outputs
a URI that the caller mapped      what it was mapped to
file:///data/corpus               /data/corpus, as is a bare absolute path
s3://bucket/key                   RUN/s3/bucket/key
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from steps.contract import ConfigError


class UriFolders:
    """The mapping of one run; steps add their outputs as they finish, from several threads."""

    def __init__(self, run_folder: Path, given: Mapping[str, Path]) -> None:
        self._run_folder = run_folder
        self._mapped = {uri.rstrip("/"): path for uri, path in given.items()}
        self._lock = threading.Lock()

    def add(self, uri: str, folder: Path) -> None:
        """From now on the URI, and every URI below it, stands for this folder."""
        with self._lock:
            self._mapped[uri.rstrip("/")] = folder

    def find(self, uri: str) -> Path:
        """The path for a URI, whether something is there or not. Raises ConfigError for a scheme that is not known."""
        prefix, rest = uri.rstrip("/"), ""
        with self._lock:
            mapped = dict(self._mapped)
        while "/" in prefix:
            if prefix in mapped:
                return mapped[prefix] / rest if rest else mapped[prefix]
            prefix, _, last = prefix.rpartition("/")
            rest = f"{last}/{rest}" if rest else last
        if uri.startswith("/"):
            return Path(uri)
        parts = urlsplit(uri)
        if parts.scheme == "file":
            return Path(unquote(parts.path))
        if parts.scheme == "s3":
            return self._run_folder / "s3" / parts.netloc / parts.path.strip("/")
        raise ConfigError("URI", repr(uri), limit="file:// or s3://", remedy="Name a folder by such a URI.")

    def below(self, uri: str) -> dict[str, Path]:
        """What the URIs below this one stand for, by the rest of each: what a reader of the prefix finds there."""
        prefix = f"{uri.rstrip('/')}/"
        with self._lock:
            return {name[len(prefix) :]: path for name, path in self._mapped.items() if name.startswith(prefix)}


def is_uri(text: object) -> bool:
    return isinstance(text, str) and text.startswith(("s3://", "file://"))
