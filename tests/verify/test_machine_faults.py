"""Proofs of a full disk: the real steps on a file system that grows until they fit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from small_disk import mounted
from workplace import Workplace, copy_of_source, fill_workplace, prove

from steps.contract import EXIT_DONE, EXIT_USER_ERROR, file_sha256

pytestmark = pytest.mark.verify

FIRST_KILOBYTES, MORE_KILOBYTES = 16, 400
LARGEST_KILOBYTES = 20_000
FAULT = re.compile(r"^error: (?:(\w+): )?.*(No space left on device|could not be written|needs [\d.]+ [kMG]B).*")


def sealed_files(place: Path) -> dict[str, str]:
    """sha256 of every file of sealed outputs and registered versions."""
    roots = [seal.parent for seal in place.glob("run/outputs/*/*/seal.json")]
    roots += [record.parent for record in place.glob("registry/*/*/version.json") if record.parent.name.isdigit()]
    files = [path for root in roots for path in root.rglob("*") if path.is_file()]
    return {str(path.relative_to(place)): file_sha256(path) for path in files}


def models(place: Path) -> dict[str, str]:
    return {path.name: file_sha256(path) for path in place.glob("registry/*/1/model/**/*.safetensors")}


def run_in(place: Workplace, folder: Path):
    return place.run("--run-dir", str(folder / "run"), "--registry", str(folder / "registry"))


def test_a_disk_that_grows_until_the_run_fits(tmp_path: Path, make_tiny_llama) -> None:
    place = fill_workplace(tmp_path, make_tiny_llama, copy_of_source(tmp_path / "source"))
    (tmp_path / "whole").mkdir()
    assert run_in(place, tmp_path / "whole").returncode == EXIT_DONE
    places: list[str] = []
    with mounted(tmp_path / "disk", FIRST_KILOBYTES) as disk:
        for kilobytes in range(FIRST_KILOBYTES, LARGEST_KILOBYTES, MORE_KILOBYTES):
            disk.resize(kilobytes)
            before = sealed_files(disk.folder)
            ended = run_in(place, disk.folder)
            assert {name: digest for name, digest in sealed_files(disk.folder).items() if name in before} == before
            if ended.returncode == EXIT_DONE:
                break
            lines = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
            assert (ended.returncode, len(lines)) == (EXIT_USER_ERROR, 1), ended.stderr
            fault = FAULT.match(lines[0])
            assert fault is not None, ended.stderr
            assert "Traceback" not in ended.stderr
            places.append(fault[1] or "the run's own files")
            print(f"\n{kilobytes:,} kB: {lines[0]}", flush=True)
        equal = models(disk.folder) == models(tmp_path / "whole") != {}
    steps = sorted(set(places))
    prove("runs that a full disk ended in one line, exit code 1, sealed outputs unchanged", len(places), ">= 12",
          len(places) >= 12)  # fmt: skip
    prove("where it was full", ", ".join(steps), ">= 6 places", len(steps) >= 6)
    prove("the same command in the end, exit code", ended.returncode, "0", ended.returncode == EXIT_DONE)
    prove("registered model as of a run with room enough", equal, "the same bytes", equal)


def test_a_read_only_run_folder_and_registry(tmp_path: Path, make_tiny_llama) -> None:
    place = fill_workplace(tmp_path, make_tiny_llama, copy_of_source(tmp_path / "source"))
    with mounted(tmp_path / "disk", 1_024) as disk:
        disk.make_read_only(True)
        ended = run_in(place, disk.folder)
        listed = place.langadapt("models", "list", "--registry", str(disk.folder / "registry"))
        compiled = place.langadapt("compile")
        disk.make_read_only(False)
    print(ended.stderr)
    lines = (ended.returncode, len(ended.stderr.splitlines()))
    prove("exit code and lines of a run in a read-only folder", lines, "1, 1", lines == (EXIT_USER_ERROR, 1))
    codes = (listed.returncode, compiled.returncode)
    prove("exit codes of models list and compile there", codes, "0, 0", codes == (EXIT_DONE, EXIT_DONE))
