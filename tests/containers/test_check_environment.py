"""The checks of an image's building, on this environment."""

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest

from containers.check_environment import (
    EnvironmentFaultError,
    asked_for,
    check_installed,
    check_versions,
    import_one,
    main,
    pins,
)

ROOT = Path(__file__).parents[2]
DIGEST = "sha256:" + "0a" * 32
PACKAGING = importlib.metadata.version("packaging")


def test_a_base_by_digest_is_noted(tmp_path: Path) -> None:
    record = tmp_path / "base.json"
    assert main(["base", f"registry.example/pytorch@{DIGEST}", "no", str(record)]) == 0
    assert json.loads(record.read_text())["torch"] == importlib.metadata.version("torch")


@pytest.mark.parametrize(
    "reference", ["pytorch:2.14", f"pytorch@{DIGEST[:-1]}", f"@{DIGEST}", "", f"pytorch@{DIGEST}:latest", DIGEST]
)
def test_a_base_without_a_digest_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture, reference: str) -> None:
    record = tmp_path / "base.json"
    assert main(["base", reference, "no", str(record)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: base image: {reference!r}; limit NAME@sha256:DIGEST.")
    assert not record.exists()
    assert main(["base", reference, "yes", str(record)]) == 0


def test_a_change_of_the_bases_torch_is_told(tmp_path: Path) -> None:
    before = {"torch": "1.0", "triton": None, "flash-attn": None}
    with pytest.raises(EnvironmentFaultError, match=r"^torch: 1\.0 before the installation, \S+ after\."):
        check_installed(tmp_path / "none.txt", before)


def test_versions_that_are_not_as_pinned_are_told() -> None:
    check_versions({"packaging": PACKAGING})
    with pytest.raises(EnvironmentFaultError, match=rf"^packaging: {PACKAGING}; limit 1\.0 as pinned"):
        check_versions({"packaging": "1.0"})
    with pytest.raises(EnvironmentFaultError, match=r"^no-such-package: missing; limit 1\.0 as pinned"):
        check_versions({"no-such-package": "1.0"})


def test_what_a_package_asks_for_and_is_not_there_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real distribution on the path, of a wish that nobody fulfils."""
    information = tmp_path / "wishful-1.0.dist-info"
    information.mkdir()
    lines = ["Metadata-Version: 2.1", "Name: wishful", "Version: 1.0", "Requires-Dist: packaging>=9999",
             'Requires-Dist: other; extra == "more"', 'Requires-Dist: windows; sys_platform == "win32"']  # fmt: skip
    (information / "METADATA").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert [wanted.name for wanted in asked_for("wishful")] == ["packaging"]
    with pytest.raises(EnvironmentFaultError, match=f"^wishful: asks for packaging>=9999, and there is {PACKAGING}"):
        check_versions({"wishful": "1.0"})


def test_markers_choose_the_version_of_this_python(tmp_path: Path) -> None:
    requirements = tmp_path / "requirements.txt"
    older, newer = "python_full_version < '3.11'", "python_full_version >= '3.11'"
    lines = ["# Made", f"one==1.0 ; {older} \\", "    --hash=sha256:00", f"one==2.0 ; {newer} \\",
             "    --hash=sha256:01 \\", "    --hash=sha256:02", "two==3"]  # fmt: skip
    requirements.write_text("\n".join(lines) + "\n")
    assert pins(requirements) == {"one": "2.0", "two": "3"}


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("import no_such_module_anywhere", "No module named"),
        ("import ctypes; ctypes.CDLL('libnowhere.so')", "libnowhere.so: cannot open"),
        ("raise RuntimeError('two\\nlines')", "two"),
    ],
)
def test_a_module_that_cannot_be_imported_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, cause: str
) -> None:
    name = f"broken_{abs(hash(source))}"
    (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(EnvironmentFaultError, match=f"^{name}: cannot be imported: {cause}") as told:
        import_one(name)
    assert "\n" not in str(told.value)


def test_it_starts_as_the_dockerfile_starts_it() -> None:
    command = [sys.executable, "-m", "containers.check_environment", "base", "pytorch:2.14", "no", "never-written"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
    assert main([]) == 1
