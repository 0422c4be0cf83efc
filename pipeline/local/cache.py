"""The content cache of the local executor: keys made of content, and seals that vouch for finished outputs.

A step's key is a table of its members, such as

    image                     the image's name and its environment's digest
    command 0                 a script by its content, a program by its name
    argument --seed           0
    environment SM_LOG        20
    input corpus              sha256 of every file that the URI stands for
    input corpus, as given    where it lies for the job, and whether it is sharded or a manifest
    output output             /opt/ml/processing/output

so two runs agree where, and only where, the same work is done on the same content. Execution ids and URIs are not in
it. Outputs lie at RUN/outputs/<step>/<first 16 of the key>/<output name>/, with seal.json beside the outputs: every
file's size and sha256, written last and atomically. The seal is the executor's own, so steps that do not write a
manifest.json are cached just as well.

A seal tells by this machine's clock when it was written, for ExpireAfter alone: what is cached follows from content. A
seal from the future, as the clock was set back since, counts as a fresh one; a clock that is set forward may make a
step run again, to the same bytes.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pydantic

from steps import contract
from steps.contract import (
    FileEntry,
    StepError,
    all_files,
    file_entry,
    file_sha256,
    files_without_content,
    table_digest,
    write_json,
)

SEAL_NAME = "seal.json"
KEY_CHARACTERS_IN_PATHS = 16
# What file browsers leave in folders that somebody looks at.
_OF_FILE_BROWSERS = re.compile(r"\.DS_Store|\._.*|Thumbs\.db|desktop\.ini")
_DURATION = re.compile(r"p?(?:(\d+)w)?(?:(\d+)d)?(?:t?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?)?")
_SECONDS = (604_800, 86_400, 3_600, 60, 1)


class SealedFile(FileEntry):
    """is_content: False for a step's own seal and reports, which hold times."""

    is_content: bool = True


class Seal(pydantic.BaseModel):
    """seal.json: the key's members, for each output every file in it, and `<name>: <message>` of each warning."""

    step: str
    key: str
    members: dict[str, str]
    outputs: dict[str, dict[str, SealedFile]]
    seconds: float
    sealed_at: float
    warnings: list[str] = []


def content_digest(path: Path) -> str:
    """`steps.contract.content_digest` of a file or folder: a step's seal and reports are left out, as they hold times.

    Raises StepError where nothing is there, the folder is empty, or a file does not match the step's seal.
    """
    remedy = "Name an existing file or folder."
    if not path.exists():
        raise StepError(str(path), "does not exist", remedy=remedy)
    if path.is_dir() and not all_files(path):
        raise StepError(str(path), "is empty", remedy=remedy)
    return contract.content_digest(path)


def fingerprint(path: Path) -> dict[str, tuple[int, int]]:
    """Size and modification time of every file, read in a moment: what is equal has most likely the same content.

    The name of a single file is empty; what is not there has no rows.
    """
    if path.is_dir():
        stats = {name: (path / name).stat() for name in all_files(path)}
    else:
        stats = {"": path.stat()} if path.exists() else {}
    return {name: (found.st_size, found.st_mtime_ns) for name, found in stats.items()}


def key_of(members: Mapping[str, str]) -> str:
    """sha256 of a key's members."""
    return table_digest(members)


def text_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def command_members(command: list[str]) -> dict[str, str]:
    """A command for the key: scripts by content, programs by name, so that moving an installation keeps the cache."""
    members = {}
    for index, word in enumerate(command):
        path = Path(word)
        if path.is_absolute() and path.is_file():
            word = f"sha256 {file_sha256(path)}" if path.suffix in (".py", ".sh") else path.name
        members[f"command {index}"] = word
    return members


