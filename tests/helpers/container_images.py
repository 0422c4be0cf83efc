"""Real images without a container engine's daemon: a base of Debian's packages and this environment's torch, and the
image of a containers/ folder on it. Needs root, buildah, podman, runc and debootstrap; see `missing_tools`.

The base's files and the wheels that go into the image lie in the user's cache, under a digest of what they are made of.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from steps.make_sample import default_cache

TOOLS = ("buildah", "podman", "runc", "debootstrap")
SUITE, SUITE_PYTHON, SUITE_GLIBC = "bookworm", "3.11", 36
PACKAGES = "python3,python3-pip"
TORCH = f"torch=={importlib.metadata.version('torch')}"
# Debian's pip refuses to install beside Debian's own packages unless it is told that it may.
BASE_VARIABLES = ("PIP_BREAK_SYSTEM_PACKAGES=1", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
PLACE_OF_WHEELS = "/wheels"
# The age of all files of an image's last layer: two builds shall not differ by their time.
TIMESTAMP = "315532800"


def missing_tools() -> str:
    """Why no image can be built here; empty where one can."""
    if sys.platform != "linux":
        return f"containers run on Linux, and this is {sys.platform}"
    if os.geteuid() != 0:
        return "not root"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    return f"missing: {', '.join(missing)}; apt-get install buildah podman runc debootstrap" if missing else ""


def run(*command: str | Path, **options) -> str:
    """The standard output of a command that must succeed."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}: {done.stdout[-3_000:]}{done.stderr[-3_000:]}"
    return done.stdout


def cached(name: str, parts: Sequence[str]) -> Path:
    """A place in the user's cache that is named by what its content is made of."""
    digest = hashlib.sha256(json.dumps([SUITE, SUITE_PYTHON, platform.machine(), *parts]).encode()).hexdigest()
    folder = default_cache() / "containers"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}-{digest[:16]}"


def download_wheels(folder: Path, *wanted: str) -> None:
    """Wheels for the base's Python and C library, by this environment's pip and the index that it is set up for."""
    machine = platform.machine()
    platforms = [f"--platform=manylinux_2_{minor}_{machine}" for minor in range(5, SUITE_GLIBC + 1)]
    abis = [f"--abi={abi}" for abi in (f"cp{SUITE_PYTHON.replace('.', '')}", "abi3", "none")]
    target = ["--only-binary=:all:", f"--python-version={SUITE_PYTHON}", "--implementation=cp", *abis, *platforms]
    more = os.environ.get("PIP_ARGS", "").split()
    run(sys.executable, "-m", "pip", "download", "--quiet", *target, *more, "--dest", folder, *wanted)


def wheelhouse(requirements: Path) -> Path:
    """A folder with the wheels of a requirements file, their hashes checked."""
    return _wheels([requirements.read_text("utf-8")], "--require-hashes", "-r", str(requirements))


def wheel_of(distribution: str) -> Path:
    """A folder with one wheel: of the version that this environment has."""
    wanted = f"{distribution}=={importlib.metadata.version(distribution)}"
    return _wheels([wanted], wanted)


def _wheels(parts: Sequence[str], *wanted: str) -> Path:
    place = cached("wheels", parts)
    if not place.is_dir():
        with tempfile.TemporaryDirectory(dir=place.parent) as aside:
            download_wheels(Path(aside, "wheels"), "--no-deps", *wanted)
            os.replace(Path(aside, "wheels"), place)
    return place


def base_archive() -> Path:
    """The files of a small Debian with Python, pip and torch, as one archive. About two minutes where it is new."""
    place = cached("base", [PACKAGES, TORCH])
    if not place.is_file():
        with tempfile.TemporaryDirectory(dir=place.parent) as aside:
            root = Path(aside, "root")
            run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, root)
            download_wheels(root / "wheels", TORCH)
            own = {"PATH": BASE_VARIABLES[1].removeprefix("PATH="), "PIP_BREAK_SYSTEM_PACKAGES": "1"}
            run("chroot", root, "python3", "-m", "pip", "install", "--quiet", "--no-cache-dir", "--no-index",
                "--find-links=/wheels", "--root-user-action=ignore", TORCH, env=own)  # fmt: skip
            for left in ("wheels", "var/cache/apt/archives", "var/lib/apt/lists", "var/log"):
                shutil.rmtree(root / left)
            run("tar", "-C", root, "-cf", Path(aside, "base.tar"), ".")
            os.replace(Path(aside, "base.tar"), place)
    return place


@dataclass(frozen=True)
class Build:
    """How a build ended, and the name of what it made, if anything."""

    name: str
    returncode: int
    log: str

    @property
    def error_lines(self) -> list[str]:
        return [line for line in self.log.splitlines() if line.startswith("error: ")]

    def ended_with(self, beginning: str) -> bool:
        """Whether there is no image, and one line that begins with these words says why."""
        lines = self.error_lines
        return self.returncode != 0 and len(lines) == 1 and lines[0].startswith(f"error: {beginning}")


class Images:
    """Images of one test run; `close` removes them."""

    def __init__(self, folder: Path) -> None:
        """folder: for pip's configuration."""
        self._folder, self.prefix = folder, f"langadapt-proof-{os.getpid()}"
        self.names: list[str] = []

    def import_base(self) -> str:
        """The base's name with its digest."""
        name = f"localhost/{self.prefix}-base"
        variables = [word for variable in BASE_VARIABLES for word in ("-c", f"ENV {variable}")]
        run("podman", "import", *variables, base_archive(), f"{name}:1")
        self.names.append(f"{name}:1")
        return by_digest(f"{name}:1")

    def build(self, context: Path, base: str, name: str, wheels: Path, target: str = "cpu") -> Build:
        """Builds a target of a containers/ folder. wheels: all that pip can find."""
        configuration = self._folder / "pip.conf"
        configuration.write_text(f"[global]\nno-index = true\nfind-links = {PLACE_OF_WHEELS}\n")
        full_name = f"localhost/{self.prefix}-{name}:1"
        given = [f"--target={target}", f"--build-arg={target.upper()}_BASE={base}"]
        command = ["buildah", "bud", "--isolation=chroot", f"--timestamp={TIMESTAMP}", *given,
                   f"--secret=id=pip,src={configuration}", f"--volume={wheels}:{PLACE_OF_WHEELS}:ro",
                   "--pull=never", "--no-cache", "--force-rm", "-t", full_name, str(context)]  # fmt: skip
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode == 0:
            self.names.append(full_name)
        return Build(full_name, done.returncode, done.stdout)

    def close(self) -> None:
        for name in reversed(self.names):
            run("podman", "rmi", "--force", name)


@contextlib.contextmanager
def images_in(folder: Path) -> Iterator[Images]:
    images = Images(folder)
    try:
        yield images
    finally:
        images.close()


def by_digest(name: str) -> str:
    """An image's name with its digest in the place of its tag."""
    return f"{name.rpartition(':')[0]}@{image_facts(name)['Digest']}"


def image_facts(name: str) -> dict:
    """What an image says of itself: Size in bytes, Digest, Labels, Config, RootFS.Layers."""
    return json.loads(run("podman", "image", "inspect", name))[0]


def tiny_wheel(folder: Path, name: str, version: str) -> str:
    """Writes a wheel with one empty module; its line for a requirements file, with its hash."""
    folder.mkdir(parents=True, exist_ok=True)
    wheel, information = folder / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{name}.py", "")
        archive.writestr(f"{information}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{information}/RECORD", "")
    return f"{name}=={version} \\\n    --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"
