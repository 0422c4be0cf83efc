"""The files of a job's input: all below a prefix, or those that a manifest lists.

What several steps wrote below one prefix is one input to a reader of the prefix, as it is in a bucket. It must wait for
them by DependsOn, here as there.

A manifest is a JSON list: the common beginning of the URIs, then the rest of each.

    [{"prefix": "s3://bucket/texts/"}, "a.txt", "more/b.txt"]
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from pipeline.local.cache import all_files
from pipeline.local.job_spec import JobInput
from pipeline.local.uri_folders import UriFolders
from steps.contract import StepError, table_digest


def input_files(entry: JobInput, uris: UriFolders, subject: str) -> dict[str, Path]:
    """Each file by its path below the input's folder, sorted. Raises StepError for what is not there or no manifest."""
    source, below = uris.find(entry.uri), uris.below(entry.uri)
    if not source.exists() and not below:
        remedy = "Name an existing file or folder."
        raise StepError(subject, f"{entry.uri} ({source}) does not exist", remedy=remedy)
    if entry.is_manifest:
        return _listed_files(source, uris, subject)
    if source.is_file():
        return {source.name: source}
    files = _files_of(source, "")
    for place, path in below.items():
        files |= _files_of(path, place)
    return dict(sorted(files.items()))


def input_digest(entry: JobInput, uris: UriFolders, digest: Callable[[Path], str], subject: str) -> str:
    """The digest of an input's content. digest: that of one file or folder."""
    source, below = uris.find(entry.uri), uris.below(entry.uri)
    if not entry.is_manifest and not below:
        return digest(source)
    return table_digest({name: digest(path) for name, path in input_files(entry, uris, subject).items()})


def input_places(entry: JobInput, uris: UriFolders, subject: str) -> list[Path]:
    """The files and folders whose digests make up an input's."""
    if not entry.is_manifest and not uris.below(entry.uri):
        return [uris.find(entry.uri)]
    return list(input_files(entry, uris, subject).values())


def _files_of(source: Path, place: str) -> dict[str, Path]:
    """The files of a file or folder that lies at `place` below an input's folder."""
    if source.is_file():
        return {place: source}
    return {f"{place}/{name}".lstrip("/"): source / name for name in all_files(source)}


def _listed_files(manifest: Path, uris: UriFolders, subject: str) -> dict[str, Path]:
    remedy = 'Write it as [{"prefix": "s3://..."}, "file", ...].'
    try:
        head, *names = json.loads(manifest.read_text(encoding="utf-8"))
        prefix = head["prefix"]
    except IsADirectoryError as error:
        raise StepError(subject, f"{manifest} is a folder", limit="a manifest file", remedy=remedy) from error
    except (ValueError, TypeError, KeyError) as error:
        raise StepError(subject, f"{manifest} is no manifest", limit="a list of JSON", remedy=remedy) from error
    files: dict[str, Path] = {}
    for name in names:
        if not isinstance(name, str) or name.startswith("/") or ".." in PurePosixPath(name).parts:
            raise StepError(subject, f"{manifest} lists {name!r}", limit="a path below its prefix", remedy=remedy)
        path = uris.find(prefix + name)
        if not path.is_file():
            raise StepError(subject, f"{manifest} lists {name}, which is not there", remedy="Correct the manifest.")
        files[name] = path
    return dict(sorted(files.items()))