class OutputFolder:
    """RUN/outputs/<step>/<key>: the outputs of one step for one key, and their seal."""

    def __init__(self, run_folder: Path, step: str, key: str) -> None:
        self.step, self.key = step, key
        self.root = run_folder / "outputs" / step / key[:KEY_CHARACTERS_IN_PATHS]

    def output(self, name: str) -> Path:
        return self.root / name

    def replace(
        self, outputs: Mapping[str, list[Path]], members: Mapping[str, str], seconds: float, warnings: Sequence[str]
    ) -> Seal:
        """Moves finished outputs here and seals them; what was here before goes once they are complete.

        outputs: for each name the folders whose files make it up, one an instance.  warnings: what the step warned of.
        Raises StepError where two instances wrote different files of one name.
        """
        aside = self.root.with_name(f"{self.root.name}.new")
        if aside.exists():
            shutil.rmtree(aside)
        for name, folders in outputs.items():
            (aside / name).mkdir(parents=True)
            for folder in folders:
                _move_files(folder, aside / name, f"{self.step}, output {name}")
        files = {name: seal_entries(aside / name) for name in outputs}
        seal = Seal(step=self.step, key=self.key, members=dict(members), outputs=files, seconds=round(seconds, 3),
                    sealed_at=time.time(), warnings=list(warnings))  # fmt: skip
        aside.mkdir(parents=True, exist_ok=True)
        write_json(aside / SEAL_NAME, seal.model_dump(mode="json"))
        if self.root.exists():
            shutil.rmtree(self.root)
        os.replace(aside, self.root)
        return seal

    def read(self) -> Seal | None:
        """The seal as it stands, unchecked; None where there is none that this version reads."""
        try:
            seal = Seal.model_validate_json((self.root / SEAL_NAME).read_bytes())
        except (FileNotFoundError, IsADirectoryError, pydantic.ValidationError):
            return None
        return seal if seal.key == self.key else None

    def mismatch(self, seal: Seal) -> str | None:
        """What differs from the seal, in words; None where every file is as sealed."""
        for name, files in seal.outputs.items():
            folder = self.output(name)
            for path, entry in files.items():
                shown = f"{name}/{path}"
                if not (folder / path).is_file():
                    return f"{shown} is missing"
                if (size := (folder / path).stat().st_size) != entry.bytes:
                    return f"{shown} has {size:,} bytes, sealed with {entry.bytes:,}"
                if file_sha256(folder / path) != entry.sha256:
                    return f"{shown} has other content than sealed"
            found = set(all_files(folder)) if folder.is_dir() else set()
            added = sorted(path for path in found - set(files) if not _OF_FILE_BROWSERS.fullmatch(Path(path).name))
            if added:
                return f"{name}/{added[0]} was added after sealing"
        return None


def seal_entries(folder: Path) -> dict[str, SealedFile]:
    """Size in bytes and sha256 of every file below a folder, each forced to the disk first."""
    left_out = files_without_content(folder)
    return {
        name: SealedFile(**file_entry(folder / name).model_dump(), is_content=name not in left_out)
        for name in all_files(folder)
    }


def output_digest(files: Mapping[str, SealedFile]) -> str:
    """The same number as `content_digest` of the folder, from its seal."""
    return table_digest({name: entry.sha256 for name, entry in files.items() if entry.is_content})


def _move_files(source: Path, target: Path, subject: str) -> None:
    # A program may have removed the folder that it was given.
    for name in all_files(source) if source.is_dir() else ():
        moved = target / name
        if moved.exists():
            if file_sha256(moved) != file_sha256(source / name):
                remedy = "Let each instance write only its own files."
                raise StepError(subject, f"two instances wrote different {name}", remedy=remedy)
            continue
        moved.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(source / name, moved)


def reason_of_miss(run_folder: Path, step: str, members: Mapping[str, str]) -> str:
    """Why no earlier output serves: what changed against the newest sealed one, or that there is none."""
    newest: Seal | None = None
    for path in sorted((run_folder / "outputs" / step).glob(f"*/{SEAL_NAME}")):
        try:
            seal = Seal.model_validate_json(path.read_bytes())
        except (IsADirectoryError, pydantic.ValidationError):
            continue
        if newest is None or seal.sealed_at > newest.sealed_at:
            newest = seal
    if newest is None:
        return "first run"
    changed = [name for name in members if newest.members.get(name) != members[name]]
    changed += [name for name in newest.members if name not in members]
    shown = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
    return f"changed: {shown}" if shown else "its earlier output is gone"


def duration_seconds(text: str) -> int | None:
    """Seconds of an ISO 8601 duration as CacheConfig.ExpireAfter holds it (`P30D`, `p30d`, `T12H`, `30d`); weeks,
    days, hours, minutes and seconds only. None where it is none.
    """
    found = _DURATION.fullmatch(text.lower())
    if found is None or not any(found.groups()):
        return None
    return sum(int(number) * unit for number, unit in zip(found.groups(), _SECONDS, strict=True) if number)
